"""A machine that changed during a run: computed by hand, simulated, and stored in a file."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from runner.analysis.audit.findings import Drift, RowContext
from runner.analysis.audit.time_rules import Canary, find_drifts, judge_canary, machine_drift
from runner.results.times import RepeatedCell, Repetition, RoundTime
from runner.schema import Bound, new_id
from runner.store.read.findings import load_findings
from tests.command import tiny
from tests.synthetic import rows

TEN = datetime(2026, 3, 1, 10, 2)
RUN = new_id()


def at(minutes: float) -> datetime:
    return TEN + timedelta(minutes=minutes)


def cell(
    key: str, medians: Sequence[float], *, minutes: Sequence[float] = (), bound: Bound | None = None,
    table: str = "steps",
) -> RepeatedCell:  # fmt: skip
    """Returns a cell with rounds every six minutes, whose samples determine their medians exactly."""
    starts = minutes or [6.0 * number for number in range(len(medians))]
    times = [RoundTime(median_ms=ms, low_ms=ms, high_ms=ms, n=20) for ms in medians]
    rounds = tuple(
        Repetition(cell_id=new_id(), round=number, started_at=at(start), time=time)
        for number, (time, start) in enumerate(zip(times, starts, strict=True))
    )
    return RepeatedCell(table=table, machine="GPU · bench1", run_id=RUN, cell=key, bound=bound, rounds=rounds)


def quiet(std: float, *, bound: Bound | None = None, table: str = "steps") -> list[RepeatedCell]:
    """Returns four cells in three rounds whose ln(median) have this standard deviation: noise with 4 dof."""
    medians = [10 * math.exp(std * side) for side in (-1, 0, 1)]
    starts = (1.0, 7.0, 13.0)
    return [cell(f"{key} {bound}", medians, minutes=starts, bound=bound, table=table) for key in "abcd"]


def test_a_canary_that_slowed_down_by_more_than_the_noise() -> None:
    """A noise of 2% with 4 degrees of freedom. Three rounds make three pairs, for which t(99.67%) = 6.25 explains up to
    e^(6.25 · 2% · √2) - 1 = 19.3%. Four rounds make six, for which t(99.83%) = 7.53 explains up to 23.7%."""
    canary = cell("canary", [12.1, 12.2, 15.0, 15.0])  # 12.2 to 15.0 is 23.0%, and 12.1 to 15.0 is 24.0%
    assert find_drifts([canary, *quiet(0.02)]) == {
        RUN: [Drift(started_at=at(0), ended_at=at(12), before_ms=12.1, after_ms=15.0, bound=None)]
    }
    (found,) = find_drifts([cell("canary", [12.1, 12.0, 15.0]), *quiet(0.02)])[RUN]
    assert (found.started_at, found.ended_at, found.before_ms) == (at(6), at(12), 12.0)
    assert find_drifts([cell("canary", [12.1, 12.0, 14.0]), *quiet(0.02)]) == {}, "16.7% is explained by the noise"


def test_no_drift_is_reported_without_enough_evidence() -> None:
    jump = cell("canary", [12.0, 12.0, 24.0])
    assert find_drifts([jump]) == {}, "there is no other repeated cell"
    assert find_drifts([cell("canary", [12.0, 24.0]), cell("other", [10.0, 10.01])]) == {}, "two rounds are too few"
    assert find_drifts([jump, *quiet(0.001, bound="device")]) == {}, "the others are bound by something else"
    assert find_drifts([jump, *quiet(0.001, table="attention")]) == {}, "the others are of another table"
    assert find_drifts([jump, *quiet(0.3)]) == {}, "the others differ as much"
    rounds = tuple(replace(one, time=replace(one.time, low_ms=8, high_ms=30)) for one in jump.rounds)
    assert find_drifts([replace(jump, rounds=rounds), *quiet(0.001)]) == {}, "the samples of a process differ as much"
    assert find_drifts([cell("canary", [12.0, 12.05, 12.1]), *quiet(1e-5)]) == {}, "under 1%"


def test_a_canary_without_a_verdict_is_still_the_canary() -> None:
    """With two rounds or without other repeated cells, it has a chart but no verdict."""
    alone = judge_canary([cell("canary", [12.0, 12.0, 24.0])])
    assert alone is not None
    assert (alone.cell.cell, alone.drifts) == ("canary", None)
    steady = judge_canary([cell("canary", [12.0, 12.0, 12.0]), *quiet(0.02)])
    assert steady is not None
    assert steady.drifts == []
    undated = replace(alone.cell, rounds=tuple(replace(one, started_at=None) for one in alone.cell.rounds))
    assert judge_canary([undated]) is None


def test_the_cell_with_the_most_rounds_is_the_canary_and_the_first_of_several() -> None:
    early, late = cell("z", [12.0, 12.0, 24.0]), cell("a", [7.0, 7.0, 7.0], minutes=(1, 2, 3))
    assert [drift.after_ms for drift in find_drifts([late, early, *quiet(0.001)])[RUN]] == [24.0]
    more = cell("a", [7.0, 7.0, 7.0, 7.0], minutes=(1, 2, 3, 4))
    assert find_drifts([more, cell("z", [12.0, 12.0, 12.01]), *quiet(0.001)]) == {}
    assert judge_canary([replace(early, bound="host"), late]) == Canary(cell=late, drifts=None), "which shows the GPU"


def test_a_steady_machine_has_false_findings_in_at_most_one_of_100_runs() -> None:
    """In 1,500 runs with a canary of five rounds and four cells of three, the standard error is 0.26%."""
    generator, blamed = random.Random(7), 0
    for _ in range(1500):
        medians = [math.exp(generator.gauss(0, 0.05)) for _ in range(17)]
        others = [cell(f"{key}", medians[5 + 3 * key : 8 + 3 * key]) for key in range(4)]
        blamed += bool(find_drifts([cell("canary", medians[:5]), *others]))
    assert blamed / 1500 <= 0.01 + 3 * 0.0026


def test_cells_measured_during_the_change_have_the_finding(tmp_path: Path) -> None:
    """A run has a canary, an A/A cell, and cells before, during and after the change, one of them device-bound."""
    of = rows.run()
    cells, ids = [], {}

    def measured(
        name: str, context: int, ms: float, minutes: float, *, device_ms: float | None = None, number: int = 0
    ) -> None:
        found = rows.ok(of, tiny(context=context), round=number)
        timings = tuple(replace(one, median_ms=ms, low_ms=ms, high_ms=ms, device_ms=device_ms) for one in found.timings)
        step = replace(found.step, started_at=at(minutes))
        cells.append(replace(found, step=step, timings=timings))
        ids[name] = step.cell_id

    for number, (ms, minutes) in enumerate([(12.0, 0), (12.1, 6), (15.0, 12), (15.1, 18)]):
        measured(f"canary {number}", 16, ms, minutes, number=number)
    for number, ms in enumerate([10.0, 10.01, 10.02]):
        for context in (17, 18, 19, 20):
            measured(f"A/A {context} {number}", context, ms, 1 + 6 * number, number=number)
    measured("before", 32, 5.0, 3)
    measured("between", 33, 5.0, 9)
    measured("between, the device's", 34, 5.0, 9, device_ms=4.9)
    measured("after", 35, 5.0, 15)
    path = rows.store(tmp_path / "r.duckdb", of, cells)
    found = load_findings(path, tuple(ids.values()))
    told = {name for name, cell_id in ids.items() if "machine_drift" in {item.code for item in found[cell_id]}}
    assert told == {"canary 1", "canary 2", "between", *(f"A/A {context} 1" for context in (17, 18, 19, 20))}
    (drift,) = [item for item in found[ids["between"]] if item.code == "machine_drift"]
    assert drift.severity == "doubt"
    assert drift.sentence.startswith("The canary went from 12.1 ms to 15.0 ms between 10:08 and 10:14 UTC, which")
    assert drift.evidence == {"before_ms": 12.1, "after_ms": 15.0}


@pytest.mark.parametrize(
    ("apart", "words"), [(1.0, "10:02:00 and 10:03:00 UTC"), (1440.0, "2026-03-01 10:02 and 2026-03-02 10:02")]
)
def test_times_have_as_many_digits_as_needed(apart: float, words: str) -> None:
    drift = Drift(started_at=at(0), ended_at=at(apart), before_ms=12.1, after_ms=15.0, bound=None)
    row = replace(rows.ok(rows.run(), tiny()).step, started_at=at(apart / 2))
    (found,) = machine_drift(row, RowContext(drifts=[drift]))
    assert words in found.sentence
