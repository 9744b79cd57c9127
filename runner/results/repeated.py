"""Holds cells that one run measured in several processes, from which noise and drift of a machine are estimated.

    cell.rounds[0].started_at, cell.rounds[0].time.median_ms

Times are those of a whole step on the host's clock. Standard library and the schema only.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from runner.results.times import RoundTime
from runner.schema import Bound


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """One process that measured a cell: when it was started (UTC), and its time of a whole step."""

    cell_id: UUID
    round: int
    started_at: datetime | None
    time: RoundTime


@dataclass(frozen=True, kw_only=True)
class RepeatedCell:
    """A cell of a table that one run measured in several processes, in their order. `bound` is what sets its time: the
    host where it does in any round."""

    table: str
    machine: str
    run_id: UUID
    cell: Any
    bound: Bound | None
    rounds: tuple[Repetition, ...]

    @property
    def cell_id(self) -> UUID:
        return self.rounds[0].cell_id

    @property
    def started(self) -> list[datetime]:
        """When each of its processes was started, as far as that is known."""
        return [one.started_at for one in self.rounds if one.started_at is not None]
