"""On a CPU, cells in many rounds are compared by their undisturbed times: by hand, and by a simulation of neighbors."""

import math
import random
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest

from runner.analysis.statistics import OWN_ROUNDS, Ratio, estimate, lower_decile, ratio
from runner.answers import ask
from runner.results.times import Noise, RoundTime, Spread
from runner.store.read import read
from runner.store.read.selection import Selection
from runner.store.read.timed import load_steps
from tests.rounds import summarize_round
from tests.synthetic import neighbors
from tests.synthetic.neighbors import SLOWED

NOISE = Noise(std=0.05, dof=2, cells=5, within_rounds=Spread(std=0.05, dof=2))


def rounds(undisturbed: list[float | None], *, ms: float = 10.0) -> list[RoundTime]:
    return [
        RoundTime(median_ms=ms * slowed, n=20, id=(UUID(int=1), number), undisturbed_ms=alone)
        for number, (slowed, alone) in enumerate(zip(SLOWED, undisturbed, strict=False))
    ]


def test_the_tenth_percentile_by_hand() -> None:
    """Of eleven samples it is the second; of ten it lies nine tenths of the way from the first to the second."""
    assert lower_decile([float(x) for x in range(11, 0, -1)]) == 2.0
    assert lower_decile([float(x) for x in range(1, 11)]) == pytest.approx(1.9)
    samples = [random.Random(1).expovariate(1) for _ in range(37)]
    assert lower_decile(samples) == pytest.approx(np.quantile(samples, 0.1))
    assert lower_decile([1.0] * 5) is None, "too few to say"


def test_a_ratio_is_that_of_the_undisturbed_times() -> None:
    """A's undisturbed times are 5% ± 1% longer (on the log scale), in turn, so that their differences have a variance
    of 6/5 of 1e-4. The medians would decide nothing."""
    a = estimate(rounds([10 * math.exp(0.05 + sign * 0.01) for sign in (1, -1, 1, -1, 1, -1)], ms=10.5), NOISE)
    b = estimate(rounds([10.0] * 6)[::-1], NOISE)
    found = ratio(a, b)
    assert math.log(found.ratio) == pytest.approx(0.05)
    assert math.log((found.high or 0) / found.ratio) == pytest.approx(4.7733 * math.sqrt(1.2e-4 / 6), rel=1e-4)
    assert found.undisturbed == pytest.approx((10 * math.exp(0.05), 10.0))
    assert found.outcome == "faster"
    assert a.ms == pytest.approx(10.5 * math.prod(SLOWED) ** (1 / 6)), "the time stays that of the medians"
    assert ratio(replace(a, undisturbed=None), b).undisturbed is None


@pytest.mark.parametrize("known", [[10.0] * (OWN_ROUNDS - 1), [10.0] * 5 + [None], [None] * 6])
def test_few_rounds_or_one_without_are_compared_by_their_medians(known: list[float | None]) -> None:
    a, b = estimate(rounds(known, ms=20.0), NOISE), estimate(rounds([9.0] * len(known)), NOISE)
    assert a.undisturbed is None
    assert ratio(a, b).ratio == pytest.approx(2.0)
    assert ratio(a, b).undisturbed is None


def compare_beside_neighbors(order: random.Random, *, longer: float) -> tuple[Ratio, Ratio]:
    """Returns the ratio of two cells in twelve rounds of 12 steps by their undisturbed times, and by their medians. A
    neighbor comes for two thirds of the steps of every third process, and makes them up to half as long again."""
    sides = []
    for ms in (10.0 * longer, 10.0):
        found = []
        for number in range(12):
            shift, share = order.gauss(0, 0.01), (2 / 3 if order.random() < 1 / 3 else 0.0)
            slowed = 1 + order.random() / 2
            samples = [
                ms * math.exp(shift) * (slowed if order.random() < share else 1 + abs(order.gauss(0, 0.01)))
                for _ in range(12)
            ]
            alone = lower_decile(samples)
            found.append(replace(summarize_round(samples), id=(UUID(int=1), number), undisturbed_ms=alone))
        sides.append(estimate(found, NOISE))
    return ratio(*sides), ratio(*(replace(side, undisturbed=None) for side in sides))


def test_neighbors_hide_less_and_equal_cells_stay_equal() -> None:
    """Of 300 pairs of equal cells no more than 1% are called different, and 5% more time is found in 90% and more."""
    order = random.Random(7)
    equal = [compare_beside_neighbors(order, longer=1.0)[0].outcome for _ in range(300)]
    assert sum(outcome in ("faster", "slower") for outcome in equal) <= 3
    found = [compare_beside_neighbors(order, longer=1.05) for _ in range(100)]
    assert sum(alone.outcome == "faster" for alone, _ in found) >= 90
    assert sum(medians.outcome == "faster" for _, medians in found) < 60


def test_a_file_is_compared_by_them_and_shows_them(tmp_path: Path) -> None:
    path = neighbors.written(tmp_path)
    (view,) = ask("compare", read(path, Selection(), ("by_run",)), {"by": "label", "a": "before", "b": "after"}).views
    slower, equal = view.rows
    assert view.get(slower, "ratio") == pytest.approx(10 / 10.6)
    assert [view.get(row, "outcome") for row in (slower, equal)] == ["slower", "same"]
    assert view.note.endswith("is compared by undisturbed steps: the 10th percentile of each.")
    medians, slowed = [cell.times["step"].step.ms for cell in load_steps(path, Selection())], math.prod(SLOWED)
    assert medians == pytest.approx([ms * slowed ** (1 / 6) for ms in (10.6, 10.0)]), "the times of every page"
    undisturbed = [cell.times["step"].step.undisturbed for cell in load_steps(path, Selection())]
    assert [one and one.ms for one in undisturbed] == pytest.approx([10.6, 10.0])
