"""Pages over a file with published tables, alone or with measured rows: published rows never count as measured."""

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from pages.api.routes import ROUTES
from pages.navigation import NAVIGATION
from pages.offline.visit import Visits, nodes
from runner.importers.files import import_file
from tests.some import some
from tests.synthetic import rows

REFERENCE = Path(__file__).parents[2] / "data/reference"
ADDRESSES = [page.address for pages in NAVIGATION.values() for page in pages]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = tmp_path_factory.mktemp("published") / "results.duckdb"
    import_file(REFERENCE, db=db)
    return db


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = tmp_path_factory.mktemp("both") / "results.duckdb"
    rows.store(db, of := rows.run(), rows.laptop(of))
    import_file(REFERENCE, db=db)
    return db


def visit_words(file: Path, address: str, chosen: dict[str, list[str]]) -> str:
    """Returns all words of a page."""
    visit = Visits(file).visit(address, chosen)
    return " ".join(str(getattr(node, "value", "")) for node in nodes(visit.main))


@pytest.mark.parametrize("address", some(ADDRESSES))
def test_a_page_over_published_tables_alone(published: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("STEPSCOPE_DB", str(published))
    assert visit_words(published, address, {})


@pytest.mark.soak
def test_overview_counts_what_was_measured(both: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_DB", str(both))
    words = visit_words(both, "overview", {})
    assert "from 1 run on 1 machine" in words
    assert "A10" not in words
    assert "RTX PRO" not in words


def test_the_data_page_shows_published_rows_whatever_the_filters(both: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_DB", str(both))
    assert "31 of 31 rows match" in visit_words(both, "data", {"table": ["published_tables"], "context": ["64"]})
    assert "1 of 32 rows match" in visit_words(both, "data", {"table": ["runs"]})


def test_the_api_returns_published_rows_and_refuses_filters(both: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_DB", str(both))
    with TestClient(Starlette(routes=ROUTES)) as client:
        found = client.get("/api/v1/rows.json?table=published_rows&status=oom").json()
        assert found["total"] == 9
        refused = client.get("/api/v1/rows.json?table=published_rows&mode=train")
        assert (refused.status_code, "have no mode" in refused.json()["error"]["got"]) == (400, True)
