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
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from runner.errors import UsageError
from runner.results.times import Estimate, Noise, RoundTime

#: Below this many samples even the interval from smallest to largest covers the median in less than 95% of cases.
MIN_SAMPLES = 6
RESAMPLES = 2_000
#: A ratio closer to 1 than this is noise, whatever its interval.
NOISE = 0.01
Outcome = Literal["better", "worse", "same"]
SEED = 20_250_401


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Samples summed up, in their own unit. `std` is the sample standard deviation (n - 1), None for one sample;
    `low` and `high` enclose the median with at least 95% confidence, None for fewer than 6 samples."""

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
    """The narrowest pair of samples, equally far from both ends, that encloses the median with 95% confidence or more.

    How many of n independent samples lie below the median is Binomial(n, 1/2), whatever their distribution, so the k-th
    smallest and k-th largest enclose it with probability 1 - 2 P(Binomial(n, 1/2) < k) (David and Nagaraja 2003,
    "Order Statistics", section 7.1). Being whole ranks, they cover more than 95%: 96.9% at n = 6 (smallest to
    largest), 97.9% at 10, 95.9% at 20, 96.5% at 100. None for n < 6, where no pair reaches 95%.
    """
    rank = _interval_rank(len(samples))
    if rank == 0:
        return None
    ordered = sorted(samples)
    return ordered[rank - 1], ordered[-rank]


@lru_cache(maxsize=1024)
def _interval_rank(n: int) -> int:
    """The largest k with 2 P(Binomial(n, 1/2) < k) <= 5%, in exact integers; 0 if there is none."""
    rank, below = 0, 1
    while 40 * below <= 2**n:
        rank += 1
        below += math.comb(n, rank)
    return rank


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio of two medians with its 95% interval, which is None where either side has fewer than 6 samples. A ratio
    of bytes is `exact` and needs none. Above 1 the second is better: faster or smaller."""

    ratio: float
    low: float | None = None
    high: float | None = None
    exact: bool = False

    @property
    def outcome(self) -> Outcome:
        """Better or worse where the interval excludes 1 and the ratio is more than NOISE away from it."""
        if max(self.ratio, 1 / self.ratio) <= 1 + NOISE:
            return "same"
        low, high = (self.ratio, self.ratio) if self.exact else (self.low or 0.0, self.high or math.inf)
        return "better" if low > 1 else "worse" if high < 1 else "same"


