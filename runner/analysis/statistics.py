"""Summarizes samples, estimates a time over processes, and the certainty of a ratio of two times.

    >>> summarize([12.1, 12.0, 12.4, 11.9, 12.2, 12.0]).median
    12.05
    >>> noise = Noise(std=0.01, dof=10, cells=5)
    >>> estimates = [estimate([RoundTime(median_ms=ms, n=10)], noise) for ms in (2.0, 1.0)]
    >>> ratio(*estimates).outcome
    'faster'

Within a process nothing is assumed of the distribution: step times are skewed and have outliers. Between processes the
medians are taken as log-normal, with the noise of the machine as a prior: two processes that measure the same cell get
other memory, other cores and other neighbors, which moves the median far more than its interval within one process says
where the host sets the time (Kalibera and Jones 2013, "Rigorous benchmarking in reasonable time"). Of many processes
those that a neighbor slowed down count less (`trimmed_mean`).

On a CPU neighbors only ever add time, and a process that they slow down for a while still has steps that they did not:
its undisturbed time is the 10th percentile of its steps. On a virtual machine with two cores that was slowed down a
tenth of the time, equal processes differed by 3% in that and by 5% in their medians, and of comparisons with a step
that took 5 to 7% longer it decided 96 to 100%, the medians 18 to 70% (`python -m tests.bench noise`). Where neighbors
never rest, on three other CPUs, the two differ alike, by 4 to 20%. A change that makes only some steps longer, fewer
than nine in ten, shows in the median alone, or in neither.

Limits: the interval of a time is that of its mean over processes; one more process lies in `next_process_interval`
(on H200s the third of a cell did in 95% of 216 cases, and in the interval of the mean of two in 85%). It holds for
this machine, not for another; what drifts over hours is seen only as far as rounds are spread.
"""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from runner.analysis.noise import MIN_STD
from runner.errors import UsageError
from runner.results.times import Estimate, Noise, RoundTime, Spread

#: Below this many samples even the interval from smallest to largest covers the median in less than 95% of cases.
MIN_SAMPLES = 6
#: Two times are the same where the interval of their ratio lies this close to 1.
MIN_DIFFERENCE = 0.01
#: The confidence of the intervals that are shown, and the one that a verdict needs: of 100 pairs of equal cells no more
#: than one is to be called different.
SHOWN, DECIDED = 0.95, 0.99
#: A noise that resolves only a difference of this many times or more resolves none.
MAX_RESOLVABLE = 100.0
#: So many rounds of a cell say themselves how much its processes differ. Other cells, whose noise may be another, count
#: only where there are fewer.
OWN_ROUNDS = 6
#: The confidence that a verdict needs from there on. With fewer rounds the noise of other cells makes of 99% a little
#: more; with a cell's own alone, 1.0% of 3,874 pairs of equal cells on CPUs were called different at 99%, and 0.5% at
#: this (`python -m tests.bench noise`, eight recordings).
DECIDED_ALONE = 0.995
#: What a ratio decides of its second side.
Outcome = Literal["faster", "slower", "same", "undecided"]


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


def lower_decile(samples: Sequence[float]) -> float | None:
    """Returns the 10th percentile of the samples, between the two next to it; None for fewer than MIN_SAMPLES."""
    if len(samples) < MIN_SAMPLES:
        return None
    return statistics.quantiles(samples, n=10, method="inclusive")[0]


def estimate(rounds: Sequence[RoundTime], noise: Noise | None = None) -> Estimate:
    """Returns the time of one cell over its rounds, each a process of its own.

    The variance between processes is that of the rounds' ln(median), and for fewer than OWN_ROUNDS also that of the
    machine's noise, each weighted by its degrees of freedom (as in Smyth 2004, "Linear models and empirical Bayes
    methods", equation 4); it is no less than what the samples within a process account for. The time is the mean of
    ln(median), without the outermost rounds where there are many. An interval to a hundred times the time says nothing,
    and is left out. From OWN_ROUNDS on the undisturbed times are estimated likewise, where every round has one. Raises
    UsageError without rounds."""
    found, alone = _estimate(rounds, noise), [one.undisturbed for one in rounds]
    known = [one for one in alone if one]
    if len(known) < max(len(rounds), OWN_ROUNDS):
        return found
    return replace(found, undisturbed=_estimate(known, noise))


