"""The changes of a file that a link reports: its number of cells, and the runs that added rows after a moment.

    before = load_counts(path)
    ...
    load_counts(path).cells, load_runs_since(path, before.latest)

Limits: rows of the spool have not reached the file, so they count as newer than any moment.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

from runner.schema import TABLES
from runner.store.database import open_reader

_TABLES = [table.name for table in TABLES.values() if table.key]
_CELLS = " UNION ALL ".join(f"SELECT '{name}' AS name, run_id, ingested_at FROM {name}" for name in _TABLES)


@dataclass(frozen=True, kw_only=True)
class FileCounts:
    """The number of cells by table, without empty tables, and the time when the last of them reached the file (UTC)."""

    cells: dict[str, int]
    latest: datetime | None


def load_counts(path: Path) -> FileCounts:
    """Counts the cells that the file holds now."""
    with open_reader(path) as reader:
        rows = reader.execute(f"SELECT name, count(*), max(ingested_at) FROM ({_CELLS}) GROUP BY name").fetchall()
    counts = {name: count for name, count, _ in rows}
    return FileCounts(
        cells={name: counts[name] for name in _TABLES if name in counts},
        latest=max((latest for _, _, latest in rows if latest), default=None),
    )


def load_runs_since(path: Path, moment: datetime) -> list[UUID]:
    """Returns the runs with cells that reached the file after `moment` (UTC), the earliest first."""
    query = f"SELECT DISTINCT run_id FROM ({_CELLS}) WHERE ingested_at > ? OR ingested_at IS NULL ORDER BY run_id"
    with open_reader(path) as reader:
        return [run_id for (run_id,) in reader.execute(query, [moment]).fetchall()]
