"""Intervals, compared with values computed by hand, and how often they cover the true value; how unequal the cells of a
kind are, by tables of special functions and by simulated cells."""

import math
import random
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import variance

import numpy as np
import pytest

from runner.analysis.noise import MAX_NOISE_DOF, MIN_CELLS, digamma, estimate_noise, invert_trigamma, trigamma
from runner.analysis.statistics import (
    estimate,
    median_interval,
    next_process_interval,
    ratio,
    resolvable,
    student_quantile,
    summarize,
)
from runner.errors import UsageError
from runner.results.times import Noise, RoundTime, find_shift
from tests.rounds import measure_rounds, summarize_round
from tests.some import some


def test_summary_computed_by_hand() -> None:
    """The mean is 5 and the squared distances are 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16 = 32, so std = sqrt(32 / 7)."""
    summary = summarize([2, 4, 4, 4, 5, 5, 7, 9])
    assert (summary.n, summary.median, summary.mean) == (8, 4.5, 5)
    assert summary.std == pytest.approx(math.sqrt(32 / 7))
    assert (summary.low, summary.high) == (2, 9)


def test_a_single_sample_has_no_spread() -> None:
    summary = summarize([3.5])
    assert (summary.n, summary.median, summary.mean) == (1, 3.5, 3.5)
    assert summary.std is summary.low is summary.high is None
    with pytest.raises(UsageError, match="no samples"):
        summarize([])
    few = estimate([summarize_round([1.0] * 5)], Noise(std=0.01, dof=4, cells=8))
    assert few.low_ms is few.std is None
    with pytest.raises(UsageError, match="no rounds"):
        estimate([])


@pytest.mark.parametrize(
    ("n", "ranks"),
    [
        (5, None),  # 1 - 2 (1/32) = 93.75%, which is too little
        (6, (1, 6)),  # 1 - 2 (1/64) = 96.88%
        (8, (1, 8)),  # one rank further in: 1 - 2 (1 + 8)/256 = 92.97%
        (9, (2, 8)),  # 1 - 2 (1 + 9)/512 = 96.09%
        (10, (2, 9)),  # 1 - 2 (1 + 10)/1024 = 97.85%
        (20, (6, 15)),  # the table of the sign test: 95.86%
        (100, (40, 61)),  # likewise: 96.48%
    ],
)
def test_interval_of_the_median_is_the_textbook_one(n: int, ranks: tuple[int, int] | None) -> None:
    assert median_interval(random.Random(0).sample(range(1, n + 1), n)) == ranks


@pytest.mark.parametrize(("n", "coverage"), [(10, 0.9785), (20, 0.9586)])
def test_interval_of_the_median_has_its_nominal_coverage(n: int, coverage: float) -> None:
    """4,000 draws from a skewed distribution (lognormal, median 1) have a standard error of 0.3%."""
    draws = np.random.default_rng(3).lognormal(size=(4000, n))
    covered = [low <= 1 <= high for low, high in map(median_interval, draws.tolist())]  # type: ignore[misc]
    assert np.mean(covered) == pytest.approx(coverage, abs=0.009)


@pytest.mark.parametrize(
    ("dof", "shown", "decided"),
    [
        (1, 12.706, 63.657),
        (2, 4.303, 9.925),
        (4, 2.776, 4.604),
        (30, 2.042, 2.750),
        (500, 1.965, 2.586),
        (math.inf, 1.960, 2.576),
    ],
)
def test_students_quantiles_are_the_textbook_ones(dof: float, shown: float, decided: float) -> None:
    assert student_quantile(0.95, dof) == pytest.approx(shown, abs=6e-4)
    assert student_quantile(0.99, dof) == pytest.approx(decided, abs=6e-4)


