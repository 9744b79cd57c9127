"""Measures one cell again and tells whether its time is where the file predicts the next process.

python -m runner replay 01a2037e-c114

Where machine, torch and commit are those of the cell's run, the new row is one more round of that run, so that pages
show it together with the rounds that it was compared with.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import typer

from runner.analysis.compare.environments import describe_differences, find_differences
from runner.analysis.compare.replay import describe, pair_up
from runner.cli.progress import PlainLines
from runner.cli.terminal import Terminal
from runner.errors import UsageError
from runner.formats import format_ms
from runner.plan.commands import cell_of
from runner.plan.planning import Request
from runner.schema import Cell, Model, Phase, Row, RunRow, TimingRow, table_of
from runner.schema.sizes import title
from runner.store.read.replay import StoredCell, find_stored
from runner.sweep.prepare import Prepared, Settings, new_run
from runner.sweep.start import sweep
from runner.visible import visible


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """What the command line said."""

    cell: str
    device: str | None
    timeout_s: float
    is_sure: bool = False


def replay(console: Terminal, asked: ReplayOptions, *, db: Path) -> int:
    """Measures a cell again, and prints how that compares with the rounds in the file.

    Returns the exit code: 0 if it lands inside the interval or there is none, 1 if outside or if it has no result.
    Raises UsageError for a cell that is not there or that this version cannot measure."""
    stored = find_stored(db, asked.cell)
    cell = cell_of(stored.row)
    if cell is None:
        raise UsageError(
            f"{title(stored.row)} cannot be measured here: not all of what was asked is known of this row.",
            expected="a row that `runner sweep` measured",
        )
    _ask_before_running(cell, is_sure=asked.is_sure)
    settings = Settings(
        db=db,
        device=asked.device or (stored.run and stored.run.device) or "auto",
        label=f"replay of {str(stored.row.cell_id)[:13]}",
        timeout_s=asked.timeout_s,
        fresh=True,
        ceilings=False,
        joins=stored.row.run_id,
    )
    watcher = _ReplayLines(console, db=db, stored=stored, settings=settings)
    code = sweep(Request(cells=(cell,)), settings, watcher=watcher)
    return code or _print_verdict(console, stored, watcher)


def _ask_before_running(cell: Cell, *, is_sure: bool) -> None:
    """Asks before code runs that a results file names. Raises UsageError where nobody can be asked, or says no."""
    if not isinstance(cell, Model) or cell.model_key is None or is_sure:
        return
    question = (
        f"This runs the code of {visible(cell.model or '')} on this machine, which the results file names. Run it?"
    )
    if not sys.stdin.isatty() or not typer.confirm(question, err=True):
        raise UsageError(
            f"{title(cell)} was not measured: it runs the code of {cell.model}, which the results file names.",
            do="Look at that file, then say that it may run: --yes.",
        )


class _ReplayLines(PlainLines):
    """The lines of a sweep. It says what differs from the run of the file, and remembers the new row and its times."""

    def __init__(self, console: Terminal, *, db: Path, stored: StoredCell, settings: Settings) -> None:
        super().__init__(console, db=db)
        self.stored, self.settings = stored, settings
        self.row: Row | None = None
        self.medians_ms: Mapping[Phase, float] = {}

    def began(self, prepared: Prepared, *, total: int, left_s: float) -> None:
        self.console.say(f"{title(self.stored.row)}: measured again, with the settings of {self.stored.row.cell_id}.")
        super().began(prepared, total=total, left_s=left_s)
        for line in _describe_machine(self.stored, new_run(self.stored.row.run_id, self.settings, prepared.machine)):
            self.console.say(line)

    def finished(self, row: Row, timings: list[TimingRow], *, left_s: float) -> None:
        super().finished(row, timings, left_s=left_s)
        self.row = row
        self.medians_ms = {timing.phase: timing.median_ms for timing in timings if timing.median_ms is not None}


def _describe_machine(stored: StoredCell, here: RunRow) -> list[str]:
    """Says in what this machine and its software differ from those of the run in the file."""
    if stored.run is None:
        return ["The file does not say on what machine this cell was measured."]
    found = find_differences([stored.run], [here])
    if not found:
        return []
    names = ("device_name", "torch")
    other = any(getattr(stored.run, name) != getattr(here, name) for name in names)
    warning = ["This is another machine or another torch: a difference below may be theirs."] if other else []
    return [*warning, describe_differences(found)]


def _print_verdict(console: Terminal, stored: StoredCell, watcher: _ReplayLines) -> int:
    """Prints the medians, the interval and whether the new one lands inside. Returns the exit code."""
    assert watcher.row is not None
    place = "one more round of that run" if watcher.row.run_id == stored.row.run_id else "in a run of its own"
    console.say(f"The new row is {watcher.row.cell_id}, {place}.")
    replayed = pair_up(stored.times, watcher.medians_ms, whole=table_of(stored.row).whole)
    if watcher.row.status != "ok" or replayed is None:
        now, then = watcher.row.status, stored.row.status
        console.say(f"There is nothing to compare: the cell ended {now} now and {then} in the file.")
        return 1 if now != then else 0
    if replayed.time.rounds > 1:
        medians = [found[replayed.phase] for found in stored.rounds if replayed.phase in found]
        console.say(f"The rounds in the file took {', '.join(map(format_ms, medians))}.")
    console.say(describe(replayed))
    return 1 if replayed.is_inside is False else 0
