"""Summarizes samples, estimates the time that holds for the next process, and the certainty of a ratio of two times.

    >>> summarize([12.1, 12.0, 12.4, 11.9, 12.2, 12.0]).median
    12.05
    >>> noise = Noise(std=0.01, dof=10, cells=5)
    >>> estimates = [estimate([summarize_round([ms] * 10)], noise) for ms in (2.0, 1.0)]
    >>> ratio(*estimates).outcome
    'better'

Within a process nothing is assumed of the distribution: step times are skewed and have outliers. Between processes the
medians are taken as log-normal, with the noise of the machine as a prior: two processes that measure the same cell get
other memory, other cores and other neighbors, which moves the median far more than its interval within one process says
where the host sets the time (Kalibera and Jones 2013, "Rigorous benchmarking in reasonable time").

Limits: intervals hold for the next process of this machine, not for another machine; what drifts over hours is seen
only as far as rounds are spread.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from runner.errors import UsageError
from runner.results.times import Estimate, Noise, RoundTime

#: Below this many samples even the interval from smallest to largest covers the median in less than 95% of cases.
MIN_SAMPLES = 6
#: A ratio closer to 1 than this is no difference, whatever its interval.
MIN_DIFFERENCE = 0.01
#: The confidence of the intervals that are shown, and the one that a verdict needs: of 100 pairs of equal cells no more
#: than one is to be called different.
SHOWN, DECIDED = 0.95, 0.99
#: A noise that resolves only a difference of this many times or more resolves none.
MAX_RESOLVABLE = 100.0
#: Medians that agree better than this agree by the resolution of the clock.
MIN_STD = 1e-4
#: The most degrees of freedom that the noise of other cells counts for.
MAX_NOISE_DOF = 4.0
#: The largest quantile of Student's t.
MAX_QUANTILE = 1e6
Outcome = Literal["better", "worse", "same"]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A summary of samples, in their own unit. `std` is the sample standard deviation (n - 1), None for one sample;
    `low` and `high` enclose the median with at least 95% confidence, None for fewer than 6 samples."""

    n: int
    median: float
    mean: float
    std: float | None
    low: float | None
    high: float | None


def summarize(samples: Sequence[float]) -> Summary:
    """Returns median, mean, spread and the median's interval. Raises UsageError without samples."""
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
    """Returns the narrowest pair of samples, equally far from both ends, that encloses the median with 95% confidence
    or more.

    How many of n independent samples lie below the median is Binomial(n, 1/2), whatever their distribution, so the k-th
    smallest and k-th largest enclose it with probability 1 - 2 P(Binomial(n, 1/2) < k) (David and Nagaraja 2003, "Order
    Statistics", section 7.1). Being whole ranks, they cover more than 95%: 96.9% at n = 6 (smallest to largest), 97.9%
    at 10, 95.9% at 20, 96.5% at 100. None for n < 6, where no pair reaches 95%."""
    rank = _interval_rank(len(samples))
    if rank == 0:
        return None
    ordered = sorted(samples)
    return ordered[rank - 1], ordered[-rank]


@lru_cache(maxsize=1024)
def _interval_rank(n: int) -> int:
    """Returns the largest k with 2 P(Binomial(n, 1/2) < k) <= 5%, in exact integers; 0 if there is none."""
    rank, below = 0, 1
    while 40 * below <= 2**n:
        rank += 1
        below += math.comb(n, rank)
    return rank


def estimate_noise(repeated: Sequence[tuple[int, float]]) -> Noise | None:
    """Returns the noise of cells of one kind from the number of rounds (at least 2) and the variance of ln(median) of
    each cell; None without cells.

    The variances are pooled. Cells of one kind are not equally noisy, so for another cell the result counts for half
    its degrees of freedom and for at most MAX_NOISE_DOF. With these, simulated intervals keep their confidence even
    where the cells' own variances differ by a factor of ten."""
    squares = sum((rounds - 1) * variance for rounds, variance in repeated)
    return pool_noise(squares, dof=sum(rounds - 1 for rounds, _ in repeated), cells=len(repeated))


def pool_noise(squares: float, *, dof: int, cells: int) -> Noise | None:
    """Returns the noise as `estimate_noise` does, from sums over the cells: `squares` of (rounds - 1) times the
    variance, `dof` of rounds - 1."""
    if not dof:
        return None
    return Noise(std=max(math.sqrt(squares / dof), MIN_STD), dof=min(dof / 2, MAX_NOISE_DOF), cells=cells)


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


