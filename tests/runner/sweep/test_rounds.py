"""Which cells get another round, computed by hand."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from runner.analysis.noise import MAX_NOISE_DOF
from runner.experiments.experiment import Prediction
from runner.plan.planning import ON_CPU
from runner.results.times import Noise, RoundTime
from runner.schema import Bound, StepCell
from runner.store.history import MeasuredRound
from runner.sweep import rounds
from runner.sweep.prepare import Expected, Prepared
from runner.sweep.rounds import FurtherRounds, Kind, TimedCell, choose_cells, goal_on, half_width, measure_noise
from tests.command import tiny

#: Student's t of 95% for 4 and for 6 degrees of freedom.
T_4, T_6 = 2.7764, 2.4469


def cell(
    key: str, *medians: float, bound: Bound | None = None, seconds: float = 1.0, n: int = 10, table: str = "steps"
) -> TimedCell:
    times = tuple(RoundTime(median_ms=median, n=n) for median in medians)
    return TimedCell(key=key, table=table, bound=bound, times=times, seconds=seconds)


def repeated(std: float, *, bound: Bound | None = None) -> list[TimedCell]:
    """Returns four cells in three rounds, whose ln(median) have this standard deviation."""
    medians = (10 * math.exp(-std), 10.0, 10 * math.exp(std))
    return [cell(f"repeated {bound} {number}", *medians, bound=bound) for number in range(4)]


def keys(cells: list[TimedCell]) -> set[str]:
    return {one.key for one in cells}


def test_noise_is_that_of_the_repeated_cells_of_a_kind() -> None:
    cells = [*repeated(0.01), cell("host", 1.0, math.exp(0.2), bound="host"), cell("once", 7.0, bound="device")]
    found = measure_noise(cells)
    # The variance is 0.01² for each kind, or 0.2² / 2 for two values 0.2 apart. Half of the dof count, up to 2.
    steps: Kind = ("steps", None)
    host: Kind = ("steps", "host")
    assert found.keys() == {steps, host}
    assert (found[steps].dof, found[host].dof) == (2.0, 0.5)
    assert found[steps].std == pytest.approx(0.01)
    assert found[host].std == pytest.approx(0.2 / math.sqrt(2))


def test_the_width_of_an_interval_by_hand() -> None:
    noise = Noise(std=0.01, dof=4.0, cells=4)
    assert half_width(cell("once", 5.0), noise) == pytest.approx(math.exp(T_4 * 0.01) - 1, rel=1e-4)
    assert half_width(repeated(0.01)[0], noise) == pytest.approx(math.exp(T_6 * 0.01 / math.sqrt(3)) - 1, rel=1e-4)
    assert half_width(cell("once", 5.0), None) == math.inf
    assert half_width(cell("few samples", 5.0, n=5), noise) == math.inf


def test_the_width_of_many_rounds_on_a_cpu_is_that_of_their_undisturbed_times() -> None:
    medians = cell("six", *(10 * math.exp(x) for x in (0.0, 0.3, 0.1, 0.2, 0.4, 0.5)))
    steady = replace(medians, times=tuple(replace(time, undisturbed_ms=10.0) for time in medians.times))
    noise = Noise(std=0.2, dof=2.0, cells=4)
    assert half_width(medians, noise) > 0.1
    assert half_width(steady, noise) == pytest.approx(math.exp(2.5706 * 1e-4 / math.sqrt(6)) - 1, rel=1e-3)
    five = replace(steady, times=steady.times[:5])
    assert half_width(five, noise) > 0.1, "of few rounds the medians count"


def test_cells_with_intervals_wider_than_two_percent_get_a_round() -> None:
    """With a noise of 1%, one round is known to ±4.4% and three to ±1.6%; with 0.46%, one round is known to ±1.99%."""
    once = [cell(f"once {number}", 20.0) for number in range(6)]
    assert keys(choose_cells([*repeated(0.01), *once], seconds_left=100)) == keys(once)
    assert choose_cells([*repeated(0.0046), *once], seconds_left=100) == []


def test_each_kind_has_a_noise_of_its_own() -> None:
    quiet, noisy = repeated(0.001, bound="device"), repeated(0.02, bound="host")
    once = [cell("device", 5.0, bound="device"), cell("host", 5.0, bound="host")]
    # ±3.3% after three rounds with a noise of 2%
    assert keys(choose_cells([*quiet, *noisy, *once], seconds_left=100)) == {"host", *keys(noisy)}


def test_attention_is_not_judged_by_the_noise_of_steps() -> None:
    """Without known noise of its own, attention is measured again although the noise of steps is low."""
    attention = cell("attention", 5.0, table="attention")
    assert keys(choose_cells([*repeated(0.001), cell("step", 5.0), attention], seconds_left=100)) == {"attention"}


def test_the_four_cheapest_cells_of_a_kind_without_known_noise_are_measured_again() -> None:
    once = [cell(f"{seconds}", 5.0, bound="device", seconds=seconds) for seconds in (7, 3, 6, 2, 5, 4)]
    assert keys(choose_cells([*repeated(0.001, bound="host"), *once], seconds_left=100)) == {"2", "3", "4", "5"}
    # Two rounds of three cells give 3 degrees of freedom, of which half count: not enough yet to judge the others by.
    twice = [cell(f"{seconds}", 5.0, 5.2, bound="device", seconds=seconds) for seconds in (2, 3, 4)]
    assert MAX_NOISE_DOF == 2.0
    assert keys(choose_cells([*twice, *once[:1], once[2], once[4]], seconds_left=100)) == {"2", "3", "4", "5"}


def test_five_rounds_are_enough_and_twenty_on_a_cpu() -> None:
    wild = cell("wild", 1.0, 2.0, 3.0, 4.0, 5.0)
    less = cell("less", 1.0, 2.0, 3.0, 4.0)
    assert keys(choose_cells([wild, less], seconds_left=100)) == {"less"}
    assert [goal_on(device).rounds for device in ("cuda", "mps", "cpu")] == [5, 5, 20]
    assert keys(choose_cells([wild, less], goal=ON_CPU, seconds_left=100)) == {"wild", "less"}
    assert choose_cells([cell("twenty", *range(1, 21))], goal=ON_CPU, seconds_left=100) == []


def test_the_widest_come_first_if_time_is_short() -> None:
    """In one cell the interval within a process is 20% wide, so its time is known less precisely."""
    noise = repeated(0.01)
    wide = TimedCell(
        key="wide", table="steps", bound=None, seconds=3.0, times=(RoundTime(median_ms=10, low_ms=9, high_ms=11, n=10),)
    )
    other, cheap = cell("other", 10.0, seconds=2.5), cell("cheap", 10.0, seconds=0.9)
    cells = [*noise, other, cheap, wide]
    assert [one.key for one in choose_cells(cells, seconds_left=100)] == ["wide", "cheap", "other"]
    assert [one.key for one in choose_cells(cells, seconds_left=4)] == ["wide", "cheap"]
    assert [one.key for one in choose_cells(cells, seconds_left=2)] == ["cheap"]
    assert choose_cells(cells, seconds_left=0.5) == []


def prepared(*contexts: int, device: str = "cpu", **known: Any) -> Prepared:
    """Returns a sweep of cells of 2 s, the first of which is the canary."""
    cells = [tiny(context=context) for context in contexts]
    planned = [(cells[0], number) for number in range(3)] + [(one, 0) for one in cells[1:]]
    return Prepared(
        preset="laptop", machine={"host": "node1", "device": device}, is_auto=True, **known,
        cells=tuple(expected(one, number) for one, number in planned),
    )  # fmt: skip


def expected(of: StepCell, number: int) -> Expected:
    prediction = Prediction(step_flops=1, peak_bytes=1, seconds=2.0)
    return Expected(experiment="benchmark", cell=of, round=number, predicted=prediction)


def ok(median: float, *, seconds: float = 2.0, bound: Bound | None = None) -> MeasuredRound:
    return MeasuredRound(status="ok", seconds=seconds, bound=bound, time=RoundTime(median_ms=median, n=10))


def measure(further: FurtherRounds, items: list[Expected], medians: Mapping[int, float]) -> None:
    for item in items:
        cell = item.cell
        assert isinstance(cell, StepCell)
        further.record(item, ok(medians[cell.context] * (1 + 0.1 * (item.round % 2))))


def ids(items: list[Expected]) -> list[tuple[int, int]]:
    return [(item.cell.context, item.round) for item in items if isinstance(item.cell, StepCell)]


def test_further_rounds_take_no_more_than_their_share_and_end_with_the_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 rounds of 2 s are planned, and a noise of 5% leaves every cell undecided. With a share of 1, which is 10 s, the
    next round takes 2 s for each of three cells. The one after it has time for two cells, one of them the canary."""
    monkeypatch.setattr(rounds, "MAX_SHARE", 1.0)
    monkeypatch.setattr(rounds, "SHORT_SECONDS", 0.0)
    sweep = prepared(8, 16, 24)
    further = FurtherRounds(sweep)
    assert further.seconds_left() == pytest.approx(10.0), "each cell three times more would take 18 s"
    assert further.most_seconds() == pytest.approx(10.0)
    measure(further, list(sweep.cells), {8: 5.0, 16: 10.0, 24: 20.0})
    first = further.next_round()
    assert sorted(ids(first)) == [(8, 3), (16, 1), (24, 1)]
    assert ids(first)[-1] == (8, 3), "the canary comes last"
    assert further.seconds_left() == pytest.approx(4.0), "6 s are planned"
    measure(further, first, {8: 5.0, 16: 10.0, 24: 20.0})
    second = further.next_round()
    assert len(second) <= 3
    assert ids(second)[-1][0] == 8
    measure(further, second, {8: 5.0, 16: 10.0, 24: 20.0})
    assert further.next_round() == [], "all 10 s are used"


