"""Loads the cells that several runs of a machine have measured, and one of them run by run, for Compare.

    for repeated in load_repeated_cells(path, "NVIDIA H200 · node1"):
        series = load_series(path, "NVIDIA H200 · node1", repeated.cell_key)
        print(series.cell, [point.time.ms for point in series.points])

Times are those of whole steps with their usual effort. Hidden runs do not count. Limits: the latest `MAX_RUNS` runs are
read.
"""

from dataclasses import dataclass
from pathlib import Path

from runner.analysis.compare.over_time import CellSeries, RunPoint
from runner.analysis.compare.pairs import describe_unusual_effort
from runner.results import RunSummary
from runner.schema import TABLES, StepCell
from runner.store.contract import is_stated
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch, select
from runner.store.queries.overview import load_contents
from runner.store.queries.steps import load_rounds

#: The most runs of a line.
MAX_RUNS = 40


@dataclass(frozen=True, kw_only=True)
class RemeasuredCell:
    """A cell of whole steps, and how many runs have measured it."""

    cell: StepCell
    cell_key: str
    runs: int


_REPEATED = f"""
    SELECT {select(StepCell, "s.")}, s.cell_key, count(DISTINCT s.run_id) AS runs
    FROM steps s JOIN timings t ON t.cell_id = s.cell_id AND t.phase = 'step' AND t.median_ms IS NOT NULL
    WHERE list_contains($runs, s.run_id) AND s.status = 'ok' AND {is_stated(TABLES["steps"], prefix="s.")}
    GROUP BY ALL HAVING runs > 1 ORDER BY runs DESC, arg_max(t.median_ms, s.cell_id) DESC, s.cell_key"""


def load_repeated_cells(path: Path, machine: str | None) -> list[RemeasuredCell]:
    """Returns each cell that at least two runs have measured: those of most runs first, then the longest."""
    runs = [run.run_id for run in _load_machine_runs(path, machine)]
    with open_reader(path) as reader:
        found = fetch(reader, _REPEATED, {"runs": runs}, kind=RemeasuredCell)
    return [one for one in found if not describe_unusual_effort(one.cell)]


def load_series(path: Path, machine: str | None, cell_key: str) -> CellSeries:
    """Returns a cell of `load_repeated_cells`, run by run."""
    points = []
    runs = _load_machine_runs(path, machine)
    with open_reader(path) as reader:
        for run in runs:
            measured = load_rounds(reader, run.run_id, cell_key)
            if measured and measured.status == "ok" and "step" in measured.times and run.started_at is not None:
                points.append(
                    RunPoint(
                        measured=measured,
                        run_name=run.name,
                        started_at=run.started_at,
                        commit=run.git_commit,
                        torch=run.torch,
                    )
                )
    return CellSeries(machine=machine or "", points=tuple(points))


def _load_machine_runs(path: Path, machine: str | None) -> list[RunSummary]:
    """Returns the latest runs of a machine that have a result, the oldest first."""
    runs = [run for run in load_contents(path).runs if run.machine == machine and run.ok and run.started_at]
    return runs[:MAX_RUNS][::-1]