def _estimate(rounds: Sequence[RoundTime], noise: Noise | None) -> Estimate:
    if not rounds:
        raise UsageError("There are no rounds to sum up.", expected="at least one")
    logs, count = [math.log(one.median_ms) for one in rounds], len(rounds)
    ms = rounds[0].median_ms if count == 1 else math.exp(trimmed_mean(logs))
    plain = Estimate(
        ms=ms,
        rounds=count,
        medians={one.id: one.median_ms for one in rounds if one.id},
        devices={gpu: count_of / count for gpu, count_of in Counter(one.device_uuid for one in rounds).items()},
    )
    known = noise if count < OWN_ROUNDS else None
    dof = count - 1 + (known.dof if known else 0.0)
    if dof == 0 or sum(one.n or 0 for one in rounds) < MIN_SAMPLES:
        return plain
    within = math.sqrt(statistics.fmean([_variance_within(one) for one in rounds]))
    std, least = _pool_std(logs, known), max(within, MIN_STD)
    found = Spread(std=std / math.sqrt(count), dof=dof) if known else standard_error(winsorize(logs))
    error = replace(found, std=max(found.std, least / math.sqrt(count)))
    if student_quantile(SHOWN, error.dof) * error.std >= math.log(MAX_RESOLVABLE):
        return plain
    reach, shift = _reach(error), statistics.fmean([one.shift for one in rounds])
    return replace(
        plain,
        low_ms=ms / reach,
        high_ms=ms * reach * math.exp(shift),
        std=max(std, least),
        dof=dof,
        error=error,
        noise=noise,
        within=within,
        shift=shift,
    )


def _pool_std(logs: Sequence[float], known: Spread | None) -> float:
    """Returns the standard deviation of these values pooled with a known one, each weighted by its degrees of
    freedom, of which there is at least one."""
    mean = statistics.fmean(logs)
    squares = sum((value - mean) ** 2 for value in logs) + (known.dof * known.std**2 if known else 0)
    return math.sqrt(squares / (len(logs) - 1 + (known.dof if known else 0.0)))


def _variance_within(found: RoundTime) -> float:
    """Returns the variance of ln(median) that the samples within the process account for."""
    if found.low_ms is None or found.high_ms is None:
        return 0.0
    return (math.log(found.high_ms / found.low_ms) / (2 * student_quantile(SHOWN, math.inf))) ** 2


def _reach(error: Spread) -> float:
    """Returns the factor from a time to the end of its 95% interval, for a standard error of its logarithm."""
    return math.exp(student_quantile(SHOWN, error.dof) * error.std)


