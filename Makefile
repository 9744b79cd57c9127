# make demo   install, measure this machine, open the dashboard        make test   everything the tests need, and the tests
# make check  style and types                                          make soak   the long tests, which make test leaves out
# make bench  what Stepscope itself costs                              make lock   renew requirements.lock
# make ray    the tests of --engine ray, which start a cluster here

PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
SERVE ?= 1
SWEEP ?=
# The cells of a laptop take about two minutes; further rounds only as far as three minutes reach.
DEMO := $(or $(SWEEP),--budget 120s)

.PHONY: demo test soak ray check bench lock clean

demo: $(VENV)/.demo
ifeq ($(SERVE),0)
	$(BIN)/python -m runner sweep $(SWEEP)
else
	$(BIN)/python -m runner app --measure -- $(DEMO)
endif

test: $(VENV)/.test
	$(BIN)/python -m tests.install_chromium
	$(BIN)/pytest --numprocesses 3 --dist loadgroup -m "not soak"

soak: $(VENV)/.test
	$(BIN)/python -m tests.install_chromium
	$(BIN)/pytest --numprocesses 3 --dist loadgroup -m soak --timeout 3600

ray: $(VENV)/.ray
	$(BIN)/pytest -m "" tests/runner/engines/test_ray.py

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.test
	$(BIN)/python -m tests.install_chromium
	$(BIN)/python -m tests.bench

# The lock is a file of constraints: it names every version, and pip installs what the extras ask for.
$(VENV)/.demo: pyproject.toml requirements.lock | $(VENV)/bin/python
	$(BIN)/pip install --quiet --no-compile --constraint requirements.lock --editable '.[runner,app]'
	@touch $@

$(VENV)/.test: pyproject.toml requirements.lock | $(VENV)/bin/python
	$(BIN)/pip install --quiet --no-compile --constraint requirements.lock --editable '.[runner,app,dev]'
	@touch $@

$(VENV)/.ray: $(VENV)/.test
	$(BIN)/pip install --quiet --no-compile --constraint requirements.lock --editable '.[ray]'
	@touch $@

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Stepscope needs Python 3.11 or newer and found none. Say where it is: make $(MAKECMDGOALS) PYTHON=/path/to/python3"; exit 2; }
	$(PYTHON) -m venv $(VENV)

lock:
	rm -rf $(VENV)-lock
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/pip install --quiet torch==2.13.0 --editable '.[runner,app,dev,ray]'
	{ echo "# Every version Stepscope is tested with; renewed by \`make lock\`, used as constraints."; \
	  $(VENV)-lock/bin/pip freeze --exclude-editable | grep -v '^nvidia-.*-cu' | sed 's/+cpu//'; } > requirements.lock
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache *.egg-info
