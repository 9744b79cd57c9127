"""The tables of a file: how many rows each holds, and what a part of one is (`runner.store.queries.rows` reads it).

sizes(path)["timings"]
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.schema import TABLES
from runner.store.database import open_reader

#: The most rows that one question may bring back.
MAX_ROWS = 100_000


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


def sizes(path: Path) -> dict[str, int]:
    """How many rows each table holds; none, where it cannot be read."""
    counts = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in TABLES)
    with open_reader(path, damaged="empty") as reader:
        found = dict(reader.execute(counts).fetchall())
    return {name: found[name] for name in TABLES}
