"""Times of the same rounds are compared round by round: by hand, and by simulations of a machine that drifts."""

import math
import random
from itertools import product
from statistics import variance
from uuid import UUID

import numpy as np
import pytest

from runner.analysis import statistics
from runner.analysis.noise import estimate_noise
from runner.analysis.statistics import Ratio, estimate, ratio
from runner.results.times import Noise, RoundTime, Spread
from tests.rounds import RUN, estimate_within_rounds, measure_rounds, rounds_of
from tests.some import some

#: The noise of a machine that drifts by 10% from round to round and by 1% from process to process.
NOISE = Noise(std=0.1, dof=4, cells=4, within_rounds=Spread(std=0.01, dof=4))


def test_what_makes_a_round_slower_counts_for_neither_side() -> None:
    """A takes 5% (on the log scale), 6%, 4% and 5% longer than B, whose rounds differ by 30%. The differences have a
    sum of squares of 2e-4 with three degrees of freedom, and the known noise 2e-4 for each of four: 10/7 e-4."""
    drift = [0.0, 0.1, 0.2, 0.3]
    a = estimate(rounds_of([x + more for x, more in zip(drift, (0.05, 0.06, 0.04, 0.05), strict=True)]), NOISE)
    found = ratio(a, estimate(rounds_of(drift), NOISE))
    error = math.sqrt(10 / 7 * 1e-4 / 4)
    assert math.log(found.ratio) == pytest.approx(0.05)
    assert math.log((found.high or 0) / found.ratio) == pytest.approx(3.4995 * error, rel=1e-4), "t for 7 and 99%"
    assert found.outcome == "faster", "the interval, 2.1% to each side, excludes 1"


def test_six_pairs_say_themselves_how_much_they_differ() -> None:
    """Differences of 5% ± 1%: their variance is 6/5 of 1e-4, whatever the other cells' is. From six rounds on the
    interval is that of 99.5%."""
    drift = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    logs = [x + 0.05 + sign * 0.01 for x, sign in zip(drift, (1, -1, 1, -1, 1, -1), strict=True)]
    found = ratio(estimate(rounds_of(logs), NOISE), estimate(rounds_of(drift), NOISE))
    assert math.log((found.high or 0) / found.ratio) == pytest.approx(4.7733 * math.sqrt(1.2e-4 / 6), rel=1e-4)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (rounds_of([0.0] * 3), rounds_of([0.0] * 3, first=1)),  # other rounds
        (rounds_of([0.0] * 3), rounds_of([0.0] * 3, run=UUID(int=2))),  # the rounds of another run
        (rounds_of([0.0] * 3), rounds_of([0.0] * 2)),  # one has a round more
        (rounds_of([0.0]), rounds_of([0.0])),  # a single round
        ([RoundTime(median_ms=1.0, n=20)] * 3, [RoundTime(median_ms=1.0, n=20)] * 3),  # rounds that are not known
    ],
)
def test_other_rounds_are_not_paired(a: list[RoundTime], b: list[RoundTime]) -> None:
    unpaired = Noise(std=NOISE.std, dof=NOISE.dof, cells=NOISE.cells)
    assert ratio(estimate(a, NOISE), estimate(b, NOISE)) == ratio(estimate(a, unpaired), estimate(b, unpaired))


def test_the_variation_within_processes_counts_in_pairs_too() -> None:
    """The samples of each process lie between 9 and 11 ms, and all medians are equal."""
    one = [RoundTime(median_ms=10, low_ms=9, high_ms=11, n=10, id=(RUN, number)) for number in range(3)]
    found = ratio(estimate(one, NOISE), estimate(one, NOISE))
    std = math.log(11 / 9) / (2 * 1.959964)
    assert math.log(found.high or 0) == pytest.approx(3.7074 * std * math.sqrt(2 / 3), rel=1e-4), "t for 6 and 99%"