def ratio_interval(
    a_rounds: Sequence[Sequence[float]],
    b_rounds: Sequence[Sequence[float]],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Ratio:
    """median(a) / median(b), samples of all rounds pooled, with a 95% percentile interval by bootstrap.

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
    if min(sum(map(len, a)), sum(map(len, b))) < MIN_SAMPLES:
        return Ratio(ratio=ratio, low=None, high=None)
    draws = _draws(tuple(map(len, a)), tuple(map(len, b)), resamples=resamples, seed=seed)
    low, high = np.quantile(_medians(a, draws[0]) / _medians(b, draws[1]), (0.025, 0.975))
    return Ratio(ratio=ratio, low=float(low), high=float(high))


@dataclass(frozen=True, kw_only=True)
class _Draws:
    """The resamples of one side: the pools of rounds that are drawn, and the two places, among the sorted values of all
    pools one after the other, whose mean is the median of each resample."""

    pools: tuple[tuple[int, ...], ...]
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]


@lru_cache(maxsize=256)
def _draws(a_sizes: tuple[int, ...], b_sizes: tuple[int, ...], *, resamples: int, seed: int) -> tuple[_Draws, _Draws]:
    """What is drawn depends on how many samples there are, not on their values: cells of one sweep share it."""
    generator = np.random.default_rng(seed)
    a_drawn = generator.integers(len(a_sizes), size=(resamples, len(a_sizes)))
    same = len(a_sizes) == len(b_sizes)
    b_drawn = a_drawn if same else generator.integers(len(b_sizes), size=(resamples, len(b_sizes)))
    return _side_draws(a_sizes, a_drawn, generator), _side_draws(b_sizes, b_drawn, generator)


def _side_draws(sizes: tuple[int, ...], drawn: NDArray[np.int64], generator: np.random.Generator) -> _Draws:
    """The draws of one side, whose resamples pool the rounds in the rows of `drawn`."""
    lower, upper = np.empty(len(drawn), dtype=int), np.empty(len(drawn), dtype=int)
    # Few different pools exist (ten for three rounds): each is sorted once and serves all its resamples. The sum of its
    # rounds' random tags names a pool, whatever their order.
    tags = generator.integers(2**50, size=len(sizes))
    _, first, which = np.unique(tags[drawn].sum(axis=1), return_index=True, return_inverse=True)
    start = 0
    for index, pool in enumerate(drawn[first]):
        members = np.flatnonzero(which == index)
        n = sum(sizes[i] for i in pool)
        ranks = _median_ranks(n, len(members), generator)
        lower[members], upper[members] = start + ranks[0], start + ranks[1]
        start += n
    return _Draws(pools=tuple(tuple(map(int, pool)) for pool in drawn[first]), lower=lower, upper=upper)


def _medians(rounds: list[NDArray[np.float64]], draws: _Draws) -> NDArray[np.float64]:
    """The median of each resample."""
    ordered = np.concatenate([np.sort(np.concatenate([rounds[i] for i in pool])) for pool in draws.pools])
    return np.asarray((ordered[draws.lower] + ordered[draws.upper]) / 2)


def _median_ranks(n: int, count: int, generator: np.random.Generator) -> list[NDArray[np.int64]]:
    """The places, among n sorted values, of the two middle draws of n with replacement, `count` times, without making
    the draws; for an odd n they are the same one.

    A draw with replacement is ordered[floor(n u)] with u uniform, so the k-th smallest draw is that of the k-th
    smallest of n uniforms, which is Beta(k, n + 1 - k) distributed. The next one lies above it by Beta(1, n - k) of the
    rest. The medians are distributed exactly as if each draw had been made.
    """
    lower = generator.beta((n + 1) // 2, n + 1 - (n + 1) // 2, size=count)
    upper = lower + (1 - lower) * generator.beta(1, n - n // 2, size=count) if n % 2 == 0 else lower
    return [np.minimum((n * uniform).astype(int), n - 1) for uniform in (lower, upper)]


#: The confidence of the intervals that are shown, and the one that a verdict needs: of 100 pairs of equal cells no more
#: than one is to be called different.
SHOWN, DECIDED = 0.95, 0.99
#: Medians that agree better than this agree by the resolution of the clock.
MIN_STD = 1e-4
#: What the noise of other cells counts for at most, in degrees of freedom.
MAX_NOISE_DOF = 4.0


def estimate_noise(repeated: Sequence[tuple[int, float]]) -> Noise | None:
    """Returns what cells of one kind have in common, of the rounds (at least 2) and the variance of ln(median) of each;
    None without cells.

    The variances are pooled. Cells of one kind are not equally noisy, so that for another cell the result counts for
    half its degrees of freedom and for no more than MAX_NOISE_DOF: with these, simulated intervals hold what they
    promise also where the cells' own variances differ by a factor of ten."""
    total = sum(rounds - 1 for rounds, _ in repeated)
    if not total:
        return None
    variance = sum((rounds - 1) * variance for rounds, variance in repeated) / total
    return Noise(std=max(math.sqrt(variance), MIN_STD), dof=min(total / 2, MAX_NOISE_DOF), cells=len(repeated))


def summarize_round(samples: Sequence[float]) -> RoundTime:
    """Returns the time of one process from its samples in ms. Raises UsageError without samples."""
    summary = summarize(samples)
    return RoundTime(median_ms=summary.median, low_ms=summary.low, high_ms=summary.high, n=summary.n)


def estimate(rounds: Sequence[RoundTime], noise: Noise | None = None) -> Estimate:
    """Returns the time of one cell over its rounds, each a process of its own.

    The variance between processes is that of the rounds' ln(median) and that of the machine's noise, each weighted by
    its degrees of freedom (as in Smyth 2004, "Linear models and empirical Bayes methods", equation 4), and no less than
    what the samples within a process account for. Raises UsageError without rounds."""
    if not rounds:
        raise UsageError("There are no rounds to sum up.", expected="at least one")
    logs, count = [math.log(found.median_ms) for found in rounds], len(rounds)
    ms = rounds[0].median_ms if count == 1 else math.exp(statistics.fmean(logs))
    dof = count - 1 + (noise.dof if noise else 0.0)
    if dof == 0 or sum(found.n or 0 for found in rounds) < MIN_SAMPLES:
        return Estimate(ms=ms, rounds=count)
    squares = sum((value - statistics.fmean(logs)) ** 2 for value in logs) + (noise.dof * noise.std**2 if noise else 0)
    std = math.sqrt(max(squares / dof, statistics.fmean(map(_variance_within, rounds)), MIN_STD**2))
    reach = _reach(std / math.sqrt(count), dof)
    return Estimate(ms=ms, rounds=count, low_ms=ms / reach, high_ms=ms * reach, std=std, dof=dof, noise=noise)


def _variance_within(found: RoundTime) -> float:
    """Returns the variance of ln(median) that the samples within the process account for."""
    if found.low_ms is None or found.high_ms is None:
        return 0.0
    return (math.log(found.high_ms / found.low_ms) / (2 * student_quantile(SHOWN, math.inf))) ** 2


def _reach(error: float, dof: float) -> float:
    """Returns the factor from a time to the end of its 95% interval, for a standard error of its logarithm."""
    return math.exp(student_quantile(SHOWN, dof) * error)


@lru_cache(maxsize=4096)
def student_quantile(confidence: float, dof: float) -> float:
    """Returns t with P(|T| <= t) = `confidence` for Student's t of `dof` degrees of freedom, which may be a fraction or
    infinite (2.776 for 95% and 4)."""
    if math.isinf(dof):
        return statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    low, high = 0.0, 1e6
    for _ in range(80):
        middle = (low + high) / 2
        outside = _incomplete_beta(dof / (dof + middle * middle), dof / 2, 0.5)
        low, high = (middle, high) if outside > 1 - confidence else (low, middle)
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Returns the regularized incomplete beta function I_x(a, b) by its continued fraction (NIST Digital Library of
    Mathematical Functions, 8.17.22), where that converges fast, or that of 1 - x."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    fraction = 1.0
    for m in range(200, 0, -1):
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        fraction = 1 + even / (1 + odd / fraction)
    first = 1 - (a + b) * x / ((a + 1) * fraction)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(scale) / (a * first)
