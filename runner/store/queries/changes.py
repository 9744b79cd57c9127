"""How many cells the file holds of each kind, and which runs brought rows after a given moment: what links compare.

    before = held(path)
    ...
    load_counts(path).cells, runs_since(path, before.latest)

Limits: rows that still wait in the spool have not reached the file, so that they count as newer than any moment.
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
    """The number of cells by table, those without any left out, and when the last of them reached the file (UTC)."""

    cells: dict[str, int]
    latest: datetime | None


def load_counts(path: Path) -> FileCounts:
    """What the file holds now."""
    with open_reader(path) as reader:
        rows = reader.execute(f"SELECT name, count(*), max(ingested_at) FROM ({_CELLS}) GROUP BY name").fetchall()
    counts = {name: count for name, count, _ in rows}
    return FileCounts(
        cells={name: counts[name] for name in _TABLES if name in counts},
        latest=max((latest for _, _, latest in rows if latest), default=None),
    )


def runs_since(path: Path, moment: datetime) -> list[UUID]:
    """The runs of which cells reached the file after `moment` (UTC), the earliest first."""
    query = f"SELECT DISTINCT run_id FROM ({_CELLS}) WHERE ingested_at > ? OR ingested_at IS NULL ORDER BY run_id"
    with open_reader(path) as reader:
        return [run_id for (run_id,) in reader.execute(query, [moment]).fetchall()]
