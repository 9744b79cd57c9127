"""The cells that several runs of a machine have measured, run by run: what Compare draws over time.

    for series in load_series(path, "NVIDIA H200 · node1"):
        print(series.cell, [point.time.ms for point in series.points])

Of whole steps with their usual effort. Hidden runs do not count. Limits: the latest `MAX_RUNS` runs are read.
"""

from pathlib import Path

from runner.analysis.compare.over_time import CellSeries, RunPoint
from runner.analysis.compare.pairs import describe_unusual_effort
from runner.schema import StepCell
from runner.store.queries.overview import load_contents
from runner.store.queries.selection import Selection
from runner.store.queries.steps import load_steps

#: More runs than these are no one line any more, and take seconds to read.
MAX_RUNS = 40


def load_series(path: Path, machine: str | None) -> list[CellSeries]:
    """Returns each cell that at least two runs have measured: those of most runs first, then the longest."""
    runs = [run for run in load_contents(path).runs if run.machine == machine and run.ok and run.started_at]
    found: dict[StepCell, list[RunPoint]] = {}
    for run in reversed(runs[:MAX_RUNS]):
        for measured in load_steps(path, Selection(run=run.run_id)):
            if measured.status == "ok" and "step" in measured.times and not describe_unusual_effort(measured.cell):
                assert run.started_at is not None
                point = RunPoint(
                    run_id=run.run_id,
                    cell_id=measured.cell_id,
                    run_name=run.name,
                    started_at=run.started_at,
                    commit=run.git_commit,
                    torch=run.torch,
                    time=measured.times["step"].step,
                )
                found.setdefault(measured.cell, []).append(point)
    series = [
        CellSeries(machine=machine or "", cell=cell, points=tuple(points))
        for cell, points in found.items()
        if len(points) > 1
    ]
    return sorted(series, key=lambda one: (-len(one.points), -one.points[-1].time.ms))
