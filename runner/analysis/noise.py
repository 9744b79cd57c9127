"""What varies between processes, from cells that one run measured in several of them.

    noise = estimate_noise([(3, 4e-4), (5, 1e-4)])              # rounds, and variance of ln(median), of each cell
    noise.std, noise.dof

Cells of one kind are not equally noisy: on an H200 the medians of some steps whose time the GPU sets differ by 0.1%
from process to process and those of others by 1.6%. So the variance of a cell is taken to be drawn from a scaled
inverse chi-squared distribution, and the scale and the degrees of freedom of that are what its repeated cells say of
one that is not repeated (Smyth 2004, "Linear models and empirical Bayes methods", section 6.2).

Standard library only.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runner.results.times import Noise, Spread

#: No noise is taken to be less than this, however well medians agree.
MIN_STD = 1e-4
#: The variance of ln(median) that counts for medians that agree better, as a clock may not resolve them. With MIN_STD²
#: cells seemed more equal than they are: of 100 cells of attention on an H200, each in two processes, the interval of a
#: loop held 88% then. It holds 95% now, and is narrower where steps are waited for. (The distribution of the cells'
#: variances has 1.13 degrees of freedom by maximum likelihood, 1.15 by this; it had 2.)
MIN_VARIANCE = 1e-5**2
#: The most degrees of freedom that the noise of other cells counts for, however equal they seem: the distributions of
#: variances on two H200 (steps and attention, host and device, three clocks) had 0.7 to 2.1 in eight of twelve cases.
MAX_NOISE_DOF = 2.0
#: The fewest degrees of freedom of cells that are not equal: with fewer, an interval would hold any time.
MIN_UNEQUAL_DOF = 1.0
#: How many repeated cells say how unequal cells of their kind are.
MIN_CELLS = 5


@dataclass(frozen=True, kw_only=True)
class Repeats:
    """Cells of one kind with the same number of rounds: how many there are, the sum of their variances of ln(median),
    and the sums of the logarithms of those and of their squares. Variances below MIN_VARIANCE count as that."""

    rounds: int
    cells: int
    variances: float
    logs: float
    log_squares: float

    @property
    def dof(self) -> int:
        """The degrees of freedom of each cell's variance."""
        return self.rounds - 1


def estimate_noise(repeated: Iterable[tuple[int, float]], *, max_dof: float = MAX_NOISE_DOF) -> Noise | None:
    """Returns the noise of cells of one kind from the number of rounds (at least 2) and the variance of ln(median) of
    each cell; None without cells."""
    repeats = []
    for rounds, variance in repeated:
        least = max(variance, MIN_VARIANCE)
        log = math.log(least)
        repeats.append(Repeats(rounds=rounds, cells=1, variances=least, logs=log, log_squares=log**2))
    return pool_noise(repeats, max_dof=max_dof)


def pool_noise(
    groups: Sequence[Repeats], *, within_rounds: Spread | None = None, max_dof: float = MAX_NOISE_DOF
) -> Noise | None:
    """Returns the noise of repeated cells of one kind, None without any.

    For another cell it counts for no more than half its degrees of freedom and `max_dof`, and for fewer where the
    cells are less equal than that. Where they are not equal its scale is that of the distribution of their variances,
    which a few noisy cells raise less than they raise the mean."""
    squares = sum(one.dof * one.variances for one in groups)
    found = pool_spread(squares, dof=sum(one.dof * one.cells for one in groups), max_dof=max_dof)
    if found is None:
        return None
    cells = sum(one.cells for one in groups)
    unequal = _fit_distribution(groups) if cells >= MIN_CELLS else None
    typical = None
    if unequal:
        half = unequal.dof / 2
        typical = max(unequal.std, MIN_STD) * math.exp((math.log(half) - digamma(half)) / 2)
        found = Spread(std=max(unequal.std, MIN_STD), dof=min(max(unequal.dof, MIN_UNEQUAL_DOF), found.dof))
    if within_rounds:
        within_rounds = Spread(std=within_rounds.std, dof=min(within_rounds.dof, found.dof))
    return Noise(std=found.std, dof=found.dof, cells=cells, within_rounds=within_rounds, typical=typical)


def pool_spread(squares: float, *, dof: float, max_dof: float = MAX_NOISE_DOF) -> Spread | None:
    """Returns the standard deviation from a sum of squares and its degrees of freedom, of which half count and no more
    than `max_dof`; None without any."""
    if dof <= 0:
        return None
    return Spread(std=max(math.sqrt(squares / dof), MIN_STD), dof=min(dof / 2, max_dof))


def _fit_distribution(groups: Sequence[Repeats]) -> Spread | None:
    """Returns the scale and the degrees of freedom of the distribution of the cells' variances, by the moments of their
    logarithms; None where these differ no more than those of equal variances."""
    cells = sum(one.cells for one in groups)
    offsets = [math.log(one.dof / 2) - digamma(one.dof / 2) for one in groups]
    total = sum(one.logs + one.cells * offset for one, offset in zip(groups, offsets, strict=True))
    squares = sum(
        one.log_squares + 2 * offset * one.logs + one.cells * offset**2
        for one, offset in zip(groups, offsets, strict=True)
    )
    by_chance = sum(one.cells * trigamma(one.dof / 2) for one in groups) / cells
    excess = (squares - total**2 / cells) / (cells - 1) - by_chance
    if excess <= 0:
        return None
    half = invert_trigamma(excess)
    return Spread(std=math.exp((total / cells + digamma(half) - math.log(half)) / 2), dof=2 * half)


def pool_changes(squares: float, *, dof: int) -> Spread | None:
    """Returns the standard deviation within rounds, from sums over pairs of successive rounds: `squares` of (cells - 1)
    times the variance of the cells' changes, `dof` of cells - 1.

    A cell's successive changes share a round, so that they count for two thirds of as many degrees of freedom (von
    Neumann, Kent, Bellinson and Hart 1941, "The mean square successive difference")."""
    return pool_spread(squares / 3, dof=2 * dof / 3)


def digamma(x: float) -> float:
    """Returns the derivative of ln Γ at x > 0, by its recurrence and asymptotic series (NIST Digital Library of
    Mathematical Functions, 5.5.2 and 5.11.2)."""
    shift = 0.0
    while x < 10:
        shift -= 1 / x
        x += 1
    inverse = 1 / x**2
    return shift + math.log(x) - 0.5 / x - inverse * (1 / 12 - inverse * (1 / 120 - inverse / 252))


def trigamma(x: float) -> float:
    """Returns the derivative of `digamma` at x > 0, likewise."""
    shift = 0.0
    while x < 10:
        shift += 1 / x**2
        x += 1
    inverse = 1 / x**2
    return shift + 1 / x + inverse / 2 + inverse / x * (1 / 6 - inverse * (1 / 30 - inverse / 42))


def invert_trigamma(value: float) -> float:
    """Returns the x > 0 at which `trigamma` has this value, by halving on the log scale."""
    low, high = 1e-6, 1e6
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if trigamma(middle) > value else (low, middle)
    return math.sqrt(low * high)
