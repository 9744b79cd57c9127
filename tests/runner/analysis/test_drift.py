"""Drift from the first process to the last, against intervals worked out by hand."""

import math

import pytest

from runner.analysis.drift import find_drift
from runner.results import Noise, RoundTime

NOISE = Noise(std=0.02, dof=4, cells=5)


def rounds(*medians: float) -> list[RoundTime]:
    return [RoundTime(median_ms=ms, n=20) for ms in medians]


def test_one_process_and_the_noise_say_where_the_next_lands() -> None:
    """t for 95% and 4 degrees of freedom is 2.776: exp(2.776 * 0.02 * √2) = 1.0817."""
    inside = find_drift(rounds(10.0, 10.8), NOISE)
    assert inside.expected == pytest.approx((10 / 1.0817, 10.817), rel=1e-4)
    assert inside.change == pytest.approx(0.08)
    assert inside.exceeds is False
    assert find_drift(rounds(10.0, 10.9), NOISE).exceeds
    assert find_drift(rounds(10.0, 9.1), NOISE).exceeds


def test_a_slow_first_process_is_not_the_measure_of_the_last() -> None:
    """The six in the middle and the last agree, so that the last lies where it was to be expected."""
    drift = find_drift(rounds(11.0, *[10.0] * 6, 10.0), NOISE)
    assert drift.change == pytest.approx(-1 / 11)
    assert drift.exceeds is False


def test_without_noise_two_processes_say_nothing() -> None:
    drift = find_drift(rounds(10.0, 20.0))
    assert (drift.expected, drift.exceeds, drift.change) == (None, None, 1.0)


def test_rounds_speak_for_themselves() -> None:
    """ln(median) of the two before differ by 0.01, a std of 0.00707; t for 95% and 1 degree of freedom is 12.706:
    their mean, 10.0501, times or over exp(12.706 * 0.00707 * √1.5) = 1.1163."""
    before = (10.0, 10.0 * math.exp(0.01))
    assert find_drift(rounds(*before, 11.2)).expected == pytest.approx((9.0029, 11.2192), rel=1e-4)
    assert find_drift(rounds(*before, 11.2)).exceeds is False
    assert find_drift(rounds(*before, 11.3)).exceeds is True
