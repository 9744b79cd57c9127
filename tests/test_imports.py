"""Which module imports which, and what must work where torch, pandas or the dashboard are missing."""

import ast
import contextlib
import shlex
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.command import execute
from tests.test_house import MODULES, ROOT, parsed

OUTSIDE = {"torch", "duckdb", "einops", "numpy", "typer", "rich", "psutil", "pynvml", "ray", "transformers",
           "markdown_it", "lxml"}  # fmt: skip
#: The folders and files of `runner`, each with those that it may import. `cli` may import everything.
RUNNER_MAY = {
    "errors": "",
    "allowance": "",
    "formats": "",
    "places": "errors",
    "schema": "errors",
    "results": "schema",
    "published": "errors formats places results schema",
    "job": "errors schema",
    "analysis": "errors formats results schema",
    "models": "analysis errors places schema",
    "measure": "allowance analysis errors job models places results schema",
    "experiments": "analysis errors formats results schema",
    "engines": "allowance errors experiments job measure places schema",
    "plan": "analysis errors experiments schema",
    "store": "allowance analysis errors experiments formats places published results schema",
    "importers": "analysis errors formats places published results schema store",
    "answers": "analysis errors experiments formats plan results schema",
    "render": "answers formats plan schema",
    "sweep": "allowance analysis engines errors experiments formats job places plan results schema store",
}
#: The folders that may import torch, and those of the runner that pages may import.
WITH_TORCH = {"engines", "measure", "models"}
PAGES_MAY = {*shlex.split("analysis answers errors experiments formats places plan render results schema store")}


@cache
def imported(path: Path) -> tuple[str, ...]:
    """Returns the modules that a file names in its import statements, wherever in the file they are."""
    names: list[str] = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            parts = [f"{node.module}.{item.name}" for item in node.names]
            names += [part if part.count(".") < 3 or _is_module(part) else node.module for part in parts]
    return tuple(names)


def _is_module(name: str) -> bool:
    return (ROOT / name.replace(".", "/")).with_suffix(".py").exists()


def named(path: Path, *modules: str) -> set[str]:
    """Returns those of `modules` that the file imports, as a whole or in part."""
    return {module for module in modules for name in imported(path) if name == module or name.startswith(f"{module}.")}


def rooms(path: Path, package: str) -> set[str]:
    """Returns the folders and files of `runner` or `pages` that a file imports from."""
    return {name.split(".")[1] for name in imported(path) if name.startswith(f"{package}.")}


@pytest.mark.parametrize("path", [path for path in MODULES if path.parts[0] == "runner"], ids=str)
def test_imports_of_the_runner(path: Path) -> None:
    room = path.parts[1].removesuffix(".py")
    foreign = {name.split(".")[0] for name in imported(path)} - set(sys.stdlib_module_names) - {"runner"}
    assert foreign <= OUTSIDE, path
    if room not in ("cli", "__main__"):
        assert rooms(path, "runner") <= {room, *RUNNER_MAY.get(room, "").split()}, path
    if room not in WITH_TORCH:
        assert not named(path, "torch"), path
    if room in ("schema", "results", "experiments", "plan", "errors", "formats", "job"):
        assert not foreign, path
    if room == "published":
        assert foreign <= {"lxml", "markdown_it"}, path
    if room == "experiments":
        files = (ROOT / "runner/experiments").glob("*.py")
        declared = {f"runner.experiments.{file.stem}" for file in files if "\nEXPERIMENT = " in file.read_text()}
        assert not named(path, *declared), f"{path}: an experiment imports no other experiment"
    if room != "store":
        assert not named(path, "duckdb"), f"{path}: SQL belongs in runner/store"
    if room != "engines":
        assert not named(path, "ray"), f"{path}: an engine is a single file"


def test_imports_of_the_pages() -> None:
    """Charts know neither Streamlit nor the store, HTTP routes no page, and neither is a page."""
    for path in (path for path in MODULES if path.parts[0] == "pages"):
        assert not named(path, "torch", "duckdb"), path
        assert rooms(path, "runner") <= PAGES_MAY, path
        room = path.parts[1]
        if room == "plot":
            assert not named(path, "streamlit", "pandas", "runner.store", "runner.analysis"), path
        shared = {"plot": set(), "api": {"frame", "live", "sign_in"}}.get(room)
        assert shared is None or rooms(path, "pages") <= {room, *shared}, path