def next_process_interval(time: Estimate) -> tuple[float, float] | None:
    """Returns where the median of one more process lies with 95% confidence (ms), or None where that is unknown."""
    if time.std is None:
        return None
    reach = _reach(time.std * math.sqrt(1 + 1 / time.rounds), time.dof)
    return time.ms / reach, time.ms * reach


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio of two times with its 95% interval, which is None where nothing is known of what varies between
    processes. `decided` is whether the 99% interval excludes 1; a ratio of bytes is exact, and always is. Above 1 the
    second is better: faster or smaller."""

    ratio: float
    low: float | None = None
    high: float | None = None
    decided: bool = False

    @property
    def outcome(self) -> Outcome:
        """Better or worse where that is decided and the ratio is more than MIN_DIFFERENCE away from 1."""
        if not self.decided or max(self.ratio, 1 / self.ratio) <= 1 + MIN_DIFFERENCE:
            return "same"
        return "better" if self.ratio > 1 else "worse"


def ratio(a: Estimate, b: Estimate) -> Ratio:
    """Returns a / b with its interval. For a speedup, `a` is the baseline.

    The interval is Welch's for a difference of two means, of ln(time), whose variances differ (Welch 1947, "The
    generalization of Student's problem"). The degrees of freedom are Satterthwaite's and, where both sides rest on the
    same noise, no more than those of either."""
    value = a.ms / b.ms
    if a.std is None or b.std is None:
        return Ratio(ratio=value)
    parts = [(side.std or 0.0) ** 2 / side.rounds for side in (a, b)]
    dof = sum(parts) ** 2 / sum(part**2 / side.dof for part, side in zip(parts, (a, b), strict=True))
    if a.noise and a.noise == b.noise:
        dof = min(dof, a.dof, b.dof)
    error = math.sqrt(sum(parts))
    reach = _reach(error, dof)
    decided = abs(math.log(value)) > student_quantile(DECIDED, dof) * error
    return Ratio(ratio=value, low=value / reach, high=value * reach, decided=decided)


def resolvable(noise: Noise, *, rounds: int = 1) -> float:
    """Returns the smallest difference that one pair of cells can resolve, each measured in so many processes (0.05 is
    5%): exp(t s √(2 / rounds)) - 1 with s of the noise and t for 99% confidence, as `ratio` decides. As there, each
    cell's rounds add rounds - 1 degrees of freedom. The result is infinite where even MAX_RESOLVABLE would not be
    enough."""
    reach = student_quantile(DECIDED, noise.dof + rounds - 1) * noise.std * math.sqrt(2 / rounds)
    return math.expm1(reach) if reach < math.log(MAX_RESOLVABLE) else math.inf


@lru_cache(maxsize=65536)
def student_quantile(confidence: float, dof: float) -> float:
    """Returns t with P(|T| <= t) = `confidence` for Student's t of `dof` degrees of freedom, which may be a fraction or
    infinite (2.776 for 95% and 4). At most MAX_QUANTILE."""
    t = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    if math.isinf(dof):
        return t
    low, high = t, MAX_QUANTILE
    for _ in range(100):  # Newton's method, which comes from below because the tail is convex; else halves
        excess = _incomplete_beta(dof / (dof + t * t), dof / 2, 0.5) - (1 - confidence)
        low, high = (t, high) if excess > 0 else (low, t)
        density = _student_density(t, dof)  # zero far out, where only halving leads back
        following = t + excess / (2 * density) if density else math.inf
        if abs(following - t) <= 1e-12 * t:
            break
        t = following if low < following < high else (low + high) / 2
    return t


def _student_density(t: float, dof: float) -> float:
    scale = math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2) - math.log(math.pi * dof) / 2
    return math.exp(scale - (dof + 1) / 2 * math.log1p(t * t / dof))


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Returns the regularized incomplete beta function I_x(a, b) by its continued fraction (NIST Digital Library of
    Mathematical Functions, 8.17.22), where that converges fast, or that of 1 - x."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    fraction = 1.0
    for m in range(20 + 4 * math.isqrt(math.ceil(max(a, b))), 0, -1):  # it takes of the order of the root of a or b
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        fraction = 1 + even / (1 + odd / fraction)
    first = 1 - (a + b) * x / ((a + 1) * fraction)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(scale) / (a * first)