def test_noise_is_the_pooled_variance_and_counts_for_half() -> None:
    """Three rounds have a variance of 4 and two have 1, in units of 1e-4: (2 * 4 + 1 * 1) / 3 = 3."""
    noise = estimate_noise([(3, 4e-4), (2, 1e-4)])
    assert noise is not None
    assert noise.std == pytest.approx(math.sqrt(3e-4))
    assert (noise.dof, noise.cells) == (1.5, 2)
    assert estimate_noise([]) is None
    many = estimate_noise([(3, 4e-4)] * 10)
    assert many is not None
    assert many.dof == 2, "at most"


def test_one_process_without_known_noise_gives_no_verdict() -> None:
    a, b = (estimate([summarize_round([ms] * 20)]) for ms in (2.0, 1.0))
    assert (a.ms, a.low_ms, a.std, next_process_interval(a)) == (2.0, None, None, None)
    found = ratio(a, b)
    assert (found.ratio, found.low, found.high, found.outcome) == (2.0, None, None, "undecided")


def test_one_process_with_the_noise_of_its_machine() -> None:
    """5% with four degrees of freedom: 2.776 times that for the cell, and √2 times that for next process and ratio."""
    noise = Noise(std=0.05, dof=4, cells=8)
    a, b = (estimate([summarize_round([ms] * 20)], noise) for ms in (1.3, 1.0))
    reach = 2.7764451 * 0.05
    assert (b.low_ms, b.high_ms) == pytest.approx((math.exp(-reach), math.exp(reach)))
    assert next_process_interval(b) == pytest.approx((math.exp(-reach * 2**0.5), math.exp(reach * 2**0.5)))
    found = ratio(a, b)
    decides = 4.6040949 * 0.05 * 2**0.5
    assert (found.low, found.high) == pytest.approx((1.3 * math.exp(-decides), 1.3 * math.exp(decides)))
    assert found.level == 0.99
    assert found.outcome == "undecided", "99% needs 4.604 * 5% * √2 = 32.6% on the log scale, and ln 1.3 is 26.2%"
    assert ratio(estimate([summarize_round([1.4] * 20)], noise), b).outcome == "faster"
    assert ratio(b, estimate([summarize_round([1.4] * 20)], noise)).outcome == "slower"


def test_two_gpus_of_one_kind_may_differ() -> None:
    """0.6% each, with the 99% of the normal distribution and no noise to speak of."""
    compare = partial(ratio, device_std=0.006)
    noise = Noise(std=1e-4, dof=1e6, cells=8)
    a, b, same = (
        estimate([replace(summarize_round([10.0 + 1e-6 * n for n in range(20)]), device_uuid=gpu)], noise)
        for gpu in ("GPU-1", "GPU-2", "GPU-1")
    )
    found = compare(a, b)
    assert found.high == pytest.approx(math.exp(2.5758 * 0.006 * 2**0.5), rel=1e-4)
    assert found.outcome == "undecided"
    assert compare(a, same).outcome == "same"
    unknown = [estimate([summarize_round([10.0] * 20)], noise) for _ in range(2)]
    assert compare(a, unknown[0]).outcome == "undecided", "which GPU is not known"
    assert compare(*unknown).outcome == "same", "as on a CPU"
    most = estimate([replace(summarize_round([10.0] * 20), device_uuid=f"GPU-{n}") for n in (1, 1, 2)], noise)
    high = compare(a, most).high
    assert high == pytest.approx(math.exp(2.5758 * 0.006 * (2 / 9) ** 0.5), rel=1e-3), "a third of its rounds"


def test_rounds_alone_give_students_interval() -> None:
    """Medians of 1, e^0.1 and e^0.2 have a standard deviation of 0.1 on the log scale, around e^0.1."""
    found = estimate([summarize_round([math.exp(log)] * 6) for log in (0.0, 0.1, 0.2)])
    reach = 4.3026527 * 0.1 / math.sqrt(3)
    assert found.ms == pytest.approx(math.exp(0.1))
    assert (found.low_ms, found.high_ms) == pytest.approx((math.exp(0.1 - reach), math.exp(0.1 + reach)))


