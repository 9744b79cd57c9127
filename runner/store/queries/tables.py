"""The number of rows of each table, and the part of a table that `runner.store.queries.rows` reads.

count_rows(path)["timings"]
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.schema import TABLES
from runner.store.database import open_reader

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


def count_rows(path: Path) -> dict[str, int]:
    """Counts the rows of each table; 0 for a table that cannot be read."""
    counts = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in TABLES)
    with open_reader(path, damaged="empty") as reader:
        found = dict(reader.execute(counts).fetchall())
    return {name: found[name] for name in TABLES}
