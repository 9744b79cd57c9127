"""Data opens with the columns that readers need most."""

from pathlib import Path

from pages.offline.visit import Visits, nodes
from tests.synthetic import rows


def test_the_key_of_a_cell_comes_first_and_ids_come_last(tmp_path: Path) -> None:
    of = rows.run()
    path = rows.store(tmp_path / "results.duckdb", of, [rows.ok(of, rows.asked())])
    visit = Visits(path).visit("data", {})
    tables = [node.proto for node in nodes(visit.main) if node.type == "dataframe"]
    order = next(list(table.column_order) for table in tables if "tokens_per_s" in table.column_order)
    assert order[:6] == ["mode", "precision", "backend", "attention", "context", "batch"]
    assert order.index("status") < order.index("tokens_per_s") < order.index("run_id")
