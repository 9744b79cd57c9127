"""Explains the times of one published row by their spreads: the means that one cold step explains, whether backward is
the difference of two loops, and how many times as long as forward it takes.

    find_cold({"forward": Time(34.2, 34.4)}, steps=10, is_sample=True, unwarmed=…)["forward"].steady     # 23.3 ms

One step that exceeds the n - 1 others by e adds e / n to the mean; the standard deviation is e √(n - 1) / n of the
population and e / √n of the sample. So the others took mean - std / √(n - 1), or mean - std / √n: with ten steps a
third of the standard deviation, or 1 / 3.16, less than the mean.

A backward pass that is timed within a step has a spread of its own, smaller than the step's. The difference of two
means has the root of the squares of both spreads, which is larger than either.
"""

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from runner.results.published import Quantity

#: A mean that one cold step would have raised by this share of it, and by this where no warm-up ran before.
RAISED, RAISED_UNWARMED = 0.10, 0.03
#: Beyond so many steps, one cold step no longer explains a small excess.
FEW_STEPS = 20
#: Six printed digits leave the difference and the root of squares this exact.
EXACT = 1e-4


class Time(NamedTuple):
    """A mean and its standard deviation, in ms."""

    mean: float
    std: float | None


class Cold(NamedTuple):
    """A mean that one cold step explains, its spread, and what the other steps took (ms)."""

    mean: float
    std: float
    steady: float


Times = Mapping[Quantity, Time]
ColdTimes = Mapping[Quantity, Cold]
_NONE: ColdTimes = {}


def find_cold(times: Times, *, steps: int, is_sample: bool, unwarmed: Collection[Quantity]) -> ColdTimes:
    """Returns the means whose spread one cold step explains, and which it moves. `unwarmed` are the passes that did not
    run before the first step; `is_sample` says whether a standard deviation is that of a sample or of the
    population."""
    if steps < 2:
        return _NONE
    root, found = math.sqrt(steps if is_sample else steps - 1), {}
    for quantity, (mean, std) in times.items():
        if std and std > 0 and mean > 0:
            raised = std / root
            least = RAISED_UNWARMED if steps <= FEW_STEPS and quantity in unwarmed else RAISED
            if raised < mean and raised / mean >= least:
                found[quantity] = Cold(mean, std, mean - raised)
    return found or _NONE


def compute_misfit(times: Times) -> float:
    """Returns how far backward is from the difference of two loops, and its spread from the root of the squares of
    theirs, as a share; infinite where one is missing."""
    both, forward, backward = times.get("forward_backward"), times.get("forward"), times.get("backward")
    if not both or not forward or not backward or not both.mean:
        return math.inf
    if not forward.std or not backward.std or not both.std:
        return math.inf
    difference = abs(both.mean - forward.mean - backward.mean) / abs(both.mean)
    return max(difference, abs(math.hypot(forward.std, both.std) / backward.std - 1))


def compute_ratio(times: Times, cold: ColdTimes, *, misfit: float) -> float | None:
    """Returns backward over forward, both without the cold step that explains them, unless backward is a difference;
    None where one of them is missing or forward is nothing."""
    forward, backward = times.get("forward"), times.get("backward")
    if not forward or not backward or forward.mean <= 0:
        return None
    if not cold or backward.mean <= 0 or misfit <= EXACT:
        return backward.mean / forward.mean
    first, second = cold.get("forward"), cold.get("backward")
    return (second.steady if second else backward.mean) / (first.steady if first else forward.mean)
