"""What a pair decides, by which clock: on an H100's rows of equal cells in two sweeps, and on simulated ones.

`tests/cases/h100-twice` are twelve kinds of cells of `small` at 512 tokens, swept twice on one H100 with default rounds
under the labels a1 and a2: nothing differs. The host sets the time of half of them; their processes differ by up to 2×.
"""

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean, variance
from typing import Any
from uuid import UUID

import duckdb
import pytest

from runner.analysis.noise import estimate_noise
from runner.analysis.pair import Pair, compute_ratio, is_interleaved
from runner.analysis.statistics import Ratio, estimate, ratio
from runner.answers import ask
from runner.answers.answer import View
from runner.results.cells import StepResult
from runner.results.times import Clock, Estimate, PhaseTime, RoundId, RoundTime
from runner.schema import AttentionCell, Bound, Phase
from runner.store.packing import find_file
from runner.store.read import read
from runner.store.read.selection import Selection
from tests.command import ROOT, tiny
from tests.runner.answers.shipped import shipped

TWICE = ROOT / "tests/cases/h100-twice"
_TIMES = ("median_ms", "low_ms", "high_ms", "mean_ms", "std_ms", "host_median_ms", "loop_ms", "device_ms")


def scale(folder: Path, factor: float) -> Path:
    """Returns the recorded rows with every time of the second sweep multiplied by a factor."""
    second = f"(SELECT max(run_id) FROM '{TWICE}/runs.parquet')"
    scaled = ", ".join(f"{name} * if(run_id = {second}, {factor}, 1.0) AS {name}" for name in _TIMES)
    for table, change in (("runs", ""), ("steps", ""), ("timings", f"REPLACE ({scaled})")):
        duckdb.sql(f"COPY (SELECT * {change} FROM '{TWICE}/{table}.parquet') TO '{folder}/{table}.parquet'")
    return folder


def compare(folder: Path, clock: str = "auto") -> View:
    asked = {"by": "label", "a": "a1", "b": "a2", "clock": clock}
    return ask("compare", read(find_file(folder), Selection(), ("by_run",)), asked).views[0]


@pytest.mark.parametrize(
    ("factor", "outcome", "least"), [(1.0, "", 0), (1.05, "slower", 11), (1.02, "slower", 9), (1 / 1.05, "faster", 11)]
)
def test_a_change_of_the_recorded_times_is_found(tmp_path: Path, factor: float, outcome: str, least: int) -> None:
    found = Counter(compare(scale(tmp_path, factor)).column("outcome"))
    assert found.total() == 12
    assert found["faster"] + found["slower"] == found[outcome] >= least, found


@pytest.mark.parametrize("clock", ["throughput", "latency", "GPU time"])
def test_equal_cells_are_called_different_by_no_clock(clock: str) -> None:
    assert {*compare(TWICE, clock).column("outcome")} <= {"same", "undecided"}


def test_sweeps_of_one_machine_on_other_days_are_called_different_by_no_cell() -> None:
    """The shipped rows hold sweeps of equal cells, hours apart, on five H200s."""
    rows = shipped("by_run")
    sweeps = [one.run for one in rows.by_run if one.run.label == "standard"]
    assert len({run.device_uuid for run in sweeps}) == len(sweeps) == 5
    found: Counter[object] = Counter()
    for a, b in combinations(sweeps, 2):
        answer = ask("compare", rows, {"by": "run", "a": a.name, "b": b.name})
        found.update(outcome for view in answer.views for outcome in view.column("outcome"))
        assert not answer.views or f"differ in GPU {str(a.device_uuid)[:8]} → {str(b.device_uuid)[:8]}" in answer.more
    assert {*found} <= {"same", "undecided"}
    assert found.total() > 100