def test_variation_within_a_process_is_never_ignored() -> None:
    """The interval of samples from 9 to 11 ms is 9 to 11, and a noise of 0.1% does not make it narrower."""
    found = estimate([summarize_round([9, 9.5, 10, 10, 10.5, 11])], Noise(std=0.001, dof=4, cells=8))
    assert found.std == pytest.approx(math.log(11 / 9) / (2 * 1.959964))


def test_six_rounds_say_themselves_how_much_they_differ() -> None:
    """Whose medians are e^±0.01: their variance is 6/5 of 1e-4, and other cells differ ten times as much. With five
    rounds, whose variance is 4/5 · 6/5 of 1e-4, those count for 2 degrees of freedom in 6. Two cells of six rounds have
    10 degrees of freedom together, and from six rounds on a verdict needs 99.5%."""
    noise = Noise(std=0.1, dof=2, cells=5)
    rounds = [RoundTime(median_ms=math.exp(sign * 0.01), n=20) for sign in (1, -1, 1, -1, 1, -1)]
    own, pooled = estimate(rounds, noise), estimate(rounds[:5], noise)
    assert (own.dof, pooled.dof) == (5, 6)
    assert own.std == pytest.approx(math.sqrt(1.2e-4))
    assert pooled.std == pytest.approx(math.sqrt((4.8e-4 + 2 * 0.01) / 6))
    found = ratio(estimate([RoundTime(median_ms=1.03 * one.median_ms, n=20) for one in rounds], noise), own)
    assert math.log((found.high or 0) / found.ratio) == pytest.approx(3.5814 * math.sqrt(2 * 1.2e-4 / 6), rel=1e-4)
    assert found.outcome == "faster", "the interval, 2.3% to each side, excludes 1"
    bit_longer = estimate([RoundTime(median_ms=1.022 * one.median_ms, n=20) for one in rounds], noise)
    assert ratio(bit_longer, own).outcome == "undecided", "99% would need 2.0%"


def test_a_time_shorter_than_the_devices_work_may_be_as_long_in_the_next_process() -> None:
    """One process took 10.6 ms for what the device needs 11.2 ms, another 11.2 ms: the interval of the first reaches up
    by another 11.2 / 10.6, and the two are not different, in neither order. To 20 ms both are."""
    noise = Noise(std=0.001, dof=4, cells=4)
    fast = estimate([RoundTime(median_ms=10.6, n=20, device_ms=11.2)], noise)
    usual, slow = (estimate([RoundTime(median_ms=ms, n=20)], noise) for ms in (11.2, 20.0))
    reach = math.exp(2.7764 * 0.001)
    assert (fast.low_ms, fast.high_ms) == pytest.approx((10.6 / reach, 11.2 * reach))
    assert [ratio(*pair).outcome for pair in ((usual, fast), (fast, usual))] == ["undecided", "undecided"]
    assert [ratio(*pair).outcome for pair in ((slow, fast), (fast, slow))] == ["faster", "slower"]
    found = ratio(slow, fast)
    error = math.exp(2.7764 * 0.001 * math.sqrt(2))
    decides = math.exp(4.6041 * 0.001 * math.sqrt(2))
    assert (found.low, found.high) == pytest.approx((20 / 11.2 / decides, 20 / 10.6 * decides))
    assert next_process_interval(fast) == pytest.approx((10.6 / error, 11.2 * error))


def test_a_time_within_the_accuracy_of_the_device_time_is_of_the_same_speed() -> None:
    assert find_shift(10.0, 10.19) == find_shift(10.0, None) == find_shift(None, 10.0) == find_shift(10.0, 4.0) == 0
    assert find_shift(10.0, 10.21) == pytest.approx(math.log(1.021))


