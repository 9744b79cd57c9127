"""The published tables of a file.

    for table in load_published(path):
        print(table.title, table.machine, len(table.rows))

Of a file that was imported again with another mapping, the latest import counts.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from runner.errors import DatabaseMissing
from runner.results.published import PublishedFigure, PublishedRow, PublishedTable
from runner.schema import PublishedFigureRow, PublishedLineRow, PublishedSetting, PublishedTableRow
from runner.store.database import open_reader
from runner.store.read.selection import Selection, fetch_rows

_COUNTED = """
    SELECT run_id FROM runs WHERE source = 'published'
    QUALIFY row_number() OVER (PARTITION BY sweep_key ORDER BY started_at DESC, run_id DESC) = 1"""
P = TypeVar("P", PublishedTable, PublishedRow, PublishedFigure, PublishedSetting)


def load_published(path: Path, of: Selection | None = None, *, run: UUID | None = None) -> list[PublishedTable]:
    """Returns the published tables of a file, or of one run of it, by the names of their files, as they were read. No
    filter applies to what others published."""
    runs = f"SELECT '{run}'::UUID AS run_id" if run else _COUNTED
    with open_reader(path) as reader:
        tables = fetch_rows(reader, PublishedTableRow, _narrow("published_tables", runs, "file, run_id, position"))
        rows = fetch_rows(reader, PublishedLineRow, _narrow("published_rows", runs, "run_id, table_id, position"))
        figures = fetch_rows(reader, PublishedFigureRow, _narrow("published_figures", runs, "run_id, row_id, position"))
    of_rows = defaultdict[tuple[UUID, UUID], list[PublishedFigure]](list)
    for figure in figures:
        of_rows[figure.run_id, figure.row_id].append(_build(PublishedFigure, figure))
    of_tables = defaultdict[tuple[UUID, UUID], list[PublishedRow]](list)
    for row in rows:
        setting, of_row = _build(PublishedSetting, row), tuple(of_rows[row.run_id, row.row_id])
        of_tables[row.run_id, row.table_id].append(_build(PublishedRow, row, setting=setting, figures=of_row))
    return [_build(PublishedTable, one, rows=tuple(of_tables[one.run_id, one.table_id])) for one in tables]


def is_counted(path: Path, run_id: UUID) -> bool | None:
    """Returns whether this import is the one that counts of its content; None where it is not in the file."""
    try:
        with open_reader(path) as reader:
            known = reader.execute(f"SELECT run_id IN ({_COUNTED}) FROM runs WHERE run_id = ?", [run_id]).fetchone()
    except DatabaseMissing:
        return None
    return known[0] if known else None


def _narrow(table: str, runs: str, order: str) -> str:
    return f"{table} SEMI JOIN ({runs}) counted USING (run_id) ORDER BY {order}"


def _build(kind: type[P], row: object, **more: Any) -> P:
    """Returns an object with the values of the columns that it shares with a stored row, JSON as collections."""
    values: dict[str, Any] = {item.name: getattr(row, item.name) for item in fields(kind) if item.name not in more}
    for name in values.keys() & _COLLECTIONS.keys():
        values[name] = _load(values[name], _COLLECTIONS[name])
    return kind(**values, **more)


#: The columns that hold JSON.
_COLLECTIONS: Mapping[str, type] = {
    **dict.fromkeys(("provenance", "meanings", "stated", "variant"), dict),
    "remarks": list,
}


def _load(text: str, kind: type) -> Any:
    """Returns a JSON object or list; an empty one for anything else, which only another program can have written."""
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError):
        loaded = None
    if not isinstance(loaded, kind):
        loaded = kind()
    if isinstance(loaded, list):
        return tuple(map(str, loaded))
    return {name: value for name, value in loaded.items() if isinstance(value, str | int)}
