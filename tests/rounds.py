"""Rounds of samples, and what is left of the noise between cells within rounds, computed from the rounds themselves."""

import itertools
import math
import random
import statistics
from collections.abc import Sequence
from uuid import UUID

from runner.analysis.noise import pool_changes
from runner.analysis.statistics import summarize
from runner.results.times import RoundId, RoundTime, Spread

RUN = UUID(int=1)


def summarize_round(samples: Sequence[float], id: RoundId | None = None) -> RoundTime:
    """Returns the time of one process from its samples in ms."""
    summary = summarize(samples)
    return RoundTime(median_ms=summary.median, low_ms=summary.low, high_ms=summary.high, n=summary.n, id=id)


def rounds_of(logs: Sequence[float], *, first: int = 0, run: UUID = RUN) -> list[RoundTime]:
    """Returns one time a round, each of 20 samples that do not differ."""
    return [RoundTime(median_ms=math.exp(x), n=20, id=(run, first + number)) for number, x in enumerate(logs)]


def measure_rounds(
    generator: random.Random, drift: Sequence[float], std: float, spread: float, *, of_samples: float, known: bool
) -> list[RoundTime]:
    """Returns the rounds of a cell of 1 ms, with 12 samples each; whether it is `known` which rounds they are."""
    own = std * (math.sqrt(spread / generator.gammavariate(spread / 2, 2)) if math.isfinite(spread) else 1)
    medians = [math.exp(x + generator.gauss(0, own)) for x in drift]
    found = ([ms * math.exp(generator.gauss(0, of_samples)) for _ in range(12)] for ms in medians)
    return [summarize_round(samples, (RUN, number) if known else None) for number, samples in enumerate(found)]


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
