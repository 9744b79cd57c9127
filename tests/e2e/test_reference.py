"""A new clone in a real browser: pages show reference rows, marked as such, until the reader's first own cell."""

import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from runner.store.spool import Spool
from tests.browser import ROOT, drawn, opened, said, served
from tests.synthetic import rows
from tests.synthetic.reference import pack_reference

NOTICE = "reference rows"
UNNAMED = {"STEPSCOPE_DB": None, "STEPSCOPE_REFERENCE": None}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the app's files as tracked by git, with a small reference instead of the shipped one."""
    root = tmp_path_factory.mktemp("clone") / "stepscope"
    for name in ("app.py", "pages", "runner", ".streamlit", "data/README.md"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, root / name)
    for folder in root.rglob("__pycache__"):
        shutil.rmtree(folder)
    pack_reference(root.parent / "made/h200")
    shutil.copytree(root.parent / "made/h200", root / "data/reference/h200")
    return root


@pytest.fixture(scope="module")
def address(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yields the address of a server that is started there and may not write a file there."""
    before = listed(clone)
    for path in (clone, *clone.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    cache = tmp_path_factory.mktemp("cache")
    env = {**UNNAMED, "XDG_CACHE_HOME": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    with served(clone.parent / "server.duckdb", root=clone, env=env) as found:
        yield found
        assert listed(clone) - {path for path in listed(clone) if "results.duckdb" in path} == before
    assert len(list((cache / "stepscope").iterdir())) == 1


def listed(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def fetch(url: str) -> tuple[dict[str, object], str | None]:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.loads(answer.read()), answer.headers["X-Stepscope-Reference"]


@pytest.mark.parametrize("path", ["", pytest.param("training-step", marks=pytest.mark.soak)])
def test_a_new_clone_opens_on_reference_rows(browser: Browser, address: str, path: str) -> None:
    """Overview, and a page with its chart opened by deep link, both say whose rows these are."""
    with opened(browser, f"{address}/{path}") as visit:
        words = said(visit.page)
        assert NOTICE in words
        assert "Not here" not in words
        assert not path or len([*filter(None, drawn(visit.page, "step-by-phase"))]) >= 4


@pytest.mark.soak
def test_a_link_to_reference_rows(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/attention") as visit:
        assert NOTICE in said(visit.page)
        visit.page.get_by_text("Copy link").click()
        link = visit.page.locator("[data-testid=stPopoverBody] code").inner_text()
    with opened(browser, link) as visit:
        words = said(visit.page)
        assert "other rows than when this link was made" not in words
        assert "Not here" not in words


@pytest.mark.soak
def test_the_api_says_that_rows_are_reference_rows(address: str) -> None:
    rows_of, header = fetch(f"{address}/api/v1/rows.json?table=steps")
    assert (rows_of["reference"], rows_of["total"], header) == (True, 9, "true")
    health, _ = fetch(f"{address}/healthz")
    assert (health["ok"], health["reference"], health["file"]) == (True, True, "reference-h200.duckdb")
    assert fetch(f"{address}/api/v1")[0]["reference"] is True


@pytest.mark.soak
def test_an_exported_page_says_that_rows_are_reference_rows(clone: Path, tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pages.export", str(tmp_path / "out"), "training-step"]
    subprocess.run(command, cwd=clone, env=env, check=True, capture_output=True)
    assert "reference-h200.duckdb" in (tmp_path / "out/training-step.html").read_text()


@pytest.mark.soak
def test_the_first_own_cell_replaces_the_reference_rows(browser: Browser, clone: Path, address: str) -> None:
    """A sweep runs beside a page of reference rows: the first own cell takes their place."""
    own, of = clone / "data/results.duckdb", rows.run()
    (clone / "data").chmod(0o755)
    Spool(own).folder.mkdir()
    Spool(own).write_plan(rows.plan(of, ["toy-64 · 128 · train", "toy-64 · 256 · train"], done=0), of.run_id)
    try:
        with opened(browser, f"{address}/training-step?precision=bf16") as visit:
            expect(visit.page.get_by_text("Sweep running: 0 of 2 cells")).to_be_visible()
            assert NOTICE in said(visit.page)
            rows.spooled(own, of, rows.ok(of, rows.asked("toy-64"), slower=2.0))
            expect(visit.page.get_by_text(NOTICE)).to_have_count(0)
            expect(visit.page.locator(".st-key-card-step-by-size .bars .point")).to_have_count(1)
            rows.spooled(own, of, rows.ok(of, rows.asked("toy-64", context=256)))
            expect(visit.page.locator(".st-key-card-step-by-size .bars .point")).to_have_count(2)
    finally:
        shutil.rmtree(Spool(own).folder)
    with opened(browser, f"{address}/training-step") as visit:
        assert NOTICE in said(visit.page), "reference rows are shown again when there are no others"


@pytest.mark.soak
def test_a_damaged_reference_leaves_the_empty_page(browser: Browser, clone: Path, tmp_path: Path) -> None:
    root = tmp_path / "stepscope"
    shutil.copytree(clone, root, ignore=shutil.ignore_patterns("results.duckdb*"))
    parquet = root / "data/reference/h200/steps.parquet"
    parquet.chmod(0o644)
    parquet.write_bytes(parquet.read_bytes()[:100])
    env = {**UNNAMED, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with served(tmp_path / "server.duckdb", root=root, env=env) as address, opened(browser, address) as visit:
        expect(visit.page.get_by_role("heading", level=1)).to_have_text("Nothing has been measured yet")
        warning = visit.page.get_by_test_id("stAlert")
        expect(warning).to_have_count(1)
        expect(warning).to_contain_text("The reference rows that come with Stepscope cannot be opened")
        expect(warning).to_contain_text("steps.parquet cannot be read")
        expect(visit.page.get_by_text("python -m runner sweep", exact=True)).to_be_visible()
