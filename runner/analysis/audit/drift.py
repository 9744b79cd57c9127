"""Finds changes of the machine during a run, from the rounds of its canary and the noise of its other cells.

    canary = judge_canary(cells_of_a_run)
    canary.cell, canary.drifts      # [Drift(started_at=…, ended_at=…, before_ms=12.1, after_ms=15.0, bound=None)]

The canary is the cell that the run measured in most processes; of several, the first that was measured. The noise is
that of the run's other repeated cells in the same table that are bound by the same side. Two rounds of the canary
differ where that noise, and what the samples within each process account for, explain their difference in less than 1%
of runs: the level is divided by the number of pairs of rounds (Bonferroni). Limits: with fewer than MIN_ROUNDS rounds,
or without other repeated cells, nothing can be said.
"""

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from runner.analysis.audit.findings import Drift
from runner.analysis.noise import estimate_noise
from runner.analysis.statistics import DECIDED, MIN_DIFFERENCE, estimate, student_quantile
from runner.results import Estimate, RepeatedCell

#: The fewest rounds of a canary.
MIN_ROUNDS = 3
#: The most degrees of freedom for which the noise of the other cells counts: more than in a verdict, because a finding
#: raises a doubt and decides nothing.
MAX_DOF = 4.0


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One round of a canary with a known start (UTC), and its time as one process knows it."""

    at: datetime
    ms: float
    estimate: Estimate


@dataclass(frozen=True, kw_only=True)
class Canary:
    """The canary of a run, and the changes of the machine that it shows, without those that contain another. `drifts`
    is None where the run cannot separate them from noise."""

    cell: RepeatedCell
    drifts: Sequence[Drift] | None


def find_drifts(cells: Sequence[RepeatedCell]) -> dict[UUID, Sequence[Drift]]:
    """Returns the changes of the machine that the canary of each run shows, by run."""
    runs: dict[UUID, list[RepeatedCell]] = {}
    for cell in cells:
        runs.setdefault(cell.run_id, []).append(cell)
    found = {run_id: judge_canary(of_run) for run_id, of_run in runs.items()}
    return {run_id: canary.drifts for run_id, canary in found.items() if canary and canary.drifts}


def judge_canary(cells: Sequence[RepeatedCell]) -> Canary | None:
    """Returns the canary among the repeated cells of one run, or None where there is none with known starts."""
    dated = [cell for cell in cells if len(cell.started) == len(cell.rounds) > 1]
    if not dated:
        return None
    cell = min(dated, key=lambda cell: (-len(cell.rounds), cell.started[0]))
    others = [one for one in cells if one is not cell and (one.table, one.bound) == (cell.table, cell.bound)]
    noise = estimate_noise([(len(one.rounds), _compute_variance(one)) for one in others], max_dof=MAX_DOF)
    if noise is None or len(cell.rounds) < MIN_ROUNDS:
        return Canary(cell=cell, drifts=None)
    times = [one.time for one in cell.rounds]
    moments = [
        Moment(at=at, ms=time.median_ms, estimate=estimate([time], noise))
        for at, time in zip(cell.started, times, strict=True)
    ]
    pairs = list(itertools.combinations(sorted(moments, key=lambda one: one.at), 2))
    level = 1 - (1 - DECIDED) / len(pairs)
    changed = [pair for pair in pairs if _differ(*pair, level=level)]
    inner = [pair for pair in changed if not any(_holds(pair, other) for other in changed if other is not pair)]
    drifts = [
        Drift(started_at=first.at, ended_at=last.at, before_ms=first.ms, after_ms=last.ms, bound=cell.bound)
        for first, last in inner
    ]
    return Canary(cell=cell, drifts=drifts)


def _differ(first: Moment, last: Moment, *, level: float) -> bool:
    a, b = first.estimate, last.estimate
    if a.std is None or b.std is None:
        return False
    change = abs(math.log(b.ms / a.ms))
    error = math.hypot(a.std, b.std)
    return change > max(math.log1p(MIN_DIFFERENCE), student_quantile(level, min(a.dof, b.dof)) * error)


def _holds(outer: tuple[Moment, Moment], inner: tuple[Moment, Moment]) -> bool:
    """Returns whether the inner change lies within the outer one."""
    return outer[0].at <= inner[0].at and inner[1].at <= outer[1].at


def _compute_variance(cell: RepeatedCell) -> float:
    return statistics.variance(math.log(one.time.median_ms) for one in cell.rounds)