def test_the_headline_says_how_far_apart_undecided_cells_may_be() -> None:
    after, before = (of.run.name for of in shipped("by_run").by_run if of.run.run_id.hex[-6:] in ("34000d", "1af6c3"))
    answer = ask("compare", shipped("by_run"), {"by": "run", "a": before, "b": after})
    ends = [end for view in answer.views[:2] for row in view.rows for end in view.interval(row)]
    most = max(max(end, 1 / end) for end in ends if isinstance(end, float))
    assert f"71 undecided ({100 * (most - 1):.2g}% apart at most)" in answer.sentence


def test_what_could_be_compared_stands_first() -> None:
    """The steps of two labels were measured with other limits, and attention with the same."""
    answer = ask("compare", shipped("by_run", "attention", "every_step", "peaks"), {"a": "cs336-2025", "b": "standard"})
    assert [any(view.column("ratio")) for view in answer.views] == [True, True, False]


def test_a_time_that_the_host_sets_says_nothing_between_two_sweeps(tmp_path: Path) -> None:
    view = compare(scale(tmp_path, 1.05))
    said = {view.get(row, "cell"): view.get(row, "why") for row in view.rows}
    assert said["train · bf16 · eager"] == ("GPU time 1.05× slower; latency 54.1 → 54.8 ms, set by the host, undecided")
    assert said["train · bf16 · cuda-graphs"] is None, "the GPU sets it"
    by_latency = compare(tmp_path, "latency")
    assert {by_latency.get(row, "cell") for row in by_latency.rows if by_latency.get(row, "low") is None} == {
        cell for cell, why in said.items() if why
    }


RUN = UUID(int=1)


def measured(
    loop: float, device: float | None, *, run: UUID = RUN, bound: Bound | None = None, rounds: int = 5
) -> StepResult:
    """Returns a cell of rounds that agree within 0.1%, by throughput and latency alike and by GPU time; of one round
    nothing is known of their noise."""

    def time(ms: float) -> Estimate:
        ids: list[RoundId] = [(run, number) for number in range(rounds)]
        times = [RoundTime(median_ms=ms * (1 + 0.0005 * (id[1] % 2)), n=20, id=id) for id in ids]
        return estimate(times, estimate_noise([(5, 1e-7)] * 6) if rounds > 1 else None)

    others: dict[Clock, Estimate] = {"loop": time(loop)}
    if device:
        others["device"] = time(device)
    times: dict[Phase, PhaseTime] = {"step": PhaseTime(step=time(loop), others=others)}
    one = {"parameters": None, "tokens_per_s": None, "mfu": None, "compile_seconds": None, "torch": None}
    return StepResult(
        cell_id=run, machine="m", cell=tiny(), cell_key="k", run_id=run, bound=bound, times=times,
        rounds=rounds, **one,  # type: ignore[arg-type]
    )  # fmt: skip


OTHER = UUID(int=2)


@pytest.mark.parametrize(
    ("base", "other", "outcome", "clock"),
    [
        (measured(10, 9.9), measured(11, 10.9, run=OTHER), "slower", "device"),
        (measured(10, 5), measured(14, 5, run=OTHER), "same", "device"),  # the host's, in two sweeps
        (measured(10, 5), measured(14, 5), "slower", "loop"),  # interleaved
        (measured(10, 5), measured(14, 4), "faster", "device"),
        (measured(10, None), measured(11, None, run=OTHER), "slower", "loop"),  # a CPU
        (measured(10, None, bound="host"), measured(11, None, run=OTHER), "undecided", "loop"),
        (measured(10, None, bound="host"), measured(11, None), "slower", "loop"),
    ],
)
def test_verdicts_name_the_clock_that_decides(base: StepResult, other: StepResult, outcome: str, clock: Clock) -> None:
    found = Pair(base=base, other=other).verdict()
    assert (found.outcome, found.clock) == (outcome, clock)
    back = Pair(base=other, other=base).verdict()
    assert found.ratio
    assert back.ratio
    assert back.ratio.ratio == pytest.approx(1 / found.ratio.ratio)
    assert {outcome, back.outcome} in ({"faster", "slower"}, {"same"}, {"undecided"})


ATTENTION = AttentionCell(implementation="naive", seq_len=256, d_head=64, precision="fp32")