def next_process_interval(time: Estimate) -> tuple[float, float] | None:
    """Returns where the median of one more process lies with 95% confidence (ms), or None where that is unknown."""
    if time.std is None:
        return None
    reach = _reach(Spread(std=time.std * math.sqrt(1 + 1 / time.rounds), dof=time.dof))
    return time.ms / reach, time.ms * reach * math.exp(time.shift)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio of two times: above 1 the second is faster. Its interval, which is None where nothing is known of what
    varies between processes, holds with the confidence `level`, and is the one that decides. `undisturbed` are the two
    times (ms) where it is the ratio of undisturbed ones."""

    ratio: float
    low: float | None = None
    high: float | None = None
    level: float = DECIDED
    undisturbed: tuple[float, float] | None = None

    @property
    def outcome(self) -> Outcome:
        """Faster or slower where the interval excludes 1, the same where it lies within MIN_DIFFERENCE of 1."""
        if self.low is None or self.high is None:
            return "undecided"
        if self.low >= 1 / (1 + MIN_DIFFERENCE) and self.high <= 1 + MIN_DIFFERENCE:
            return "same"
        return "faster" if self.low > 1 else "slower" if self.high < 1 else "undecided"


def confidence(rounds: int) -> float:
    """Returns the confidence that a verdict needs where the side with fewer rounds has so many."""
    return DECIDED if rounds < OWN_ROUNDS else DECIDED_ALONE


def ratio(a: Estimate, b: Estimate, *, device_std: float = 0.0) -> Ratio:
    """Returns a / b with its interval. For a speedup, `a` is the baseline. Where both have undisturbed times it is the
    ratio of those. `device_std` is the standard deviation of ln(time) from one GPU to another of the same kind.

    Times that were measured in the same rounds are compared round by round, so that what makes a whole round slower
    counts for neither (`_paired_error`). Otherwise the interval is Welch's for a difference of two means, of ln(time),
    whose variances differ (Welch 1947, "The generalization of Student's problem"). The interval allows for a
    side that the device computed faster than it may in another process (`find_shift`)."""
    if a.undisturbed and b.undisturbed:
        found = ratio(a.undisturbed, b.undisturbed, device_std=device_std)
        return replace(found, undisturbed=(a.undisturbed.ms, b.undisturbed.ms))
    value = a.ms / b.ms
    if a.error is None or b.error is None:
        return Ratio(ratio=value)
    error = _paired_error(a, b) or _unpaired_error(a, a.error, b, b.error, device_std)
    level = confidence(min(a.rounds, b.rounds))
    reach = math.exp(min(student_quantile(level, error.dof) * error.std, math.log(MAX_RESOLVABLE)))
    low, high = value / reach / math.exp(b.shift), value * reach * math.exp(a.shift)
    return Ratio(ratio=value, low=low, high=high, level=level)


def _paired_error(a: Estimate, b: Estimate) -> Spread | None:
    """Returns the standard error of ln(a / b) from the differences round by round, and its degrees of freedom: those of
    the rounds and, of few, of the noise that is left within rounds (the paired t-test, with that noise as its prior).

    None unless all rounds of both are the same two or more, and both have the same noise."""
    known = a.noise.within_rounds if a.noise and a.noise == b.noise else None
    shared = a.medians.keys() & b.medians.keys()
    if known is None or not 2 <= len(shared) == a.rounds == b.rounds:
        return None
    if len(shared) < OWN_ROUNDS:
        logs = [math.log(a.medians[one] / b.medians[one]) for one in shared]
        prior = Spread(std=known.std * math.sqrt(2), dof=known.dof)
        error = Spread(std=_pool_std(logs, prior) / math.sqrt(len(logs)), dof=len(logs) - 1 + prior.dof)
    else:
        sides = [winsorize([math.log(side.medians[one]) for one in shared]) for side in (a, b)]
        error = standard_error([one - other for one, other in zip(*sides, strict=True)])
    return replace(error, std=max(error.std, math.hypot(a.within, b.within) / math.sqrt(len(shared))))


def _unpaired_error(a: Estimate, of_a: Spread, b: Estimate, of_b: Spread, device_std: float) -> Spread:
    """Returns the standard error of ln(a / b) from those of both and from what GPUs differ by, for the rounds that were
    measured on different ones; one that is not known is another. Its degrees of freedom are Satterthwaite's and, where
    both rest on the same noise (with few rounds), no more than those of either."""
    variances = of_a.std**2, of_b.std**2
    known = sum(variances)
    dof = known**2 / (variances[0] ** 2 / of_a.dof + variances[1] ** 2 / of_b.dof)
    if a.noise and a.noise == b.noise and min(a.rounds, b.rounds) < OWN_ROUNDS:
        dof = min(dof, of_a.dof, of_b.dof)
    apart = sum((a.devices.get(gpu, 0) - b.devices.get(gpu, 0)) ** 2 for gpu in {*a.devices, *b.devices})
    variance = known + apart * device_std**2
    return Spread(std=math.sqrt(variance), dof=dof * (variance / known) ** 2)


def resolvable(noise: Noise, *, rounds: int = 1) -> float:
    """Returns the difference that half the pairs of typical cells with it resolve, each cell measured in so many
    processes (0.05 is 5%): exp(t s √(2 / rounds)) - 1 with t for the confidence of a verdict. As in `ratio`, s is that
    of the rounds, here a typical cell's, pooled with that of the noise, and from OWN_ROUNDS on the rounds' alone; that
    some of many rounds are left out does not count. It is infinite where even MAX_RESOLVABLE would not be enough."""
    own, known = noise.typical or noise.std, noise.dof if rounds < OWN_ROUNDS else 0.0
    dof = rounds - 1 + known if known else 2 * (rounds - 1)
    std = math.sqrt(((rounds - 1) * own**2 + known * noise.std**2) / (rounds - 1 + known))
    reach = student_quantile(confidence(rounds), dof) * std * math.sqrt(2 / rounds)
    return math.expm1(reach) if reach < math.log(MAX_RESOLVABLE) else math.inf


#: A process that a neighbor slows down for all its seconds has a time of its own, and one such round in ten makes the
#: interval of a plain mean several times as wide. So a fifth of the rounds is left out at each end (Yuen 1974, "The
#: two-sample trimmed t for unequal population variances"; for pairs Wilcox 2012, "Introduction to Robust Estimation and
#: Hypothesis Testing", section 5.9).
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


#: The largest quantile of Student's t, and the degrees of freedom from which on it is the normal distribution within 3
#: in a million.
MAX_QUANTILE, _NORMAL_DOF = 1e6, 1e6


@lru_cache(maxsize=65536)
def student_quantile(confidence: float, dof: float) -> float:
    """Returns t with P(|T| <= t) = `confidence`, of 95% or more, for Student's t of `dof` degrees of freedom, which may
    be a fraction or infinite (2.776 for 95% and 4). At most MAX_QUANTILE."""
    t = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    if dof > _NORMAL_DOF:
        return t
    low, high = t, MAX_QUANTILE
    scale = math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2) - math.log(math.pi * dof) / 2
    for _ in range(100):  # Newton's method, which comes from below because the tail is convex; else halves
        excess = _incomplete_beta(dof / (dof + t * t), dof / 2, 0.5) - (1 - confidence)
        low, high = (t, high) if excess > 0 else (low, t)
        density = math.exp(scale - (dof + 1) / 2 * math.log1p(t * t / dof))  # 0 far out: there only halving leads back
        following = t + excess / (2 * density) if density else math.inf
        if abs(following - t) <= 1e-12 * t:
            break
        t = following if low < following < high else (low + high) / 2
    return t


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Returns the regularized incomplete beta function I_x(a, b) by its continued fraction (NIST Digital Library of
    Mathematical Functions, 8.17.22), which converges fast up to x = (a + 1) / (a + b + 2)."""
    fraction = 1.0
    for m in range(20 + 4 * math.isqrt(math.ceil(max(a, b))), 0, -1):  # it takes of the order of the root of a or b
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        fraction = 1 + even / (1 + odd / fraction)
    first = 1 - (a + b) * x / ((a + 1) * fraction)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(scale) / (a * first)
