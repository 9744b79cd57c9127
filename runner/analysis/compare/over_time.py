"""When did the time of a cell change? Its times over runs, and the runs between which the difference is significant.

    for change in find_changes(series.points):
        print(change.after.run_name, change.ratio.ratio)

Two runs that follow each other differ by the rule of every comparison (`analysis.statistics.ratio`): the interval
that decides excludes 1 and their ratio is more than 1% away. Limits: a time that creeps, by less than that from run to
run, shows no change; of a hundred pairs of equal runs one may show one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from runner.analysis.statistics import Ratio, ratio
from runner.results import Estimate, StepResult
from runner.schema import StepCell


@dataclass(frozen=True, kw_only=True)
class RunPoint:
    """The step of one cell in one run, over the rounds of that run."""

    measured: StepResult
    run_name: str
    started_at: datetime
    commit: str | None
    torch: str | None

    @property
    def time(self) -> Estimate:
        """The median step with its interval for the next process (ms)."""
        return self.measured.times["step"].step


@dataclass(frozen=True, kw_only=True)
class CellSeries:
    """One cell on one machine in several runs, the oldest first."""

    machine: str
    points: tuple[RunPoint, ...]

    @property
    def cell(self) -> StepCell:
        return self.points[-1].measured.cell


@dataclass(frozen=True, kw_only=True)
class Change:
    """Two runs that follow each other and differ; the ratio is the time before over the time after."""

    before: RunPoint
    after: RunPoint
    ratio: Ratio

    @property
    def cause(self) -> str:
        """Returns what else differs between the two runs: their commits, their versions of torch."""
        parts = []
        if self.before.commit != self.after.commit:
            parts.append(f"commit {(self.before.commit or 'unknown')[:7]} → {(self.after.commit or 'unknown')[:7]}")
        if self.before.torch != self.after.torch:
            parts.append(f"torch {self.before.torch or 'unknown'} → {self.after.torch or 'unknown'}")
        return ", ".join(parts)


def find_changes(points: Sequence[RunPoint]) -> list[Change]:
    """Returns the changes from each run to the next that are significant, the oldest first."""
    changes = [
        Change(before=before, after=after, ratio=ratio(before.time, after.time)) for before, after in pairwise(points)
    ]
    return [change for change in changes if change.ratio.outcome != "same"]
