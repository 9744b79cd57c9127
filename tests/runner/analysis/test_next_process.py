"""Where the next process is expected, by formulas computed a second way and by simulation; the sentences about it."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from runner.analysis.statistics import estimate, next_process_interval
from runner.cli.again import describe_again
from runner.results.times import Clock, Estimate, Noise, RoundTime
from tests.runner.answers.shipped import shipped

#: Student's t, two-sided 95%, from printed tables (Abramowitz and Stegun 1964, table 26.10).
QUANTILES = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 20: 2.086}


def of(medians: Sequence[float], noise: Noise | None = None) -> Estimate:
    """Returns the time of rounds with these medians, of ten samples each."""
    return estimate([RoundTime(median_ms=ms, n=10) for ms in medians], noise)


def again(medians: Sequence[float], ms: float, noise: Noise | None = None) -> tuple[str, bool | None]:
    return describe_again("step", of(medians, noise), ms)


@pytest.mark.parametrize("dof", QUANTILES)
def test_the_interval_is_that_of_one_more_observation(dof: int) -> None:
    """Hahn and Meeker 1991, "Statistical Intervals", section 4.7: mean ± t · std · √(1 + 1/n), on the log scale."""
    n = dof + 1
    interval = next_process_interval(of([10.0 * 1.02**place for place in range(n)]))
    # The logs are equally spaced by h = log 1.02: their variance is h² n (n + 1) / 12, their mean is that of both ends.
    h = math.log(1.02)
    reach = QUANTILES[dof] * math.sqrt(h * h * n * (n + 1) / 12) * math.sqrt(1 + 1 / n)
    middle = math.log(10.0) + h * (n - 1) / 2
    assert interval == pytest.approx((math.exp(middle - reach), math.exp(middle + reach)), rel=2e-4 * dof)


@pytest.mark.parametrize("rounds", [2, 3, 5, 8])
def test_the_next_process_is_inside_in_95_of_100_cases(rounds: int) -> None:
    generator = np.random.default_rng(rounds)
    draws = np.exp(generator.normal(3.0, 0.1, size=(4000, rounds + 1)))
    inside = sum(bool(again(medians, following)[1]) for *medians, following in draws.tolist())
    assert inside / 4000 == pytest.approx(0.95, abs=0.011), "within three standard errors"


def test_one_process_gives_an_interval_where_the_noise_is_known() -> None:
    """With four degrees of freedom: e^±(2.776 · 0.02 · √2), a factor of 1.0817."""
    words, is_inside = again([12.0], 12.6)
    assert is_inside is None
    assert words.startswith("The whole step takes 12.6 ms now and 12.0 ms in that run (one process): 5.0% longer.")
    assert "unknown, because the cell was measured in one process" in words
    noise = Noise(std=0.02, dof=4, cells=3)
    assert next_process_interval(of([12.0], noise)) == pytest.approx((12.0 / 1.0817, 12.0 * 1.0817), rel=1e-4)
    words, is_inside = again([12.0], 12.6, noise)
    assert is_inside is True
    assert (
        "inside the 95% interval that the file claims for the next process, from the noise that 3 cells repeated on "
        "that machine showed, 11.1–13.0 ms"
    ) in words


@pytest.mark.parametrize(
    ("ms", "inside", "words"),
    [(10.0, True, "It lands inside"), (7.0, False, "outside, below"), (14.0, False, "outside, above")],
)
def test_inside_or_on_which_side(ms: float, inside: bool, words: str) -> None:
    said, is_inside = again((9.8, 10.0, 10.2), ms)
    assert is_inside is inside
    assert words in said
    # The std of the logs is 0.0200, t(2) is 4.303, and √(4/3): a factor of e^±0.0994 around 9.999.
    assert "9.05–11.0 ms" in said
    assert "10.0 ms in that run (the mean of 3 processes)" in said


@pytest.mark.parametrize("clock", ["step", "loop", "device"])
def test_a_left_out_process_lies_where_the_next_one_is_predicted(clock: Clock) -> None:
    """Of every shipped cell that one run measured in several processes, each is left out in turn: its median lies
    inside the 95% interval that the others predict in 93% and more. An interval of their mean holds fewer."""
    times = [
        time
        for run in shipped("by_run").by_run
        for one in (*run.steps, *run.attention)
        if "step" in one.times and (time := one.times["step"].by(clock)) and len(time.medians) > 1
    ]
    held, of_mean, count = 0, 0, 0
    for time in times:
        for left_out, median_ms in time.medians.items():
            rest = [RoundTime(median_ms=ms, n=20, id=id) for id, ms in time.medians.items() if id != left_out]
            known = estimate(rest, time.noise)
            low, high = next_process_interval(known) or (0.0, math.inf)
            held += low <= median_ms <= high
            of_mean += (known.low_ms or 0.0) <= median_ms <= (known.high_ms or math.inf)
            count += 1
    assert count > 300
    assert 0.93 <= held / count < 1
    assert of_mean < held
