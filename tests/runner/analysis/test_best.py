"""The best way to run a step is the fastest that was measured as usual, on one machine, beside the plain step."""

from pathlib import Path
from uuid import UUID

import pytest

from runner.analysis.compare.best import find_best
from runner.schema import StepCell
from runner.store.queries.selection import Selection
from runner.store.queries.steps import load_steps
from tests.synthetic import rows


def store(path: Path, *cells: StepCell) -> Path:
    """A file with each cell in three rounds, so that it is known what processes differ by."""
    run = rows.run()
    return rows.store(path, run, [rows.ok(run, cell, round=number) for cell in cells for number in range(3)])


def test_the_fastest_way_stands_beside_the_plain_step(tmp_path: Path) -> None:
    """fp32 over bf16 is 2, and compiled 1.25 on top: 2.5 times as fast as the plain step."""
    bf16 = {"precision": "bf16"}
    path = store(tmp_path / "r.duckdb", rows.asked(), rows.asked(**bf16), rows.asked(**bf16, backend="compiled"))
    (best,) = find_best(load_steps(path, Selection()))
    assert (best.cell.cell.precision, best.cell.cell.backend, best.tried) == ("bf16", "compiled", 3)
    assert best.plain
    assert (best.plain.cell.precision, best.plain.cell.backend) == ("fp32", "eager")
    assert best.speedup
    assert best.speedup.ratio == pytest.approx(2.5, rel=0.01)
    assert best.speedup.outcome == "better"
    assert not best.rivals


def test_steps_that_ask_for_something_else_are_not_ways_of_one(tmp_path: Path) -> None:
    cells = [
        rows.asked(),
        rows.asked(context=64),
        rows.asked("toy-128"),
        rows.asked(batch=8),
        rows.asked(mode="inference"),
    ]
    found = find_best(load_steps(store(tmp_path / "r.duckdb", *cells), Selection()))
    assert [(best.tried, best.plain is best.cell) for best in found] == [(1, True)] * 5


def test_a_step_measured_once_has_rivals_and_one_of_another_machine_is_none(tmp_path: Path) -> None:
    """Of cells in one process each nothing is known of what processes differ by: the slower may be as fast."""
    run = rows.run()
    path = rows.store(
        tmp_path / "r.duckdb", run, [rows.ok(run, rows.asked()), rows.ok(run, rows.asked(precision="bf16"))]
    )
    other = rows.run(host="bench2", run_id=UUID(int=9))
    rows.store(path, other, [rows.ok(other, rows.asked(backend="compiled"))])
    found = {best.cell.machine: best for best in find_best(load_steps(path, Selection()))}
    here = found["Example CPU · bench1"]
    assert (here.cell.cell.precision, [cell.cell.precision for cell in here.rivals]) == ("bf16", ["fp32"])
    assert (found["Example CPU · bench2"].plain, found["Example CPU · bench2"].speedup) == (None, None)


def test_a_step_without_warm_up_is_no_way_to_train(tmp_path: Path) -> None:
    path = store(tmp_path / "r.duckdb", rows.asked(precision="bf16", warmup_steps=0), rows.asked())
    (best,) = find_best(load_steps(path, Selection(settled=False)))
    assert best.cell.cell.precision == "fp32"
