"""Hooks and fixtures of all tests."""

import gc
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runner import allowance
from runner.engines.engine import ADJUSTABLE

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser import Site

MAIN = sys.modules["__main__"]
ROOT = Path(__file__).parent
#: The files that take longest come first, so that no process starts one of them when the others have finished.
LONGEST = (
    "runner/cli/test_ab.py",
    "runner/sweep/test_sweep.py",
    "runner/engines/test_engine.py",
    "runner/cli/test_tune.py",
    "runner/own/test_configurations.py",
    "runner/store/test_places.py",
    "test_documents.py",
    "runner/cli/test_cli.py",
    "runner/sweep/test_race.py",
    "runner/analysis/test_costs.py",
    "runner/store/test_processes.py",
)
#: Packages of the extras `app` and `dev` that tests import and a machine for measuring alone may lack.
MAY_LACK = shlex.split(
    "authlib axe_playwright_python httpx hypothesis joserfc pandas playwright plotly pyarrow "
    "ray starlette streamlit transformers"
)

#: Python runs this at the start of the server, before its imports, and reports to it every socket that it uses.
TELLS_WHOM_IT_ASKS = """
import sys
def told(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname"):
        address = arguments[0] if event.startswith("socket.get") else arguments[1]
        host = address[0] if isinstance(address, tuple) else address
        if host not in ("localhost", "127.0.0.1", "::1", "", None):
            with open({log!r}, "a") as log:
                print(event, host, file=log)
sys.addaudithook(told)
"""


class Module(pytest.Module):
    """A file of tests that is skipped if it imports, even indirectly, a package that this machine may lack."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            return super().collect()
        except self.CollectError as error:
            package = str(getattr(error.__cause__, "name", None)).partition(".")[0]
            if package in MAY_LACK and find_spec(package) is None:
                pytest.skip(f"{package} is not installed", allow_module_level=True)
            raise


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> Module:
    return Module.from_parent(parent, path=module_path)


def pytest_configure(config: pytest.Config) -> None:
    """Turns off the order of pytest-xdist, which starts with the files that have the most tests. Restores SIGINT,
    because a shell that starts pytest in the background ignores it and the sweeps that tests interrupt would inherit
    that. If Python is told to write no bytecode, it is written beside pytest's cache: tests start hundreds of
    processes, and compiling torch or Streamlit again takes each as long as the rest of its imports."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        sys.dont_write_bytecode = False
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(ROOT.parent / ".pytest_cache/bytecode")
    for name in ADJUSTABLE:
        os.environ.pop(name, None)  # tests check the threads and the allocator that Stepscope itself sets
    config.option.loadscopereorder = False
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives each file to one process, and all files that need a browser, or the shipped rows, to the same: starting the
    one and reading the others takes seconds. These two begin."""
    order = {"browser": -2, "shipped": -1, **{str(ROOT / name): position for position, name in enumerate(LONGEST)}}
    groups = {item: _find_group(item) for item in items}
    items.sort(key=lambda item: order.get(groups[item], len(order)))
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))


def _find_group(item: pytest.Item) -> str:
    module = item.getparent(pytest.Module)
    imported = vars(module.obj) if module else {}
    return "browser" if "Browser" in imported else "shipped" if "shipped" in imported else str(item.path)


def pytest_collection_finish() -> None:
    """Freezes the objects that exist now: every measurement in this process collects garbage, which would walk all of
    them for half a second. Also stops Streamlit's AppTest from searching all installed packages for components before
    each page: there are none, and the search takes a seventh of a second."""
    gc.collect()
    gc.freeze()
    if "streamlit.testing.v1" in sys.modules:
        from streamlit.components.v2 import manifest_scanner

        manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)


@pytest.fixture(scope="session", autouse=True)
def own_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Makes the sweeps of the tests wait for one another, and not for a sweep that someone runs on this machine. Also
    hides the shipped reference rows from tests that do not name a reference of their own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("tmp"))
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)  # pytest has asked for it before, and Python remembers the answer
        patch.setenv("STEPSCOPE_REFERENCE", "")
        yield


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Returns the path of a results file that is not there yet."""
    return tmp_path / "results.duckdb"


@pytest.fixture(scope="module")
def module_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the path of a results file for all tests of a file, which is not there yet."""
    return tmp_path_factory.mktemp("module") / "results.duckdb"


@pytest.fixture
def group_limit() -> Iterator[Path]:
    """Yields the file that limits the memory of a new control group, below this process's own or one around it; skips
    where none can be made, which requires root."""
    for parent in allowance._find_groups("memory"):
        group = parent / f"stepscope-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            for limit in (group / "memory.max", group / "memory.limit_in_bytes"):
                if limit.exists():
                    yield limit
                    return
        finally:
            group.rmdir()
    pytest.skip("no control group can be made here that limits memory")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Restores the main module, because Streamlit's AppTest leaves its script there and every process of
    multiprocessing runs it first. This happens before the fixtures of a file, which may start a sweep."""
    sys.modules["__main__"] = MAIN
    if item.get_closest_marker("gpu") and not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("torch sees no NVIDIA GPU")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yields the file in which servers started from now on record every address they contact outside this machine."""
    folder = tmp_path_factory.mktemp("asked")
    (folder / "sitecustomize.py").write_text(TELLS_WHOM_IT_ASKS.format(log=str(folder / "log")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        yield folder / "log"


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Yields a headless browser for all tests of a process, which keeps the dashboard's compiled scripts."""
    from tests.browser import chromium

    with chromium(for_tests=True) as found:
        yield found


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Site]":
    """Yields a server for all tests of a process that need none of their own."""
    from tests.browser import Site, served

    file = tmp_path_factory.mktemp("site") / "results.duckdb"
    with served(file, script="tests/e2e/switched.py") as address:
        yield Site(address=address, file=file)
