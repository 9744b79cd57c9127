"""The progress of running and interrupted sweeps, for the live parts of the pages.

    for sweep in load_progress(path):
        print(sweep.done, "of", sweep.total, "· now:", sweep.current)

A sweep whose last heartbeat is older than `STALE_S` counts as interrupted.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

from runner.schema import utc_now
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch

#: The age of a heartbeat after which a sweep counts as interrupted (s).
STALE_S = 15.0


@dataclass(frozen=True, kw_only=True)
class SweepProgress:
    """One sweep with unfinished cells. `seconds_left` is its own prediction, scaled by the errors of its earlier
    ones; `argv` is the command that goes on with it."""

    run_id: UUID
    done: int
    total: int
    failed: int
    current: str | None
    waiting: tuple[str, ...]
    seconds_left: float | None
    heartbeat_at: datetime | None
    argv: str | None = None

    def is_alive(self, *, now: datetime | None = None) -> bool:
        """Returns whether the last heartbeat is recent."""
        if self.heartbeat_at is None:
            return False
        return ((now or utc_now()) - self.heartbeat_at).total_seconds() <= STALE_S


_PROGRESS = """
    SELECT run_id, count(*) FILTER (state = 'done') AS done, count(*) AS total,
        count(*) FILTER (state = 'done' AND status NOT IN ('ok', 'skipped')) AS failed,
        any_value(title) FILTER (state = 'running') AS current,
        coalesce(list(title ORDER BY position) FILTER (state = 'waiting'), []) AS waiting,
        CASE WHEN count(*) FILTER (state <> 'done' AND seconds IS NULL) = 0
            THEN sum(seconds) FILTER (state <> 'done')
            ELSE avg(seconds) FILTER (state = 'done') * count(*) FILTER (state <> 'done') END AS seconds_left,
        max(p.heartbeat_at) AS heartbeat_at, any_value(r.argv) AS argv
    FROM plan p LEFT JOIN runs r USING (run_id) GROUP BY run_id
    HAVING count(*) FILTER (state <> 'done') > 0 ORDER BY max(p.heartbeat_at) DESC"""


def load_progress(path: Path) -> list[SweepProgress]:
    """Returns every sweep with unfinished cells, the latest heartbeat first."""
    with open_reader(path) as reader:
        return fetch(reader, _PROGRESS, kind=SweepProgress)
