"""The best way to run a step is the fastest one measured with usual effort on one machine, compared with the plain
step."""

from pathlib import Path
from uuid import UUID

import pytest

from runner.analysis.compare.best import find_best
from runner.schema import StepCell
from runner.store.queries.selection import Selection
from runner.store.queries.steps import load_steps
from tests.synthetic import rows


def store(path: Path, *cells: StepCell) -> Path:
    """Writes a file with each cell in three rounds, so that the noise between processes is known."""
    run = rows.run()
    return rows.store(path, run, [rows.ok(run, cell, round=number) for cell in cells for number in range(3)])


def test_the_fastest_way_is_compared_with_the_plain_step(tmp_path: Path) -> None:
    """bf16 is twice as fast as fp32, and compiled another 1.25 times: 2.5 times as fast as the plain step."""
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


def test_steps_of_other_work_are_not_compared(tmp_path: Path) -> None:
    cells = [
        rows.asked(),
        rows.asked(context=64),
        rows.asked("toy-128"),
        rows.asked(batch=8),
        rows.asked(mode="inference"),
    ]
    found = find_best(load_steps(store(tmp_path / "r.duckdb", *cells), Selection()))
    assert [(best.tried, best.plain is best.cell) for best in found] == [(1, True)] * 5


def test_a_step_measured_once_has_rivals_but_none_from_another_machine(tmp_path: Path) -> None:
    """With one process a cell, the noise between processes is unknown: the slower step may be as fast."""
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


def test_a_step_without_warm_up_is_not_considered(tmp_path: Path) -> None:
    path = store(tmp_path / "r.duckdb", rows.asked(precision="bf16", warmup_steps=0), rows.asked())
    (best,) = find_best(load_steps(path, Selection(settled=False)))
    assert best.cell.cell.precision == "fp32"
