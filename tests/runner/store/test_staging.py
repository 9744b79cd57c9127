"""A column that holds one value in all rows is staged like any other, and lists are no values."""

import json
from pathlib import Path
from typing import Any

import pytest

from runner.schema import TABLES, new_id
from runner.store.shared import take_connection
from runner.store.views import UNREADABLE, drop, load_document, stage

#: A column of each type.
COLUMNS = ("run_id", "message", "round", "cell_seconds", "compiler_fallback", "started_at")
#: What a spool file may hold, which somebody else may have written.
TEXTS = ("", "a", "7", " 7 ", "1.5", "true", "nan", "2026-02-28T23:59:59.9", "a\x00b", "\ud800", "[7]", str(new_id()))
VALUES = (None, *TEXTS, True, 1, 1.0, 2**63, 2**70, float("inf"))


def stage_column(column: str, *values: Any) -> list[str]:
    """Returns the values of a column of staged rows and its type, as text; none where the rows cannot be used."""
    steps = TABLES["steps"]
    rows = [{"cell_id": str(new_id()), column: value} for value in values]
    with take_connection(None) as taken:
        try:
            staged = stage(taken.con, [{"steps": rows}], [steps], present={})
        except UNREADABLE:
            return []
        query = f"SELECT {column}, typeof({column}) FROM temp.main.spool_steps ORDER BY rowid"
        found = taken.con.execute(query).fetchall()
        drop(taken.con, staged)
    return [repr(value) for value in found]  # NaN, too, is equal to itself then


@pytest.mark.parametrize("column", COLUMNS)
def test_a_value_that_all_rows_share_is_staged_as_beside_others(column: str) -> None:
    for value in VALUES:
        beside_none = stage_column(column, value, None)[:1]
        assert stage_column(column, value, value) == beside_none * 2, repr(value)
        assert stage_column(column, value) == beside_none, repr(value)


def test_values_that_only_python_takes_for_equal_stay_apart() -> None:
    for values in ((True, 1), (1, 1.0), (0, False)):
        assert stage_column("message", *values) == stage_column("message", *values, None)[:2]


@pytest.mark.parametrize("value", [[], {}, ["ok"], {"message": 1}])
def test_lists_and_rows_are_no_values(tmp_path: Path, value: object) -> None:
    file = tmp_path / "cell.json"
    file.write_text(json.dumps({"runs": [{"label": "ours"}], "steps": [{"message": None}, {"message": value}]}))
    with pytest.raises(ValueError, match="a list where a value belongs"):
        load_document(file)
