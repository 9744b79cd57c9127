"""What samples say: their summary, and how certain a ratio of two medians is.

    >>> summarize([12.1, 12.0, 12.4, 11.9, 12.2, 12.0]).median
    12.05
    >>> ratio_interval([[2.0] * 10], [[1.0] * 10]).ratio
    2.0

Nothing here assumes a distribution: step times are skewed and have outliers. Intervals are for the median of what this
sweep would have measured; they know nothing of another machine or another day. Samples are taken as independent; slow
drift makes every interval too narrow, and rounds are there to show it.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from runner.errors import UsageError

#: Below this many samples even the interval from smallest to largest covers the median in less than 95 % of cases.
LEAST_SAMPLES = 6
RESAMPLES = 2_000
SEED = 20_250_401


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Samples summed up, in their own unit. `std` is the sample standard deviation (n - 1), None for one sample;
    `low` and `high` enclose the median with at least 95 % confidence, None for fewer than 6 samples."""

    n: int
    median: float
    mean: float
    std: float | None
    low: float | None
    high: float | None


def summarize(samples: Sequence[float]) -> Summary:
    """Median, mean, spread and the median's interval. Raises UsageError without samples."""
    if not samples:
        raise UsageError("There are no samples to sum up.", expected="at least one")
    low, high = median_interval(samples) or (None, None)
    return Summary(
        n=len(samples),
        median=statistics.median(samples),
        mean=statistics.fmean(samples),
        std=statistics.stdev(samples) if len(samples) > 1 else None,
        low=low,
        high=high,
    )


def median_interval(samples: Sequence[float]) -> tuple[float, float] | None:
    """The narrowest pair of samples, equally far from both ends, that encloses the median with 95 % confidence or more.

    How many of n independent samples lie below the median is Binomial(n, 1/2), whatever their distribution, so the k-th
    smallest and k-th largest enclose it with probability 1 - 2 P(Binomial(n, 1/2) < k) (David and Nagaraja 2003,
    "Order Statistics", section 7.1). Being whole ranks, they cover more than 95 %: 96.9 % at n = 6 (smallest to
    largest), 97.9 % at 10, 95.9 % at 20, 96.5 % at 100. None for n < 6, where no pair reaches 95 %.
    """
    rank = _interval_rank(len(samples))
    if rank == 0:
        return None
    ordered = sorted(samples)
    return ordered[rank - 1], ordered[-rank]


@lru_cache(maxsize=1024)
def _interval_rank(n: int) -> int:
    """The largest k with 2 P(Binomial(n, 1/2) < k) <= 5 %, in exact integers; 0 if there is none."""
    rank, below = 0, 1
    while 40 * below <= 2**n:
        rank += 1
        below += math.comb(n, rank)
    return rank


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio of two medians with its 95 % interval, which is None where either side has fewer than 6 samples."""

    ratio: float
    low: float | None
    high: float | None


def ratio_interval(
    a_rounds: Sequence[Sequence[float]],
    b_rounds: Sequence[Sequence[float]],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Ratio:
    """median(a) / median(b), samples of all rounds pooled, with a 95 % percentile interval by bootstrap.

    Each resample draws rounds with replacement, then as many samples as those hold from what they hold (Davison and
    Hinkley 1997, "Bootstrap Methods and their Application", section 3.8). Where both sides have the same number of
    rounds, round i of one was measured beside round i of the other, so both draw the same rounds, and drift that they
    share cancels. With two or three rounds the spread between rounds is itself known poorly: read such an interval as
    a lower bound of the doubt. The same data and seed give the same interval. Times must be positive; for a speedup,
    a is the baseline. Raises UsageError for a side without samples.
    """
    sides = [
        [np.sort(np.asarray(samples, dtype=float)) for samples in rounds if len(samples)]
        for rounds in (a_rounds, b_rounds)
    ]
    if not all(sides):
        raise UsageError("One side of a ratio has no samples.", expected="at least one sample on each side")
    a, b = sides
    ratio = float(np.median(np.concatenate(a)) / np.median(np.concatenate(b)))
    if min(sum(map(len, a)), sum(map(len, b))) < LEAST_SAMPLES:
        return Ratio(ratio=ratio, low=None, high=None)
    generator = np.random.default_rng(seed)
    a_drawn = generator.integers(len(a), size=(resamples, len(a)))
    b_drawn = a_drawn if len(a) == len(b) else generator.integers(len(b), size=(resamples, len(b)))
    ratios = _median_draws(a, a_drawn, generator) / _median_draws(b, b_drawn, generator)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return Ratio(ratio=ratio, low=float(low), high=float(high))


def _median_draws(
    rounds: list[NDArray[np.float64]], drawn: NDArray[np.int64], generator: np.random.Generator
) -> NDArray[np.float64]:
    """The median of one resample for each row of `drawn`, the rounds that this resample pools."""
    medians = np.empty(len(drawn))
    # Few different pools exist (ten for three rounds): each is sorted once and serves all its resamples. The sum of its
    # rounds' random tags names a pool, whatever their order.
    tags = generator.integers(2**50, size=len(rounds))
    _, first, which = np.unique(tags[drawn].sum(axis=1), return_index=True, return_inverse=True)
    for index, pool in enumerate(drawn[first]):
        members = np.flatnonzero(which == index)
        ordered = np.sort(np.concatenate([rounds[i] for i in pool]))
        medians[members] = _resampled_medians(ordered, len(members), generator)
    return medians


def _resampled_medians(ordered: NDArray[np.float64], count: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """`count` medians of n draws with replacement from n sorted values, without making the draws.

    A draw with replacement is ordered[floor(n u)] with u uniform, so the k-th smallest draw is that of the k-th
    smallest of n uniforms, which is Beta(k, n + 1 - k) distributed. The next one lies above it by Beta(1, n - k) of the
    rest. The medians are distributed exactly as if each draw had been made.
    """
    n = len(ordered)
    lower = generator.beta((n + 1) // 2, n + 1 - (n + 1) // 2, size=count)
    upper = lower + (1 - lower) * generator.beta(1, n - n // 2, size=count) if n % 2 == 0 else lower
    ranks = [np.minimum((n * uniform).astype(int), n - 1) for uniform in (lower, upper)]
    return np.asarray((ordered[ranks[0]] + ordered[ranks[1]]) / 2)
