"""Pages, routes, exports and commands for a file with a damaged table or with rows that break the contract."""

from pathlib import Path

import duckdb
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from pages.api.routes import ROUTES
from pages.export import main as export
from pages.offline.visit import Visits, nodes
from tests.command import run
from tests.runner.store.test_damage import damage
from tests.synthetic import rows


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = rows.store(tmp_path / "results.duckdb", of := rows.run(), rows.laptop(of))
    monkeypatch.setenv("STEPSCOPE_DB", str(found))
    return found


def visit_words(file: Path, address: str) -> str:
    """Returns all words of a page."""
    visit = Visits(file).visit(address, {})
    return " ".join(str(getattr(node, "value", "")) for node in nodes(visit.main))


@pytest.mark.soak
def test_pages_without_the_damaged_table_work_and_the_others_name_it(
    file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    damage(file, "samples")
    words = visit_words(file, "overview")
    assert "The table `samples` of `results.duckdb` is damaged" in words
    assert "Unknown. The table samples of" not in words, "no headline needs the samples"
    assert "measured cells** from 1 run" in words
    assert "timings (" in visit_words(file, "data")
    assert export(["training-step", "--db", str(file), "--out", str(tmp_path / "out")]) == 2
    refused = capsys.readouterr().err
    assert "needs a table that cannot be read. The table samples of" in refused
    assert "backup" in refused
    with TestClient(Starlette(routes=ROUTES), raise_server_exceptions=False) as client:
        answers = {table: client.get(f"/api/v1/rows.json?table={table}") for table in ("samples", "steps")}
        assert answers["steps"].status_code == 200
        assert answers["samples"].status_code == 503
        assert "The table samples of" in answers["samples"].json()["error"]["got"]
        assert "backup" in answers["samples"].json()["error"]["do"]
        assert client.get("/healthz").status_code == 503
    done = run("show", db=file)
    assert (done.returncode, "Traceback" in done.stdout) == (2, False)
    assert "The table samples of" in done.stdout
    assert run("list", "runs", db=file).returncode == 0


@pytest.mark.soak
def test_rows_that_break_the_contract_are_counted_and_the_others_shown(file: Path) -> None:
    with duckdb.connect(str(file)) as con:
        con.execute("UPDATE steps SET status = 'banana' WHERE context = 64 AND precision = 'bf16'")
        con.execute("UPDATE steps SET d_model = NULL WHERE context = 64 AND precision = 'fp32'")
        con.execute("UPDATE timings SET median_ms = 'nan' WHERE phase = 'loss'")
        (timings,) = con.execute("SELECT count(*) FROM timings WHERE phase = 'loss'").fetchone() or (0,)
    for address in ("training-step", "overview", "data"):
        assert f"6 of `steps`, {timings} of `timings`" in visit_words(file, address)
    done = run("show", db=file)
    assert (done.returncode, f"6 of steps, {timings} of timings" in done.stdout) == (0, True), done.stdout
    with TestClient(Starlette(routes=ROUTES)) as client:
        assert client.get("/healthz").json()["rows_left_out"] == {"steps": 6, "timings": timings}


@pytest.mark.soak
def test_a_broken_file_of_a_folder_is_named_and_the_others_are_shown(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    folder.mkdir()
    file.rename(folder / "node0.duckdb")
    rows.store(folder / "node1.duckdb", of := rows.run(host="bench2"), rows.laptop(of)[:3])
    (folder / "node2.duckdb").write_bytes(b"nothing")
    words = visit_words(folder, "overview")
    assert "`node2.duckdb` is left out, because it cannot be read" in words
    assert "measured cells** from 2 runs" in words
    assert "steps (" in visit_words(folder, "data")