def test_a_small_sweep_may_take_two_minutes_to_decide() -> None:
    """Half of what its first 5 rounds of 2 s took are 5 s. On a CPU each cell has 20 rounds at most, of which three for
    the canary and one for the others are planned: 55 more are 110 s; on CUDA, with 5, 10 more are 20 s. Of a sweep
    whose first rounds take 10 s each half are 25 s, and 55 more would be 550 s."""
    assert FurtherRounds(prepared(8, 16, 24)).most_seconds() == pytest.approx(110.0)
    assert FurtherRounds(prepared(8, 16, 24, device="cuda")).most_seconds() == pytest.approx(20.0)
    slow = {item.id: ok(5.0, seconds=10.0) for item in prepared(8, 16, 24).cells}
    assert FurtherRounds(prepared(8, 16, 24, done=slow)).most_seconds() == pytest.approx(120.0)


def test_a_cell_that_compiled_is_measured_again_without_compiling() -> None:
    cold = expected(tiny(context=24, backend="compiled", compile_cache="empty"), 0)
    cold = replace(cold, predicted=replace(cold.predicted, seconds=100.0))
    sweep = prepared(8, 16)
    further = FurtherRounds(replace(sweep, cells=(*sweep.cells, cold)))
    measure(further, [*sweep.cells, cold], {8: 5.0, 16: 10.0, 24: 20.0})
    (again,) = [item for item in further.next_round() if item.cell == cold.cell]
    assert (again.round, again.predicted.seconds) == (1, 2.0), "what the first took beside compiling"
    assert again.measured == tiny(context=24, backend="compiled")


