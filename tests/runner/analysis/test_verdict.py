"""Pairs, ratios, verdicts and reasons of a comparison, computed by hand."""

import math
from pathlib import Path

import pytest

from runner.analysis.compare.environments import both_uncommitted, describe_differences, find_differences
from runner.analysis.compare.pairs import Pair
from runner.analysis.compare.verdict import SideResult, select_movers, select_regressions
from runner.analysis.compare.verdict_text import change, describe_verdict, shorten_titles
from runner.schema import new_id
from runner.store.queries.compare import Comparison, ComparisonRequest, load_comparison
from tests.synthetic import sides as made
from tests.synthetic.rows import run as a_run


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.written(tmp_path_factory.mktemp("compare"))


@pytest.fixture(scope="module")
def found(path: Path) -> Comparison:
    return load_comparison(path, ComparisonRequest(a=made.label("before"), b=made.label("after")))


def test_the_sentence_agrees_with_values_computed_by_hand(found: Comparison) -> None:
    assert [describe_verdict(verdict) for verdict in found.verdicts] == [made.SENTENCE, made.MEMORY]


def test_pairs_and_their_ratios(found: Comparison) -> None:
    """A over B for cells that agree in everything. The noise is the smallest that is assumed, 0.01% with two degrees of
    freedom, so the interval ends e^(4.303 * 0.01% * √2) from the ratio."""
    steps = made.verdict_of(found, "steps")
    reach = math.exp(4.3026527 * 1e-4 * math.sqrt(2))
    assert [pair.base.cell.context for pair in steps.pairs] == [16, 32, 48]  # type: ignore[union-attr]
    assert [pair.ratio for pair in steps.pairs] == [4.0, 0.5, 1.0]
    assert [pair.low for pair in steps.pairs] == pytest.approx([4 / reach, 0.5 / reach, 1 / reach])
    assert [pair.high for pair in steps.pairs] == pytest.approx([4 * reach, 0.5 * reach, reach])
    assert steps.mean == pytest.approx(2 ** (1 / 3))
    assert [change(steps, pair) for pair in select_movers(steps)] == ["4.00× faster", "2.00× slower"]
    assert [pair.ratio for pair in made.verdict_of(found, "memory").pairs] == [2.0, 2.0]


def test_cells_that_are_left_out_have_a_reason(found: Comparison) -> None:
    known = {item.reason: item.detail for item in made.verdict_of(found, "steps").left_out}
    assert known["out of memory in after"] == "tried to allocate 2.5 GiB; 1.1 GiB are free"
    assert known["not the same precision"] == "fp32 was computed as ieee and as tf32."
    assert known["too few samples in both"] == "5 and 5 samples; an interval needs 6 on each side."
    assert "3 more graphs after the warm-up" in known["graded D in after"]


@pytest.mark.parametrize(
    ("ratio", "decided", "outcome"),
    [
        (1.05, True, "better"),
        (0.95, True, "worse"),
        (1.05, False, "same"),  # the interval contains 1
        (1.009, True, "same"),  # significant, but less than 1%
        (1 / 1.009, True, "same"),
    ],
)
def test_outcomes_of_ratios(ratio: float, decided: bool, outcome: str) -> None:
    side = SideResult(cell=made.context(16), run_id=new_id(), cell_id=new_id(), status="ok")
    assert Pair(base=side, other=side, ratio=ratio, decided=decided).outcome == outcome


def test_differences_within_noise_are_neither_faster_nor_slower(path: Path) -> None:
    """Compared with `again`, 10 to 10.05 ms is 0.5%; 10 ms with samples from 7.5 to 12.5 equals 10 ms."""
    steps = made.verdict_of(
        load_comparison(path, ComparisonRequest(a=made.label("after"), b=made.label("again"))), "steps"
    )
    assert [pair.outcome for pair in steps.pairs] == ["same", "same"]
    noisy = steps.pairs[0]
    assert noisy.low is not None
    assert noisy.low < 1 < (noisy.high or 0)
    assert describe_verdict(steps).startswith(
        "Steps: again is as fast as after (geometric mean of 2 comparable cells): 0 faster"
    )


def test_a_regression_is_beyond_its_threshold(found: Comparison) -> None:
    steps = made.verdict_of(found, "steps")
    assert [pair.ratio for pair in select_regressions(steps, threshold=0.99)] == [0.5]
    assert select_regressions(steps, threshold=1.0) == [], "exactly twice as long is not more than 100% longer"


def test_one_phase_alone(path: Path) -> None:
    """Half of each sample is the forward pass, so its ratios are the same; there is no backward pass."""
    forward = made.verdict_of(
        load_comparison(path, ComparisonRequest(a=made.label("before"), b=made.label("after"), phase="forward")),
        "steps",
    )
    assert [pair.ratio for pair in forward.pairs] == [4.0, 0.5, 1.0]
    assert forward.pairs[0].base.value == 20.0
    assert "geometric mean of 3 comparable cells, forward pass" in describe_verdict(forward)
    backward = made.verdict_of(
        load_comparison(path, ComparisonRequest(a=made.label("before"), b=made.label("after"), phase="backward")),
        "steps",
    )
    assert backward.pairs == ()


def test_environments(found: Comparison) -> None:
    differ = find_differences(found.a_runs, found.b_runs)
    assert describe_differences(differ) == "The environments differ in torch (2.12.0 → 2.13.0) and threads (2 → 1)."
    assert not both_uncommitted(found.a_runs, found.b_runs)
    one = a_run(cpu_flags="avx2 fma", device_memory_bytes=8 * 2**30, git_dirty=True)
    other = a_run(cpu_flags="avx2 fma avx512f", device_memory_bytes=16 * 2**30, git_dirty=True)
    said = {item.label: (item.a, item.b) for item in find_differences([one], [other])}
    assert said == {"CPU flags": ("none further", "avx512f"), "Device memory": ("8.0 GiB", "16.0 GiB")}
    assert both_uncommitted([one], [other])
    assert describe_differences(find_differences([one], [one])).startswith("Both sides ran in the same environment")


def test_titles_leave_out_what_they_have_in_common() -> None:
    cells = [made.context(16), made.context(32, precision="bf16")]
    assert shorten_titles(cells, without=("eager",)) == ("toy-64 · train", ["16 · fp32", "32 · bf16"])
    assert shorten_titles(cells[:1]) == ("", ["toy-64 · 16 · train · fp32 · eager"])
