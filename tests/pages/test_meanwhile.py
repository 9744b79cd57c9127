"""A sweep adds rows while a page is drawn: after it has loaded the contents of the file, the page reads more than
those."""

import shutil
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from pages.navigation import OPEN, PAGES
from runner.store.queries import overview
from runner.sweep.storing import ingest_all
from tests.some import some
from tests.synthetic import everything, rows, traces

MAIN = Path(__file__).parents[2] / "pages/main.py"
load_contents = overview.load_contents


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file with one size, one run and one precision."""
    of = rows.run()
    return rows.store(tmp_path_factory.mktemp("before") / "results.duckdb", of, [rows.ok(of, rows.asked("toy-64"))])


@pytest.fixture(scope="module")
def after(before: Path) -> Path:
    """Returns that file with rows of every table, and of other runs, machines, sizes, precisions and backends."""
    path = before.with_name("after.duckdb")
    shutil.copy(before, path)
    everything.store(path)
    for of in (rows.run(host="bench2", device_name="Other CPU"), rows.run(label="later")):
        rows.store(path, of, rows.laptop(of))
    traces.store(path, [traces.profiled(rows.run())])
    ingest_all(path)
    return path


@pytest.mark.parametrize("address", some(PAGES))
def test_every_page_is_drawn_while_rows_are_added(
    address: str, before: Path, after: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = tmp_path / "results.duckdb", list[str]()
    shutil.copy(before, path)

    def load_and_add(file: Path) -> overview.Contents:
        found = load_contents(file)
        if not asked:
            shutil.copy(after, path.with_suffix(".new"))
            path.with_suffix(".new").replace(path)
        asked.append(address)  # again by a page that took so long to draw that it is drawn with the new rows at once
        return found

    monkeypatch.setattr(overview, "load_contents", load_and_add)
    monkeypatch.setenv("STEPSCOPE_DB", str(path))
    app = AppTest.from_file(str(MAIN), default_timeout=120)
    app.session_state[OPEN] = address
    app.run()
    assert asked, "the rows were added while the page was drawn"
    assert not app.exception, [error.message for error in app.exception]
