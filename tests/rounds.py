"""Rounds of samples, and what is left of the noise between cells within rounds, computed from the rounds themselves."""

import itertools
import math
import statistics
from collections.abc import Sequence

from runner.analysis.noise import pool_changes
from runner.analysis.statistics import summarize
from runner.results.times import RoundId, RoundTime, Spread


def summarize_round(samples: Sequence[float]) -> RoundTime:
    """Returns the time of one process from its samples in ms."""
    summary = summarize(samples)
    return RoundTime(median_ms=summary.median, low_ms=summary.low, high_ms=summary.high, n=summary.n)


def estimate_within_rounds(cells: Sequence[Sequence[RoundTime]]) -> Spread | None:
    """Returns what is left of the noise between the cells of a round, from the rounds of repeated cells of one run and
    kind, in their order; None where no two cells were repeated in the same rounds.

    How ln(median) changes from one round to the next differs between cells by twice this variance, whatever all of them
    share (`pool_changes`)."""
    changes: dict[tuple[RoundId | None, ...], list[float]] = {}
    for rounds in cells:
        for before, after in itertools.pairwise(rounds):
            change = math.log(after.median_ms / before.median_ms)
            changes.setdefault((before.id, after.id), []).append(change)
    known = [found for found in changes.values() if len(found) > 1]
    squares = sum((len(found) - 1) * statistics.variance(found) for found in known)
    return pool_changes(squares, dof=sum(len(found) - 1 for found in known))
