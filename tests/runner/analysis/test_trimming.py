"""Of many rounds those that a neighbor slowed down count less: by hand, and by simulations of a shared machine."""

import math
import random
from statistics import fmean

import pytest

from runner.analysis.statistics import count_trimmed, estimate, ratio, standard_error, trimmed_mean, winsorize
from runner.results.times import Estimate, Noise, Spread
from tests.rounds import rounds_of

#: What lets times of the same rounds be compared round by round; of six rounds and more its figures do not count.
NOISE = Noise(std=0.1, dof=2, cells=5, within_rounds=Spread(std=0.1, dof=2))


def estimate_logs(logs: list[float], noise: Noise | None = NOISE) -> Estimate:
    return estimate(rounds_of(logs), noise)


def test_a_fifth_is_left_out_at_each_end_from_eight_rounds_on() -> None:
    assert [count_trimmed(rounds) for rounds in (1, 7, 8, 9, 10, 14, 15)] == [0, 0, 1, 1, 2, 2, 3]
    assert trimmed_mean([1, 2, 3, 4, 5, 6, 100]) == pytest.approx(121 / 7)
    assert trimmed_mean([100, 1, 2, 3, 4, 5, 6, 7]) == 4.5


def test_yuens_standard_error_by_hand() -> None:
    """Of 1 to 7 and 100 the mean keeps 2 to 7, and 2, 2, 3, 4, 5, 6, 7, 7 are the winsorized values. Around their mean,
    4.5, they have a sum of squares of 30, which is divided by 6 · 5."""
    values = [100.0, 1, 2, 3, 4, 5, 6, 7]
    assert winsorize(values) == [7, 2, 2, 3, 4, 5, 6, 7]
    assert standard_error(winsorize(values)) == Spread(std=1.0, dof=5)


def test_one_disturbed_round_in_ten_hardly_widens_the_interval() -> None:
    """Rounds from -1% to 1%, of which one takes twice as long. With all of them the interval would reach to 1.2."""
    quiet = [-0.01, -0.008, -0.005, -0.002, 0.0, 0.002, 0.005, 0.008, 0.01, 0.004]
    alone, disturbed = estimate_logs(quiet), estimate_logs([*quiet[:-1], math.log(2)])
    assert disturbed.ms == pytest.approx(alone.ms, rel=0.002)
    assert 1 < (disturbed.high_ms or 0) < 1.012
    assert (disturbed.std or 0) > 0.2, "the next process may be disturbed, too"


def test_pairs_are_compared_without_the_outermost_rounds() -> None:
    """A takes 3% ± 0.1% longer than B in each of ten rounds, which drift by 10%: only round by round is that found,
    also where two rounds take twice as long."""
    drift = [0.0, 0.1, 0.03, 0.07, 0.05, 0.02, 0.08, 0.04, 0.06, 0.01]
    for rounds in (drift, [*drift[:-2], math.log(2), math.log(2)]):
        a = [x + 0.03 + sign * 0.001 for x, sign in zip(rounds, (1, -1) * 5, strict=True)]
        assert ratio(estimate_logs(a), estimate_logs(rounds)).outcome == "faster"
        assert ratio(estimate_logs(a, None), estimate_logs(rounds, None)).outcome == "undecided"


def test_a_difference_is_found_where_one_process_in_ten_is_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """15 rounds, processes that differ by 1.5%, and one in ten that takes half as long again: 6% are found by more than
    nine in ten, where means of all rounds find less than half. Equal cells differ in no more than one of a hundred."""
    generator = random.Random(1)

    def measure(factor: float) -> list[float]:
        slowed = (math.log(1.5) if generator.random() < 0.1 else 0.0 for _ in range(15))
        return [math.log(factor) + generator.gauss(0, 0.015) + more for more in slowed]

    def find(pairs: list[tuple[list[float], list[float]]]) -> float:
        outcomes = [ratio(estimate_logs(a, None), estimate_logs(b, None)).outcome for a, b in pairs]
        return fmean(outcome in ("faster", "slower") for outcome in outcomes)

    different = [(measure(1.06), measure(1.0)) for _ in range(300)]
    assert find(different) > 0.9
    assert find([(measure(1.0), measure(1.0)) for _ in range(600)]) <= 0.01
    monkeypatch.setattr("runner.analysis.statistics.TRIMMED_ROUNDS", 100)
    assert find(different) < 0.5
