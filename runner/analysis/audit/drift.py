"""Did the machine change while a run was measured? By the rounds of the run's canary, against the noise of its others.

    find_drifts(rounds)      ->  [Drift(started_at=…, ended_at=…, before_ms=12.1, after_ms=15.0, bound=None)]

The canary is the cell with the most rounds in its run, at least MIN_ROUNDS; of several, the first that was measured.
The noise is that of the run's other repeated cells that are bound by the same. Two rounds of the canary differ where
that noise, and what the samples within each process account for, explain their difference in less than 1% of runs: the
level is divided by the number of pairs of rounds (Bonferroni). Limits: without other repeated cells nothing is found.
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from runner.analysis.audit.findings import Drift
from runner.analysis.statistics import DECIDED, MIN_DIFFERENCE, estimate, estimate_noise, student_quantile
from runner.results.times import Estimate, RoundTime
from runner.schema import Bound

#: The rounds that a canary has at least.
MIN_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class RepeatedRound:
    """One round of a cell that its run measured several times: when it started, and its time of the whole step."""

    run_id: UUID
    cell_key: str
    bound: Bound | None
    started_at: datetime
    time: RoundTime


def find_drifts(rounds: Sequence[RepeatedRound]) -> dict[UUID, list[Drift]]:
    """Returns the changes that the canary of each run shows, by run; those within which no other lies."""
    runs: dict[UUID, dict[str, list[RepeatedRound]]] = {}
    for one in sorted(rounds, key=lambda one: one.started_at):
        runs.setdefault(one.run_id, {}).setdefault(one.cell_key, []).append(one)
    found = {run_id: _find_in_run(cells) for run_id, cells in runs.items()}
    return {run_id: drifts for run_id, drifts in found.items() if drifts}


def _find_in_run(cells: Mapping[str, Sequence[RepeatedRound]]) -> list[Drift]:
    """Returns the changes that the canary shows. The rounds of each cell are in the order of time."""
    canary = max(cells.values(), key=len)  # the first of them, because cells are in the order of their first round
    if len(canary) < MIN_ROUNDS:
        return []
    others = [found for found in cells.values() if found is not canary and _bound(found) == _bound(canary)]
    noise = estimate_noise([(len(found), _variance(found)) for found in others if len(found) > 1])
    if noise is None:
        return []
    pairs = list(itertools.combinations([(one, estimate([one.time], noise)) for one in canary], 2))
    level = 1 - (1 - DECIDED) / len(pairs)
    changed = [(first, last) for (first, a), (last, b) in pairs if _differ(a, b, level)]
    return [_drift(first, last, _bound(canary)) for first, last in changed if not _holds_another(first, last, changed)]


def _differ(a: Estimate, b: Estimate, level: float) -> bool:
    if a.std is None or b.std is None:
        return False
    change = abs(math.log(b.ms / a.ms))
    error = math.hypot(a.std, b.std)
    return change > max(math.log1p(MIN_DIFFERENCE), student_quantile(level, min(a.dof, b.dof)) * error)


def _holds_another(
    first: RepeatedRound, last: RepeatedRound, changed: Sequence[tuple[RepeatedRound, RepeatedRound]]
) -> bool:
    """Whether another change lies between these two rounds."""
    return any(
        (begin, end) != (first, last) and first.started_at <= begin.started_at and end.started_at <= last.started_at
        for begin, end in changed
    )


def _drift(first: RepeatedRound, last: RepeatedRound, bound: Bound | None) -> Drift:
    return Drift(
        started_at=first.started_at,
        ended_at=last.started_at,
        before_ms=first.time.median_ms,
        after_ms=last.time.median_ms,
        bound=bound,
    )


def _variance(rounds: Sequence[RepeatedRound]) -> float:
    return statistics.variance(math.log(one.time.median_ms) for one in rounds)


def _bound(rounds: Sequence[RepeatedRound]) -> Bound | None:
    """Returns what bounds a cell: the host where it does in any round."""
    bounds = {one.bound for one in rounds}
    return "host" if "host" in bounds else "device" if "device" in bounds else None