@pytest.mark.parametrize(("cell", "std"), [(tiny(), 0.003), (tiny(backend="compiled"), 0.025), (ATTENTION, 0.010)])
def test_a_ratio_of_two_gpus_counts_what_such_cells_differ_by(cell: Any, std: float) -> None:
    """The 99% of the normal distribution: the rounds' own 0.05% is lost in it."""
    sides = []
    for number, run in enumerate((RUN, OTHER)):
        one = measured(10, 9.9, run=run)
        step = replace(one.times["step"].step, devices={f"GPU-{number}": 1.0})
        sides.append(replace(one, cell=cell, times={"step": PhaseTime(step=step)}))
    found = compute_ratio(*sides)
    assert found
    assert found.high == pytest.approx(math.exp(2.5758 * std * 2**0.5), rel=1e-3)


@pytest.mark.parametrize("rounds", [1, 5])
def test_cells_of_one_round_are_of_one_sweep_though_nothing_is_known_of_their_noise(rounds: int) -> None:
    base, other, later = (measured(10, None, run=run, rounds=rounds) for run in (RUN, RUN, OTHER))
    assert is_interleaved(base, other, "step")
    assert not is_interleaved(base, later, "step")


def test_a_gpu_that_waits_a_little_may_wait_long_in_another_sweep() -> None:
    """Of 10 ms the GPU works 9.6 or 9.9; two sweeps compare the latter alone, one sweep both."""
    found = [
        Pair(base=measured(10, device), other=measured(9, 8.91, run=run)).ratio(clock="loop")
        for device in (9.6, 9.9)
        for run in (OTHER, RUN)
    ]
    assert [one is not None and one.low is not None for one in found] == [False, True, True, True]


def test_of_simulated_pairs_few_are_called_different_and_most_changes_are_found() -> None:
    """2,004 pairs of equal cells, and as many of which the second takes 5% longer, by GPU time: each kind with the
    rounds of its two sweeps, and with the noise that they show."""
    kinds = _load_kinds()
    assert len(kinds) == 12
    for longer, least, most in ((1.0, 0.0, 0.01), (1.05, 0.90, 1.0)):
        generator = random.Random(7)
        found = [one for _ in range(167) for one in _compare_sweeps(generator, kinds, longer)]
        assert len(found) == 2004
        share = sum(one.outcome in ("faster", "slower") for one in found) / len(found)
        assert least <= share <= most, f"{longer}: {share:.2%}"


def _load_kinds() -> list[tuple[list[int], float]]:
    """Returns the rounds of each kind of cell in either sweep, and the std of ln(GPU time) from process to process."""
    rows = duckdb.execute(f"""
        SELECT list(ln(device_ms)) FROM '{TWICE}/steps.parquet' JOIN '{TWICE}/timings.parquet' USING (cell_id)
        WHERE phase = 'step' GROUP BY mode, precision, backend, cell_key, steps.run_id ORDER BY cell_key, steps.run_id
    """).fetchall()
    logs = [values for (values,) in rows]
    return [
        ([len(a), len(b)], math.sqrt(fmean([variance(one) for one in (a, b) for _ in one[1:]])))
        for a, b in zip(logs[::2], logs[1::2], strict=True)
    ]


def _compare_sweeps(generator: random.Random, kinds: list[tuple[list[int], float]], longer: float) -> Iterator[Ratio]:
    sweeps = [
        [
            [RoundTime(median_ms=math.exp(generator.gauss(0, std)), n=20) for _ in range(rounds[side])]
            for rounds, std in kinds
        ]
        for side in (0, 1)
    ]
    logs = [[math.log(one.median_ms) for one in cell] for cells in sweeps for cell in cells if len(cell) > 1]
    noise = estimate_noise([(len(cell), variance(cell)) for cell in logs])
    for a, b in zip(*sweeps, strict=True):
        slower = [RoundTime(median_ms=one.median_ms * longer, n=one.n) for one in b]
        yield ratio(estimate(a, noise), estimate(slower, noise))
