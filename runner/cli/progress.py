"""The plan of a sweep, and its progress: one line a cell, and on a terminal a live bar below."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from runner.cli.terminal import Terminal, new_grid
from runner.experiments import kind_of
from runner.formats import cut_text, format_bytes, format_count, format_duration, format_quantity
from runner.places import write_db
from runner.plan.planning import QUESTIONS, USUAL
from runner.schema import DONE, Row, TimingRow
from runner.schema.sizes import title
from runner.sweep.loop import SweepEnd
from runner.sweep.prepare import Expected, Prepared
from runner.sweep.rounds import FurtherRounds, goal_on

STATUS_STYLES = {"ok": "green", "skipped": "yellow", "oom": "magenta"} | dict.fromkeys(
    ("timeout", "crashed", "error", "wrong"), "red"
)


class SweepLines:
    """One line a cell. On a terminal they stand above a bar that shows the cell, its phase and the time left."""

    kind = Progress

    def __init__(self, console: Terminal, *, db: Path, fresh: bool = False, budget_s: float | None = None) -> None:
        self.console, self._say, self.db, self.fresh, self.budget_s = console, console.say, db, fresh, budget_s
        columns = BarColumn(24), MofNCompleteColumn(), TextColumn("{task.description}", markup=False)
        self.bar = self.kind(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.bar.add_task("", total=None)
        self.number = self.total = 0
        self.width = USUAL.width
        self.rows: list[tuple[Row, list[TimingRow]]] = []

    def waiting(self, reason: str) -> None:
        self._say(reason)

    def began(self, prepared: Prepared, *, total: int, left_s: float) -> None:
        self.width = goal_on(prepared.machine["device"]).width
        machine, done = prepared.machine, len(prepared.cells) - total
        earlier = f", {done} of them measured before (--fresh measures them again)" if done else ""
        where = f"{machine['device_name']} · torch {machine['torch']}"
        count = format_count(len(prepared.cells), "cell")
        self._say(" · ".join([where, *([f"preset {prepared.preset}"] if prepared.preset else []), f"{count}{earlier}"]))
        if total:
            budget = self.budget_s
            now = f", of it {format_duration(budget)} now (--budget)" if budget and budget < left_s else ""
            self._say(f"about {format_duration(left_s)}{now} · rows go to {self.db}")
            self._expect(total)

    def _expect(self, count: int) -> None:
        self.total += count
        self.bar.update(self.task, total=self.total)
        self.bar.start()

    def added(self, count: int) -> None:
        self._say(f"One more round of {format_count(count, 'cell')}, until intervals are within ±{self.width:.0%}.")
        self._expect(count)

    def doing(self, item: Expected, phase: str, *, left_s: float) -> None:
        self.bar.update(self.task, description=f"{title(item.cell)}: {phase} · {format_duration(left_s)} left")

    def finished(self, row: Row, timings: list[TimingRow], *, left_s: float) -> None:
        self.number += 1
        self.rows.append((row, timings))
        start = f"[{self.number:>{len(str(self.total))}}/{self.total}] {title(row)}  "
        left = f" · {format_duration(left_s)} left" if self.number < self.total else ""
        status, result = (row.status, STATUS_STYLES[row.status]), f"  {format_result(row, timings)}"
        self._say(Text.assemble(start, status, result, (left, "dim")))
        self.bar.update(self.task, advance=1)

    def ended(self, how: SweepEnd) -> None:
        self.bar.stop()
        statuses, out_of_budget = how.statuses, how.out_of_budget
        if not statuses and not out_of_budget:
            self._say("Nothing to measure: every cell is done. --fresh measures them again.")
            return
        counts = ", ".join(f"{number} {status}" for status, number in sorted(statuses.items())) or "nothing"
        self._say(f"Measured: {counts}. Look at them: python -m runner app{write_db(self.db)}")
        if statuses:
            self._say(f"The time went to: {how.spent.describe()}.")
        if out_of_budget:
            then = "a longer --budget reaches further" if self.fresh else "the same command goes on with them"
            self._say(f"The budget ran out with {format_count(out_of_budget, 'cell')} to go; {then}.")
        elif set(statuses) - DONE:
            why = f"python -m runner show{write_db(self.db)}"
            self._say(f"The same command tries the failed cells again; `{why}` says why they failed.")

    def close(self) -> None:
        """Removes the bar and shows the cursor again, however the sweep ended."""
        self.bar.stop()


def format_result(row: Row, timings: Iterable[TimingRow]) -> str:
    """Returns a cell's result in a few words: its median and interval, or its peak, or why it has none."""
    kind = kind_of(row)
    if row.status != "ok":
        doing = f"during {row.failed_phase}: " if row.failed_phase else ""
        return kind.explain(row) or f"{doing}{cut_text(' '.join((row.message or '').split()), longest=320)}"
    return kind.summarize(row, {timing.phase: timing for timing in timings})


def make_json(row: Row, timings: Iterable[TimingRow] = ()) -> dict[str, Any]:
    """Returns what is known of a row, with its title and its medians by phase (ms)."""
    known = {name: value for name, value in vars(row).items() if value is not None}
    medians = {timing.phase: timing.median_ms for timing in timings if timing.median_ms is not None}
    return {"title": title(row), **known, "medians_ms": medians}


def print_plan(console: Terminal, prepared: Prepared, *, as_json: bool) -> None:
    """Prints the cells of a sweep by experiment and by size, with their predictions; they are measured shuffled."""
    machine, memory = prepared.machine, prepared.machine["device_memory_bytes"]
    experiments = list(QUESTIONS)
    rows: list[dict[str, Any]] = [
        {
            "experiment": item.experiment,
            "cell": title(item.cell),
            "key": item.cell.key,
            "round": item.round,
            "step_flops": item.predicted.step_flops,
            "peak_bytes": item.predicted.peak_bytes,
            "fits": not memory or (item.predicted.peak_bytes or 0) < memory,
            "seconds": item.predicted.seconds,
            "done": done.status if (done := prepared.done.get(item.id)) else None,
        }
        for item in prepared.cells
    ]
    rows.sort(key=lambda row: (experiments.index(row["experiment"]), row["step_flops"], row["cell"], row["round"]))
    if as_json:
        console.dump(rows)
        return
    grid = new_grid("experiment", "cell", "round", "FLOPs a step", "peak memory", "time", "")
    for row in rows:
        grid.add_row(
            row["experiment"],
            row["cell"],
            str(row["round"]),
            format_quantity(row["step_flops"], "FLOP"),
            "unknown" if row["peak_bytes"] is None else format_bytes(row["peak_bytes"]),
            format_duration(row["seconds"]),
            f"done: {row['done']}" if row["done"] else "" if row["fits"] else "will not fit",
        )
    console.print(grid)
    flops = sum(item.predicted.step_flops for item in prepared.cells)
    further = ""
    if prepared.is_auto:  # the rounds that a sweep adds by itself take so long at most
        seconds, width = FurtherRounds(prepared).most_seconds(), goal_on(machine["device"]).width
        said = f"up to {format_duration(seconds)} of further rounds, until intervals are within ±{width:.0%}"
        further = f", and {said if seconds else 'no further rounds'}"
    console.say(
        f"{format_count(len(prepared.cells), 'cell')} on {machine['device_name']}, {len(prepared.owed)} to measure, "
        f"about {format_duration(prepared.seconds)}{further}; one step of each is {format_quantity(flops, 'FLOP')}. "
        "Nothing was measured."
    )
