"""Measures one cell again and tells whether its time is where the file predicts the next process.

python -m runner sweep --again 01a2037e-c114

Where machine, torch and commit are those of the cell's run, the new row is one more round of that run.
"""

import sys
from collections.abc import Mapping
from contextlib import closing
from operator import attrgetter
from pathlib import Path

import typer

from runner.analysis.statistics import next_process_interval
from runner.cli.progress import SweepLines, make_json
from runner.cli.terminal import Terminal, errors
from runner.errors import UsageError
from runner.formats import format_count, format_ms, format_number, visible
from runner.plan.commands import cell_of
from runner.plan.planning import Request
from runner.results.times import Estimate
from runner.schema import TABLES, Cell, Model, Phase, Row, RunRow, table_of
from runner.schema.sizes import title
from runner.store.read.runs import load_runs
from runner.store.read.timed import find_timed
from runner.sweep.prepare import Prepared, new_run
from runner.sweep.request import Settings
from runner.sweep.start import sweep

#: The columns that can explain a difference of times, the strongest reasons first.
_ENVIRONMENT = (
    "source", "device", "device_name", "device_memory_bytes", "driver", "cuda", "torch", "git_commit", "threads",
    "omp_wait_policy", "cpu_name", "cpu_cores", "memory_bytes", "allocator", "compiler", "python", "stepscope", "os",
    "host",
)  # fmt: skip
#: The phases that may stand for a whole cell, the widest first.
_WHOLE: Mapping[Phase, str] = {
    "step": "The whole step takes",
    "forward_backward": "Forward and backward take",
    "forward": "Forward takes",
}


def measure_again(
    console: Terminal, cell: str, *, db: Path, device: str | None, timeout_s: float, is_sure: bool, as_json: bool
) -> int:
    """Measures the cell with this id, and prints how that compares with its rounds in the file; as JSON the new row.

    Returns the exit code: 0 if it lands inside the interval or there is none, 1 if outside or if it has no result.
    Raises UsageError for a cell that is not there or that this version cannot measure."""
    row, times = find_timed(db, cell)
    wanted = cell_of(row)
    if wanted is None:
        raise UsageError(
            f"{title(row)} cannot be measured here: not all of what was asked is known of this row.",
            expected="a row that `runner sweep` measured",
        )
    _ask_before_running(wanted, is_sure=is_sure)
    run = next((one for one in load_runs(db) if one.run_id == row.run_id), None)
    settings = Settings(
        db=db,
        device=device or (run and run.device) or "auto",
        label=f"{str(row.cell_id)[:13]} again",
        timeout_s=timeout_s,
        fresh=True,
        ceilings=False,
        joins=row.run_id,
    )
    progress = errors if as_json else console
    with closing(_Lines(progress, settings, row, run)) as watcher:
        code = sweep(Request(cells=(wanted,)), settings, watcher=watcher)
    if code:
        return code
    new, timings = watcher.rows[0]
    found = make_json(new, timings)
    medians = found["medians_ms"]
    if as_json:
        console.dump(found)
    place = "one more round of that run" if new.run_id == row.run_id else "in a run of its own"
    progress.say(f"The new row is {new.cell_id}, {place}.")
    phase = next((name for name in (table_of(row).whole, *_WHOLE) if medians.get(name) and name in times), None)
    if new.status != "ok" or phase is None:
        progress.say(f"There is nothing to compare: the cell ended {new.status} now and {row.status} in the file.")
        return int(new.status != row.status)
    words, is_inside = describe_again(phase, times[phase].step, medians[phase])
    progress.say(words)
    return int(is_inside is False)


def _ask_before_running(cell: Cell, *, is_sure: bool) -> None:
    """Asks before code runs that a results file names. Raises UsageError where nobody can be asked, or says no."""
    if not isinstance(cell, Model) or cell.model_key is None or is_sure:
        return
    code = visible(cell.model or "")
    question = f"This runs the code of {code} on this machine, which the results file names. Run it?"
    if not sys.stdin.isatty() or not typer.confirm(question, err=True):
        raise UsageError(
            f"{title(cell)} was not measured: it runs the code of {cell.model}, which the results file names.",
            do="Look at that file, then say that it may run: --yes.",
        )


class _Lines(SweepLines):
    """The lines of a sweep. It says what differs from the run of the file."""

    def __init__(self, console: Terminal, settings: Settings, row: Row, run: RunRow | None) -> None:
        super().__init__(console, db=settings.db)
        self.settings, self.row, self.run = settings, row, run

    def began(self, prepared: Prepared, *, total: int, left_s: float) -> None:
        self.console.say(f"{title(self.row)}: measured again, with the settings of {self.row.cell_id}.")
        super().began(prepared, total=total, left_s=left_s)
        if self.run is None:
            self.console.say("The file does not say on what machine this cell was measured.")
            return
        here = new_run(self.row.run_id, self.settings, prepared.machine)
        if (self.run.device_name, self.run.torch) != (here.device_name, here.torch):
            self.console.say("This is another machine or another torch: a difference below may be theirs.")
        differences = []
        for name in _ENVIRONMENT:
            values = map(attrgetter(name), (self.run, here))
            then, now = ("unknown" if value is None else str(value)[:40] for value in values)
            differences += [f"{TABLES['runs'].column(name).label} ({then} → {now})"] if then != now else []
        if differences:
            self.console.say(f"The environments differ in {', '.join(differences)}.")


def describe_again(phase: Phase, time: Estimate, again_ms: float) -> tuple[str, bool | None]:
    """Returns both times and the interval that the file claims for the next process, in words, and whether the new time
    lies in it; None where the file claims none."""
    change = again_ms / time.ms - 1
    whole = "one process" if time.rounds == 1 else f"the mean of {time.rounds} processes"
    start = (
        f"{_WHOLE[phase]} {format_ms(again_ms)} now and {format_ms(time.ms)} in that run ({whole}): "
        f"{abs(change):.1%} {'longer' if change >= 0 else 'shorter'}."
    )
    interval = next_process_interval(time)
    if interval is None:
        why = "its rounds hold fewer than 6 samples together"
        if time.rounds == 1:
            why = (
                "the cell was measured in one process, with fewer than 6 samples or on a machine without repeated "
                "cells of its kind"
            )
        unknown = f"Whether that is a difference is unknown, because {why}: the file claims no interval for the next"
        return f"{start} {unknown} one. `--rounds 3` of a sweep gives it one.", None
    low, high = interval
    source = ""
    if time.noise and time.rounds == 1:
        source = f", from the noise that {format_count(time.noise.cells, 'cell')} repeated on that machine showed"
    claimed = f"the 95% interval that the file claims for the next process{source}"
    claimed = f"{claimed}, {format_number(low)}–{format_ms(high)}"
    if low <= again_ms <= high:
        return f"{start} It lands inside {claimed}.", True
    side = "above" if again_ms > high else "below"
    return f"{start} It lands outside, {side} {claimed}. By chance that happens once in 20 times.", False