def test_two_times_are_the_same_where_the_interval_lies_within_one_percent() -> None:
    """0.01% with four degrees of freedom: the 99% interval of a ratio is ±0.065%. 0.9% lies within 1% of 1; 1.1% is
    slower, beyond the interval; with a noise of 1% neither is decided."""
    for std, longer, outcome in ((1e-4, 1.009, "same"), (1e-4, 1.011, "slower"), (0.01, 1.009, "undecided")):
        noise = Noise(std=std, dof=4, cells=8)
        a, b = (estimate([summarize_round([ms] * 20)], noise) for ms in (1.0, longer))
        assert ratio(a, b).outcome == outcome


def test_the_smallest_difference_that_can_be_detected() -> None:
    """From the table of t for 99%: 4.604 for 4 degrees of freedom, 3.355 for 8. With one process each, 4.604 * 0.02 *
    √2 = 0.13022, and exp of it is 1.1391; with five each, 3.355 * 0.02 * √0.4 = 0.04244, and 1.0434. Where a typical
    cell has 3%, five rounds have √((4 * 3² + 4 * 2²) / 8) = 2.55%."""
    noise = Noise(std=0.02, dof=4, cells=5)
    assert resolvable(noise) == pytest.approx(0.1391, abs=1e-4)
    assert resolvable(noise, rounds=5) == pytest.approx(0.0434, abs=1e-4)
    assert resolvable(replace(noise, typical=0.03), rounds=5) == pytest.approx(math.exp(0.05410) - 1, rel=1e-3)
    assert resolvable(replace(noise, typical=0.03)) == resolvable(noise), "one round says nothing of its own"
    assert resolvable(Noise(std=0.07, dof=0.5, cells=1)) == math.inf  # one cell in two processes says very little


@pytest.mark.parametrize("rounds", [1, 5, 6])
def test_the_detectable_difference_agrees_with_the_verdict(rounds: int) -> None:
    """The rounds differ as much as the noise. A slightly larger difference gives a verdict, a smaller one none."""
    noise = Noise(std=0.02, dof=4, cells=5)
    places = [place - (rounds - 1) / 2 for place in range(rounds)]
    scale = 0.02 / math.sqrt(variance(places)) if rounds > 1 else 0.0
    logs = [scale * place for place in places]
    for hair in (0.99, 1.01):
        factor = 1 + hair * resolvable(noise, rounds=rounds)
        a, b = (estimate([RoundTime(median_ms=ms * math.exp(x), n=20) for x in logs], noise) for ms in (factor, 1.0))
        assert (ratio(a, b).outcome == "faster") is (hair > 1)


@pytest.mark.parametrize(("rounds", "spread"), some(product((3, 2, 5, 8), (6.0, math.inf))))
def test_intervals_have_their_coverage_with_two_levels_of_variation(rounds: int, spread: float) -> None:
    """A sweep has eight cells; each process differs by 5% and each sample by 2%. The cells' own variances are equal, or
    scaled inverse chi-squared with six degrees of freedom. The standard error of 2,400 intervals is 0.5%."""
    generator = random.Random(rounds)
    covered = wrong = pairs = cells = 0
    for _ in range(300):
        made = [measure_rounds(generator, [0.0] * rounds, 0.05, spread, of_samples=0.02, known=False) for _ in range(8)]
        noise = estimate_noise([(rounds, variance(math.log(found.median_ms) for found in cell)) for cell in made])
        times = [estimate(cell, noise) for cell in made]
        covered += sum((time.low_ms or 0) <= 1 <= (time.high_ms or 0) for time in times)
        cells += len(times)
        for a, b in zip(times[::2], times[1::2], strict=True):
            wrong += ratio(a, b).outcome in ("faster", "slower")
            pairs += 1
    assert 0.935 <= covered / cells <= 0.985
    assert wrong / pairs <= 0.015


