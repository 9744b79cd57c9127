"""A page reads through one connection, and keeps the file open only while it reads."""

from pathlib import Path
from unittest.mock import patch

import duckdb
import pytest

from pages.offline.visit import Visits
from pages.ui import permalink
from runner.store.database import ingest
from tests.synthetic import rows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return rows.store(tmp_path / "results.duckdb", of := rows.run(), rows.laptop(of))


def test_a_page_of_many_queries_opens_one_connection(file: Path) -> None:
    """A connection for each query took a fifth of a page's time."""
    with patch.object(duckdb, "connect", side_effect=duckdb.connect) as connect:
        visit = Visits(file).visit("mixed-precision", {})
    assert "card-precision-speedup" in visit.rows
    assert connect.call_count <= 2, "one for the page, and one for the page with its tables"


def test_a_sweep_can_store_rows_while_a_page_is_drawn(file: Path) -> None:
    of, brought = rows.run(), list[int]()

    def bring_rows(_: object) -> None:
        rows.spooled(file, of, rows.ok(of, rows.asked(context=512)))
        brought.append(ingest(file, patience_s=0.0))

    with patch.object(permalink, "draw_page_link", side_effect=bring_rows):
        Visits(file).visit("mixed-precision", {})
    assert brought
    assert set(brought) == {1}