def test_noise_within_rounds_is_what_changes_differ_by() -> None:
    """From the first round to the second, two cells change by 0.30 and 0.34, a variance of 8e-4 with one degree of
    freedom; from the second to the third, three cells by 0.1, 0.1 and 0.16, of 12e-4 with two. Half of the mean is
    5.333e-4; of the three degrees of freedom two thirds count, and half of those."""
    cells = [rounds_of([0.0, 0.30, 0.40]), rounds_of([1.0, 1.34, 1.44]), rounds_of([2.0, 2.16], first=1)]
    found = estimate_within_rounds(cells)
    assert found is not None
    assert (found.std**2, found.dof) == pytest.approx((32e-4 / 3 / 2, 1.0))
    assert estimate_within_rounds(cells[:1]) is None, "one cell says nothing of what cells share"


def test_noise_within_rounds_is_unbiased_and_as_certain_as_it_says() -> None:
    """Four cells in five rounds: the mean of 2,000 variances is the true one, and their own variance at most that of
    the two thirds of 12 degrees of freedom that are claimed, 2 / 8."""
    generator = np.random.default_rng(1)
    found = []
    for _ in range(2000):
        logs = generator.normal(size=(4, 5)) * 0.02 + generator.normal(size=5) * 0.5
        one = estimate_within_rounds([rounds_of(row.tolist()) for row in logs])
        found.append((one.std / 0.02) ** 2 if one else math.nan)
    assert np.mean(found) == pytest.approx(1, abs=0.04)
    assert np.var(found) < 0.27


@pytest.mark.parametrize(("level", "rounds", "spread"), some(product((0.95, None), (5, 2, 3, 8), (6.0, math.inf))))
def test_intervals_have_their_coverage_where_the_machine_drifts(
    rounds: int, spread: float, level: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep has eight equal cells. Each round differs by 10%, each process by 2% (or its variance is scaled inverse
    chi-squared with six degrees of freedom), each sample by 1%. The standard error of 600 intervals of 95% is 0.9%,
    so that too narrow and too wide ones are seen; of those that decide, 0.4%."""
    if level:
        monkeypatch.setattr(statistics, "confidence", lambda rounds: level)
    found: list[Ratio] = []
    for seed in range(150):
        generator = random.Random(seed)
        drift = [generator.gauss(0, 0.1) for _ in range(rounds)]
        cells = [measure_rounds(generator, drift, 0.02, spread, of_samples=0.01, known=True) for _ in range(8)]
        times = [estimate(cell, find_noise(cells)) for cell in cells]
        found += [ratio(a, b) for a, b in zip(times[::2], times[1::2], strict=True)]
    covered = sum((one.low or 0) <= 1 <= (one.high or 0) for one in found) / len(found)
    if level:
        assert 0.935 <= covered <= 0.99
    else:
        assert covered >= 0.985, "99% or more is said"
        assert sum(one.outcome in ("faster", "slower") for one in found) / len(found) <= 0.015


def test_five_percent_are_found_on_a_machine_that_drifts_by_ten() -> None:
    """Of five rounds. Unpaired, less than one in ten is found."""
    paired = alone = 0
    for seed in range(200):
        generator = random.Random(seed)
        drift = [generator.gauss(0, 0.1) for _ in range(5)]
        cells = [measure_rounds(generator, drift, 0.01, math.inf, of_samples=0.01, known=True) for _ in range(4)]
        slower = [RoundTime(median_ms=one.median_ms * 1.05, n=one.n, id=one.id) for one in cells[0]]
        noise = find_noise(cells)
        paired += ratio(estimate(slower, noise), estimate(cells[1], noise)).outcome == "faster"
        unpaired = Noise(std=noise.std, dof=noise.dof, cells=noise.cells)
        alone += ratio(estimate(slower, unpaired), estimate(cells[1], unpaired)).outcome == "faster"
    assert paired >= 190
    assert alone <= 20


def find_noise(cells: list[list[RoundTime]]) -> Noise:
    logs = [[math.log(one.median_ms) for one in cell] for cell in cells]
    noise = estimate_noise([(len(cell), variance(cell)) for cell in logs])
    assert noise is not None
    return Noise(std=noise.std, dof=noise.dof, cells=noise.cells, within_rounds=estimate_within_rounds(cells))
