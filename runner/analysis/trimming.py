"""The mean of many rounds without the outermost of them, and its standard error.

    trimmed_mean(logs), standard_error(winsorize(logs))

A process that a neighbor slows down for all its seconds has a time of its own, and one such round in ten makes the
interval of a plain mean several times as wide. So a fifth of the rounds is left out at each end (Yuen 1974, "The
two-sample trimmed t for unequal population variances"; for pairs Wilcox 2012, "Introduction to Robust Estimation and
Hypothesis Testing", section 5.9). Fewer than TRIMMED_ROUNDS are all kept: there the trimmed mean is the plain one, and
the standard error the usual one.

Standard library and `results` only.
"""

import math
import statistics
from collections.abc import Sequence

from runner.results.times import Spread

#: From so many rounds on, TRIMMED_SHARE of them is left out at each end. Fewer have none to spare: with six, of which
#: one is left out at each end, Student's t rises from 2.6 to 3.2.
TRIMMED_ROUNDS, TRIMMED_SHARE = 8, 0.2


def count_trimmed(rounds: int) -> int:
    """Returns how many of so many rounds are left out at each end."""
    return int(TRIMMED_SHARE * rounds) if rounds >= TRIMMED_ROUNDS else 0


def trimmed_mean(values: Sequence[float]) -> float:
    """Returns the mean of the values without the outermost. Raises StatisticsError without values."""
    return statistics.fmean(_trim(values))


def winsorize(values: Sequence[float]) -> list[float]:
    """Returns the values in their order, those that the mean leaves out replaced by the nearest that it keeps."""
    kept = _trim(values)
    return [min(max(value, kept[0]), kept[-1]) for value in values]


def standard_error(winsorized: Sequence[float]) -> Spread:
    """Returns the standard error of the trimmed mean of at least two rounds, from their winsorized values or, for a
    difference of two trimmed means over the same rounds, from the differences of those."""
    kept = len(winsorized) - 2 * count_trimmed(len(winsorized))
    mean = statistics.fmean(winsorized)
    squares = sum((value - mean) ** 2 for value in winsorized)
    return Spread(std=math.sqrt(squares / (kept * (kept - 1))), dof=kept - 1)


def _trim(values: Sequence[float]) -> Sequence[float]:
    out = count_trimmed(len(values))
    return sorted(values)[out : len(values) - out]
