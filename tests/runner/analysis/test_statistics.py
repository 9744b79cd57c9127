"""Intervals: against values worked out by hand, and against how often they cover the truth."""

import math
import time

import numpy as np
import pytest

from runner.analysis.statistics import median_interval, ratio_interval, summarize
from runner.errors import UsageError


def test_summary_worked_out_by_hand() -> None:
    """Mean 5, squared distances 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16 = 32, so std = sqrt(32 / 7)."""
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


@pytest.mark.parametrize(
    ("n", "ranks"),
    [
        (5, None),  # 1 - 2 (1/32) = 93.75%, too little
        (6, (1, 6)),  # 1 - 2 (1/64) = 96.88%
        (8, (1, 8)),  # one rank further in: 1 - 2 (1 + 8)/256 = 92.97%
        (9, (2, 8)),  # 1 - 2 (1 + 9)/512 = 96.09%
        (10, (2, 9)),  # 1 - 2 (1 + 10)/1024 = 97.85%
        (20, (6, 15)),  # the table of the sign test: 95.86%
        (100, (40, 61)),  # likewise: 96.48%
    ],
)
def test_interval_of_the_median_is_the_textbook_one(n: int, ranks: tuple[int, int] | None) -> None:
    shuffled = np.random.default_rng(0).permutation(np.arange(1, n + 1)).tolist()
    assert median_interval(shuffled) == ranks


@pytest.mark.parametrize(("n", "coverage"), [(10, 0.9785), (20, 0.9586)])
def test_interval_of_the_median_covers_it_as_often_as_it_says(n: int, coverage: float) -> None:
    """4,000 draws from a skewed distribution (lognormal, median 1): a standard error of 0.3%."""
    draws = np.random.default_rng(3).lognormal(size=(4000, n))
    covered = [low <= 1 <= high for low, high in map(median_interval, draws.tolist())]  # type: ignore[misc]
    assert np.mean(covered) == pytest.approx(coverage, abs=0.009)


def test_ratio_of_constants_is_certain() -> None:
    ratio = ratio_interval([[6.0] * 4, [6.0] * 4], [[3.0] * 8])
    assert (ratio.ratio, ratio.low, ratio.high) == (2, 2, 2)


def test_ratio_of_one_round_equals_the_exact_bootstrap() -> None:
    """The median of 7 draws from 1..7 is at most k with probability P(Binomial(7, k / 7) >= 4): 0.97% for k = 1 and
    9.3% for k = 2, so the 2.5% quantile is 2, and by symmetry the 97.5% quantile is 6."""
    at_most = [sum(math.comb(7, j) * (k / 7) ** j * (1 - k / 7) ** (7 - j) for j in range(4, 8)) for k in (1, 2)]
    assert at_most[0] < 0.025 < at_most[1]
    ratio = ratio_interval([[1, 2, 3, 4, 5, 6, 7]], [[2.0] * 6])
    assert (ratio.ratio, ratio.low, ratio.high) == (2, 1, 3)


@pytest.mark.parametrize("n", [8, 15])
def test_drawing_medians_equals_drawing_samples(n: int) -> None:
    """The shortcut through order statistics against a bootstrap that makes every draw."""
    a, b = np.random.default_rng(5).lognormal(size=(2, n))
    generator = np.random.default_rng(6)
    draws = [np.median(generator.choice(side, size=(200_000, n)), axis=1) for side in (a, b)]
    expected = np.quantile(draws[0] / draws[1], (0.025, 0.975))
    got = ratio_interval([a.tolist()], [b.tolist()], resamples=200_000)
    assert (got.low, got.high) == pytest.approx(tuple(expected), rel=0.02)


def test_rounds_that_disagree_widen_the_interval() -> None:
    generator = np.random.default_rng(7)
    steady = generator.normal(10, 0.05, size=(3, 20))
    drifting = steady + np.array([[0.0], [1.0], [2.0]])
    base = generator.normal(5, 0.05, size=(3, 20))
    narrow = ratio_interval(steady.tolist(), base.tolist())
    wide = ratio_interval(drifting.tolist(), base.tolist())
    assert narrow.low is not None
    assert narrow.high is not None
    assert wide.low is not None
    assert wide.high is not None
    assert narrow.high - narrow.low < 0.05
    assert wide.low < 10.1 / 5
    assert wide.high > 11.9 / 5


def test_drift_that_both_sides_share_cancels() -> None:
    """In each of three rounds both sides are slower by the same factor: the ratio stays 2."""
    factors = np.array([[1.0], [1.5], [2.0]])
    noise = np.random.default_rng(8).normal(1, 0.01, size=(2, 3, 20))
    ratio = ratio_interval((2 * factors * noise[0]).tolist(), (factors * noise[1]).tolist())
    assert ratio.low == pytest.approx(2, abs=0.05)
    assert ratio.high == pytest.approx(2, abs=0.05)


def test_ratio_is_reproducible_and_admits_ignorance() -> None:
    a, b = [[3.0, 3.1, 2.9, 3.3, 3.0, 3.2]], [[1.0, 1.2, 1.1, 0.9, 1.0, 1.3]]
    assert ratio_interval(a, b) == ratio_interval(a, b)
    few = ratio_interval([[3.0, 3.1]], b)
    assert few.ratio == pytest.approx(3.05 / 1.05)
    assert few.low is few.high is None
    with pytest.raises(UsageError, match="no samples"):
        ratio_interval([[]], b)


def test_a_page_of_ratios_is_quick() -> None:
    """200 pairs of three rounds of 30 samples; about 0.3 s of processor time, 2 s leaves room for a slow machine."""
    rounds = np.random.default_rng(9).lognormal(size=(200, 2, 3, 30)).tolist()
    began = time.process_time()
    for a, b in rounds:
        ratio_interval(a, b)
    assert time.process_time() - began < 2