def test_special_functions_are_those_of_the_tables() -> None:
    """ψ(1) = -γ, ψ(1/2) = -γ - 2 ln 2, ψ'(1) = π²/6, ψ'(1/2) = π²/2; and ψ'(20) = 0.0512708."""
    gamma = 0.5772156649
    assert digamma(1) == pytest.approx(-gamma, abs=1e-8)
    assert digamma(0.5) == pytest.approx(-gamma - 2 * math.log(2), abs=1e-8)
    assert trigamma(1) == pytest.approx(math.pi**2 / 6, rel=1e-8)
    assert trigamma(0.5) == pytest.approx(math.pi**2 / 2, rel=1e-8)
    assert trigamma(20) == pytest.approx(0.0512708, rel=1e-5)
    assert invert_trigamma(trigamma(0.37)) == pytest.approx(0.37, rel=1e-9)


def test_equal_cells_are_pooled_and_unequal_ones_have_fewer_degrees_of_freedom() -> None:
    """Six cells of six rounds. With the same variance they are pooled; where one has a hundred times that of the
    others, the noise counts for less, and its scale is not that of the one."""
    equal = estimate_noise([(6, 1e-4)] * 6)
    assert equal == Noise(std=pytest.approx(0.01), dof=MAX_NOISE_DOF, cells=6)  # type: ignore[arg-type]
    unequal = estimate_noise([(6, 1e-6), (6, 2e-6), (6, 4e-6), (6, 5e-7), (6, 1e-6), (6, 1e-4)])
    assert unequal is not None
    assert unequal.dof < 2
    assert unequal.std < math.sqrt(1.085e-4 / 6), "less than the pooled one"
    log = sum(map(math.log, (1e-6, 2e-6, 4e-6, 5e-7, 1e-6, 1e-4))) / 6 + math.log(2.5) - digamma(2.5)
    assert unequal.typical == pytest.approx(math.exp(log / 2)), "ln(variance) of six is too low"


def test_few_cells_do_not_say_how_unequal_they_are() -> None:
    few = [(6, 1e-6)] * (MIN_CELLS - 2) + [(6, 1e-4)]
    noise = estimate_noise(few)
    assert noise is not None
    assert noise.std == pytest.approx(math.sqrt(sum(variance for _, variance in few) / len(few)))


@pytest.mark.parametrize("true", [1.0, 2.0])
def test_the_distribution_of_variances_is_found(true: float) -> None:
    """Of 3,000 cells with five rounds each, whose variances are 1e-4 times scaled inverse chi-squared."""
    generator = random.Random(3)
    variances = (_variance(generator, true) * generator.gammavariate(2, 2) / 4 for _ in range(3000))
    noise = estimate_noise([(5, variance) for variance in variances])
    assert noise is not None
    assert noise.dof == pytest.approx(true, rel=0.1)
    assert noise.std == pytest.approx(0.01, rel=0.1)


@pytest.mark.soak
def test_a_cell_that_is_noisier_than_the_others_is_rarely_called_different() -> None:
    """Twelve cells, whose variances are as unequal as those of an H200 (one degree of freedom), are known by five
    rounds each. Another two, equal ones of a kind that differs as much, are measured once. With their
    median variance and four degrees of freedom, more than one pair in twenty would be called different."""
    generator, wrong, before, count = random.Random(11), 0, 0, 3000
    for _ in range(count):
        known = [(5, _variance(generator, 1.0) * generator.gammavariate(2, 2) / 4) for _ in range(12)]
        own = min(math.sqrt(_variance(generator, 1.0)), 1.0)
        sides = [[RoundTime(median_ms=math.exp(generator.gauss(0, own)), n=20)] for _ in range(2)]
        noise = estimate_noise(known)
        assert noise is not None
        wrong += ratio(*(estimate(side, noise) for side in sides)).outcome in ("faster", "slower")
        middle = sorted(variance for _, variance in known)[6]
        pooled = Noise(std=math.sqrt(middle), dof=4, cells=12)
        before += ratio(*(estimate(side, pooled) for side in sides)).outcome in ("faster", "slower")
    assert wrong / count <= 0.03
    assert before / count > 0.05


def _variance(generator: random.Random, dof: float) -> float:
    return 1e-4 * dof / generator.gammavariate(dof / 2, 2)