def test_a_restarted_sweep_makes_the_same_decisions() -> None:
    sweep = prepared(8, 16, 24)
    further = FurtherRounds(sweep)
    measure(further, list(sweep.cells), {8: 5.0, 16: 10.0, 24: 20.0})
    items = further.next_round()
    known = {item.id: ok(5.0 * (1 + 0.1 * (item.round % 2))) for item in sweep.cells}
    assert FurtherRounds(prepared(8, 16, 24, done=known)).next_round() == items


def test_failed_and_slow_cells_and_a_fixed_number_of_rounds_get_no_more() -> None:
    sweep = prepared(8, 16, 24)
    known = {item.id: ok(5.0) for item in sweep.cells}
    failed, long = sweep.cells[-2].id, sweep.cells[-1].id
    known |= {failed: MeasuredRound(status="crashed", seconds=1.0), long: ok(5.0, seconds=301.0)}
    found = FurtherRounds(prepared(8, 16, 24, done=known)).next_round()
    assert found == [], "the canary's rounds agree, and it is measured only together with others"
    given = Prepared(preset="laptop", machine=sweep.machine, cells=sweep.cells, done=known)
    assert (FurtherRounds(given).next_round(), FurtherRounds(given).seconds_left()) == ([], 0.0)


def test_on_cuda_the_forecast_counts_cells_bound_by_the_host() -> None:
    sweep = prepared(8, 16, 24, device="cuda")
    further = FurtherRounds(sweep)
    assert further.seconds_left() == 0.0
    further.record(sweep.cells[-1], ok(5.0, seconds=1.5, bound="host"))
    further.record(sweep.cells[-2], ok(5.0, seconds=1.5, bound="device"))
    assert further.seconds_left() == pytest.approx(1.5)
