"""Whole tables, a page at a time: what the Data page shows and offers for download.

    rows = page(path, "timings", Selection(mode="train"), Window(limit=500, offset=0))

Never reads more rows than asked for; at most `MOST_ROWS` at once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.schema import TABLES
from runner.store.database import open_reader
from runner.store.queries.selection import Selection

#: The most rows that one question may bring back.
MOST_ROWS = 100_000


@dataclass(frozen=True, kw_only=True)
class Window:
    """Which rows of a table: those with one of `statuses` (all, if none is named), `limit` of them from `offset` on."""

    statuses: tuple[str, ...] = ()
    limit: int = 500
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class TablePage:
    """Some rows of a table, in the schema's column order, and how many there are in all."""

    rows: list[tuple[Any, ...]]
    total: int


def page(path: Path, table: str, selection: Selection, window: Window) -> TablePage:
    """Rows of `table` that belong to the selected cells, newest first; `runs` follow the machine and the run only."""
    condition, parameters = _condition(table, selection, window)
    names = ", ".join(f"t.{column.name}" for column in TABLES[table].columns)
    order = ", ".join(f"t.{name}{' DESC' if index == 0 else ''}" for index, name in enumerate(TABLES[table].unique))
    limit = min(window.limit, MOST_ROWS)
    with open_reader(path) as reader:
        total = reader.execute(f"SELECT count(*) FROM {table} t WHERE {condition}", parameters).fetchone()
        rows = reader.execute(
            f"SELECT {names} FROM {table} t WHERE {condition} ORDER BY {order} "
            f"LIMIT {limit} OFFSET {int(window.offset)}",
            parameters,
        ).fetchall()
    assert total is not None
    return TablePage(rows=rows, total=total[0])


def _condition(table: str, selection: Selection, window: Window) -> tuple[str, list[Any]]:
    names = {column.name for column in TABLES[table].columns}
    where, parameters = selection.where()
    if "cell_id" in names:
        cells = f"SELECT s.cell_id FROM steps s LEFT JOIN runs r USING (run_id) WHERE {where}"
        condition = f"t.cell_id IN ({cells})"
    else:
        of_run = Selection(machine=selection.machine, run=selection.run)
        where, parameters = of_run.where()
        where = where.replace("s.run_id", "r.run_id")
        condition = f"t.run_id IN (SELECT r.run_id FROM runs r WHERE {where})"
    if window.statuses and "status" in names:
        condition += " AND list_contains(?, t.status)"
        parameters = [*parameters, list(window.statuses)]
    return condition, parameters


def sizes(path: Path) -> dict[str, int]:
    """How many rows each table holds."""
    counts = ", ".join(f"(SELECT count(*) FROM {name})" for name in TABLES)
    with open_reader(path) as reader:
        row = reader.execute(f"SELECT {counts}").fetchone()
    assert row is not None
    return dict(zip(TABLES, row, strict=True))
