"""How unequal the cells of a kind are: by tables of special functions, and by simulated cells."""

import math
import random

import pytest

from runner.analysis.noise import MAX_NOISE_DOF, MIN_CELLS, digamma, estimate_noise, invert_trigamma, trigamma
from runner.analysis.statistics import estimate, ratio
from runner.results import Noise, RoundTime


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


def test_few_cells_do_not_say_how_unequal_they_are() -> None:
    few = [(6, 1e-6)] * (MIN_CELLS - 2) + [(6, 1e-4)]
    noise = estimate_noise(few)
    assert noise is not None
    assert noise.std == pytest.approx(math.sqrt(sum(variance for _, variance in few) / len(few)))


@pytest.mark.parametrize("true", [1.0, 2.0])
def test_the_distribution_of_variances_is_found(true: float) -> None:
    """Of 3,000 cells with five rounds each, whose variances are 1e-4 times scaled inverse chi-squared."""
    generator = random.Random(3)
    noise = estimate_noise([(5, _variance(generator, true) * generator.gammavariate(2, 2) / 4) for _ in range(3000)])
    assert noise is not None
    assert noise.dof == pytest.approx(true, rel=0.1)
    assert noise.std == pytest.approx(0.01, rel=0.1)


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