@pytest.mark.parametrize("depth", range(1, 4))
def test_imports_between_folders_and_files_have_no_cycle(depth: int) -> None:
    """Folders and files that lie in one folder, `depth` folders deep, do not import each other in a circle."""
    arrows: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for path in MODULES:
        start = path.with_suffix("").parts[: depth + 1]
        names = [tuple(name.split("."))[: depth + 1] for name in imported(path)]
        arrows.setdefault(start, set()).update(name for name in names if name[:depth] == start[:depth])
    TopologicalSorter({start: found - {start} for start, found in arrows.items()}).prepare()


def test_reading_rows_and_showing_help_need_no_torch() -> None:
    modules = "runner.schema, runner.experiments, runner.cli.main, runner.store.history"
    check = f"import sys, {modules}; sys.exit('torch' in sys.modules or 'pandas' in sys.modules)"
    execute(sys.executable, "-c", check, code=0)


def distributions(requirements: Iterable[str]) -> set[str]:
    """Returns the installed distributions that these requirements name, and all that those require."""
    found: set[str] = set()
    open_ones = [*requirements]
    while open_ones:
        one = Requirement(open_ones.pop())
        name = canonicalize_name(one.name)
        if name not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
            with contextlib.suppress(PackageNotFoundError):
                open_ones += requires(name) or []
                found.add(name)
    return found


def absent(*extras: str, beside: Iterable[str] = ()) -> list[str]:
    """Returns the installed modules that are missing where only these extras were asked for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [one for extra in extras for one in project["optional-dependencies"][extra]]
    there = distributions([*project["dependencies"], *asked, *beside])
    return [
        module
        for module, names in packages_distributions().items()
        if not there & {canonicalize_name(name) for name in names} and module not in ("runner", "pages", "app", "data")
    ]


MARKDOWN, HTML = (f"import {ROOT}/tests/cases/clean/{name}" for name in ("attention.md", "passes.html"))
#: What commands say where only these extras are installed.
SAID: dict[tuple[str, ...], dict[str, str]] = {
    (): {
        "show overview --db data/reference/h200": "fastest measured way",
        MARKDOWN: "1 table, 6 rows",
        HTML: "pip install 'stepscope[html]'",
        "sweep": "pip install 'stepscope[runner]'",
        "app": "pip install 'stepscope[app]'",
    },
    ("html",): {HTML: "1 table, 3 rows"},
    ("app",): {"show sizes": "128,625,408"},
}


@pytest.mark.parametrize("extras", SAID)
def test_a_package_without_an_extra_does_what_it_can(extras: tuple[str, ...], tmp_path: Path) -> None:
    """From any folder: the shipped rows are found by their name. With the dashboard's extra its pages are imported."""
    script = f"""
import contextlib, sys
sys.modules.update(dict.fromkeys({absent(*extras)!r}))
{"import pages.main" if "app" in extras else ""}
from runner.__main__ import run
for line in {[*SAID[extras]]!r}:
    sys.argv[1:] = line.split()
    with contextlib.suppress(SystemExit):
        run()
"""
    done = execute(sys.executable, "-c", script, cwd=tmp_path)
    said = " ".join((done.stdout + done.stderr).split())
    assert [words for words in SAID[extras].values() if words not in said] == []
    assert "Traceback" not in done.stderr


@pytest.mark.soak
def test_the_gpu_tests_need_no_more_than_the_runner() -> None:
    """They are collected without errors with only the requirements of the extra `runner` and of pytest."""
    refused = absent("runner", beside=("pytest", "pytest-timeout"))
    assert {"pandas", "playwright", "plotly", "pyarrow", "streamlit", "transformers"} <= {*refused}
    words = ["--collect-only", "--quiet", "-m", "gpu", "-p", "no:cacheprovider", "-p", "pytest_timeout"]
    without = f"import sys; sys.modules.update(dict.fromkeys({refused!r}))"
    script = f"{without}; import pytest; sys.exit(pytest.main({words!r}))"
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = execute(sys.executable, "-c", script, env=env, code=0)
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__)]
    marked = {path.name for path in tests if "pytest.mark.gpu" in path.read_text()}
    assert {Path(line.split("::")[0]).name for line in done.stdout.splitlines() if "::" in line} == marked
