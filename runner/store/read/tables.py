"""Pages through whole tables with filters and search; the SQL of the rows that count.

page = load_table(path, "steps", Window())
"""

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from runner.errors import UsageError
from runner.schema import TABLES, Table
from runner.store.database import open_reader
from runner.store.read.selection import FILTERS, MACHINE, REPEATABLE, Selection, column_of, write_conditions

#: The most rows that one query returns.
MAX_ROWS = 100_000


@dataclass(frozen=True, kw_only=True)
class Window:
    """A part of a table: of the rows with one of `statuses`, or of all rows without any, `limit` rows from `offset`."""

    statuses: tuple[str, ...] = ()
    limit: int = 500
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class TablePage:
    """Some rows of a table, in the schema's order of columns, and the total number of rows."""

    rows: list[tuple[Any, ...]]
    total: int


_CELLS = [table for table in TABLES.values() if table.key]


def load_rows(path: Path, name: str, selection: Selection, window: Window) -> TablePage:
    """Returns the wanted rows of a table. Raises UsageError for a filter that the table cannot have."""
    table = TABLES[name]
    given = {**{one: getattr(selection, one) for one in ("run", "machine", *FILTERS)}, "status": window.statuses}
    known = list_filters(table)
    if refused := next((one for one, value in given.items() if value and one not in known), None):
        expected = f"for this table only {', '.join(known) or 'none'}"
        raise UsageError(f"Rows of {name} have no {refused}.", expected=expected, do=f"Leave {refused} out.")
    condition, parameters = _write_condition(table, selection)
    if window.statuses:
        condition, parameters = f"{condition} AND list_contains(?, status)", [*parameters, list(window.statuses)]
    columns = ", ".join(column.name for column in table.columns)
    order = ", ".join(f"{column}{' DESC' if index == 0 else ''}" for index, column in enumerate(table.unique))
    limit = f"LIMIT {min(window.limit, MAX_ROWS)} OFFSET {window.offset}"
    with open_reader(path) as reader:
        (total,) = reader.execute(f"SELECT count(*) FROM {name} WHERE {condition}", parameters).fetchone() or (0,)
        query = f"SELECT {columns} FROM {name} WHERE {condition} ORDER BY {order} {limit}"
        return TablePage(rows=reader.execute(query, parameters).fetchall(), total=total)


def load_page(path: Path, name: str, selection: Selection, window: Window) -> TablePage:
    """Returns the wanted rows of a table. Filters that the table cannot have are ignored."""
    left_out = {*FILTERS, "machine", "run"} - {*list_filters(TABLES[name])}
    fitting: dict[str, Any] = {item: () if item in REPEATABLE else None for item in left_out}
    return load_rows(path, name, replace(selection, **fitting), window)


def list_filters(table: Table) -> tuple[str, ...]:
    """Returns the filters that narrow this table, by their names in a URL."""
    statuses = ["status"] if "status" in table.names else []
    if table.published:
        return tuple(statuses)
    narrowing = [name for name in FILTERS if _belongs_to_cells(table) or column_of(name) in table.names]
    return ("machine", "run", *narrowing, *statuses)


def _write_condition(table: Table, selection: Selection) -> tuple[str, list[Any]]:
    found = [
        (f"run_id IN (SELECT r.run_id FROM runs r WHERE {MACHINE} = ?)", selection.machine),
        ("run_id = ?", selection.run),
    ]
    known, asked = [(text, value) for text, value in found if value is not None], selection.asked()
    filters, values = write_conditions(asked)
    condition = " AND ".join([*(text for text, _ in known), *filters]) or "true"
    parameters = [*(value for _, value in known), *values]
    if not asked or not _belongs_to_cells(table):
        return condition, parameters
    able = [cells for cells in _CELLS if all(column in cells.names for column, _ in asked)]
    queries = " UNION ALL ".join(f"SELECT cell_id FROM {cells.name} WHERE {condition}" for cells in able)
    return f"cell_id IN ({queries})", parameters * len(able)


def _belongs_to_cells(table: Table) -> bool:
    """Returns whether the table's rows belong to cells of other tables."""
    return not table.key and "cell_id" in table.names


def load_health(path: Path) -> tuple[int, datetime | None]:
    """Returns the number of rows in the file, and the time when the latest of them reached it (UTC). Raises StoreError
    where the file cannot be read."""
    counts = " + ".join(f"(SELECT count(*) FROM {name})" for name in TABLES)
    times = " UNION ALL ".join(
        f"SELECT max(coalesce(ingested_at, started_at)) AS at_time FROM {t.name}" for t in _CELLS
    )
    query = f"SELECT {counts}, (SELECT max(at_time) FROM ({times}))"
    with open_reader(path) as reader:
        rows, newest_at = reader.execute(query).fetchone() or (0, None)
    return rows, newest_at


def count_rows(path: Path) -> dict[str, int]:
    """Counts the rows of each table; 0 for a table that cannot be read."""
    counts = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in TABLES)
    with open_reader(path, damaged="empty") as reader:
        found = dict(reader.execute(counts).fetchall())
    return {name: found[name] for name in TABLES}
