"""Where the next process lands, by formulas worked out a second way and by simulation; and what is said of it."""

import math
import statistics

import numpy as np
import pytest

from runner.analysis.compare.replay import Replayed, describe, next_process_interval, pair_up

#: Student's t, two-sided 95%, from printed tables (Abramowitz and Stegun 1964, table 26.10).
QUANTILES = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 20: 2.086}


@pytest.mark.parametrize("dof", QUANTILES)
def test_the_interval_is_that_of_one_more_draw(dof: int) -> None:
    n = dof + 1
    medians = [10.0 * 1.02**place for place in range(n)]
    interval = next_process_interval(medians)
    assert interval is not None
    # The logs are equally spaced by h = log 1.02: their variance is h² n (n + 1) / 12, their mean that of both ends.
    h = math.log(1.02)
    reach = QUANTILES[dof] * math.sqrt(h * h * n * (n + 1) / 12) * math.sqrt(1 + 1 / n)
    middle = math.log(10.0) + h * (n - 1) / 2
    assert interval == pytest.approx((math.exp(middle - reach), math.exp(middle + reach)), rel=2e-4 * dof)


@pytest.mark.parametrize("rounds", [2, 3, 5, 8])
def test_the_next_process_lands_inside_in_95_of_100_cases(rounds: int) -> None:
    generator = np.random.default_rng(rounds)
    draws = np.exp(generator.normal(3.0, 0.1, size=(4000, rounds + 1)))
    inside = 0
    for *medians, following in draws.tolist():
        interval = next_process_interval(medians)
        assert interval is not None
        inside += interval[0] <= following <= interval[1]
    assert inside / 4000 == pytest.approx(0.95, abs=0.011), "three standard errors"


def test_one_process_claims_nothing() -> None:
    assert next_process_interval([12.0]) is None
    alone = Replayed(phase="step", medians_ms=(12.0,), again_ms=12.6)
    assert (alone.interval_ms, alone.is_inside) == (None, None)
    words = describe(alone)
    assert words.startswith("The whole step takes 12.6 ms now and 12.0 ms in the file (one process): 5.0% longer.")
    assert "unknown, because the cell was measured in one process" in words


@pytest.mark.parametrize(
    ("again", "inside", "words"),
    [(10.0, True, "It lands inside"), (7.0, False, "outside, below"), (14.0, False, "outside, above")],
)
def test_inside_or_on_which_side(again: float, inside: bool, words: str) -> None:
    rounds = (9.8, 10.0, 10.2)
    replayed = Replayed(phase="step", medians_ms=rounds, again_ms=again)
    assert replayed.is_inside is inside
    assert words in describe(replayed)
    # std of the logs 0.0200, t(2) 4.303, √(4/3): a factor of e^±0.0994 about 9.999.
    assert "9.05–11.0 ms" in describe(replayed)
    assert statistics.median(rounds) == 10.0


def test_the_whole_cell_or_the_widest_phase_that_both_have() -> None:
    found = pair_up([{"step": 3.0, "forward": 1.0}, {"step": 3.2, "forward": 1.1}], {"step": 3.1, "forward": 1.0})
    assert found == Replayed(phase="step", medians_ms=(3.0, 3.2), again_ms=3.1)
    passes = pair_up([{"step": 3.0, "forward_backward": 2.9}], {"step": 3.1, "forward_backward": 2.8},
                     whole="forward_backward")  # fmt: skip
    assert passes == Replayed(phase="forward_backward", medians_ms=(2.9,), again_ms=2.8)
    assert pair_up([{"forward": 1.0}], {"step": 3.1, "forward": 1.2}, whole="forward_backward") == Replayed(
        phase="forward", medians_ms=(1.0,), again_ms=1.2
    )
    assert pair_up([], {"step": 3.1}) is None
