"""Tables for the terminal before there are rows: the plan of a sweep, and the presets, experiments, sizes and runs.

python -m runner list            python -m runner sweep --dry-run
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table as Grid

from runner.analysis.costs import steps
from runner.cli.terminal import Terminal
from runner.errors import UsageError
from runner.formats import format_bytes, format_count, format_duration, format_quantity
from runner.plan.planning import PRESETS, QUESTIONS
from runner.results import RunSummary
from runner.schema import TABLES, StepCell
from runner.schema.sizes import SIZES, title
from runner.store import history
from runner.store.database import look_through
from runner.sweep.prepare import Prepared
from runner.sweep.rounds import FurtherRounds, goal_on


def print_plan(console: Terminal, prepared: Prepared) -> None:
    """Prints the cells of a sweep by experiment and by size, with the prediction of each; they are measured
    shuffled."""
    machine, memory = prepared.machine, prepared.machine["device_memory_bytes"]
    grid = new_grid("experiment", "cell", "round", "FLOPs a step", "peak memory", "time", "")
    experiments = list(QUESTIONS)
    for item in sorted(
        prepared.cells,
        key=lambda item: (
            experiments.index(item.planned.experiment),
            item.predicted.step_flops,
            title(item.planned.cell),
            item.planned.round,
        ),
    ):
        planned = item.planned
        done = prepared.done.get((planned.cell.key, planned.round))
        fits = "" if not memory or (item.predicted.peak_bytes or 0) < memory else "will not fit"
        grid.add_row(
            planned.experiment,
            title(planned.cell),
            str(planned.round),
            format_quantity(item.predicted.step_flops, "FLOP"),
            "unknown" if item.predicted.peak_bytes is None else format_bytes(item.predicted.peak_bytes),
            format_duration(item.predicted.seconds),
            f"done: {done}" if done else fits,
        )
    console.print(grid)
    flops = sum(item.predicted.step_flops for item in prepared.cells)
    further = f", and {_describe_further(prepared)}" if prepared.is_auto else ""
    console.say(
        f"{len(prepared.cells)} cells on {machine['device_name']}, {len(prepared.owed)} to measure, about "
        f"{format_duration(prepared.seconds)}{further}; one step of each is {format_quantity(flops, 'FLOP')}. "
        "Nothing was measured."
    )


def _describe_further(prepared: Prepared) -> str:
    """Says how long the rounds will take at most that a sweep adds by itself."""
    seconds = FurtherRounds(prepared).most_seconds()
    if not seconds:
        return "no further rounds"
    width = goal_on(prepared.machine["device"]).width
    return f"up to {format_duration(seconds)} of further rounds, until intervals are within ±{width:.0%}"


def print_lists(console: Terminal, what: str, *, db: Path) -> None:
    """Prints the presets, experiments, sizes or runs, or all of them; or every column as Markdown."""
    if what == "columns":
        print(columns_markdown(), end="")
        return
    if what not in ("presets", "experiments", "sizes", "runs", "all"):
        raise UsageError(f"There is no list of {what!r}.", expected="presets, experiments, sizes, runs, columns or all")
    if what in ("presets", "all"):
        rows = ((preset.name, preset.doc) for preset in PRESETS.values())
        console.print(new_grid("preset", "what it measures", rows=rows))
    if what in ("experiments", "all"):
        console.print(new_grid("experiment", "question", rows=QUESTIONS.items()))
    if what in ("sizes", "all"):
        console.print(_sizes())
    if what in ("runs", "all"):
        runs = history.runs(db)
        print_left_out(console, db)
        if runs:
            console.print(runs_grid(runs))
        else:
            console.say(f"No runs in {db} yet: python -m runner sweep")


def print_left_out(console: Terminal, db: Path) -> None:
    """Prints how many rows of the file break the contract and are in no table, and which of several files cannot be
    read, if any."""
    found = look_through(db)
    for name, reason in found.broken.items():
        console.say(f"Left out, as it cannot be read: {name}. {reason}", style="yellow")
    left_out = found.left_out
    if left_out:
        counts = ", ".join(f"{count:,} of {name}" for name, count in left_out.items())
        console.say(f"Left out, as their values break the contract: {counts} in {db}.", style="yellow")


def columns_markdown() -> str:
    """Returns every table and column as Markdown: the text of `data/README.md`."""
    lines = [
        "# The results file",
        "",
        "Written by `python -m runner list columns`; a test keeps it equal to the schema. Times of day are UTC.",
        "NULL means unknown.",
        "",
        "`reference/` holds 31 tables of five published reports as they were transcribed: one CSV a table, in which",
        "`seed_file` and `source_line` say where each row stood, and `provenance.csv`, which says what is known of how",
        "each report measured. `python -m runner import data/reference` adds them as runs with the source `published`.",
        "",
        "`reference/h200/` holds rows that Stepscope measured on an NVIDIA H200: one Parquet file a table, as",
        "`python -m runner export data/reference/h200 --parquet --db FILE` writes them. The app shows them until",
        "`results.duckdb` has a row, and beside its rows afterwards; `--db` and `STEPSCOPE_DB` take the folder, too.",
    ]
    for table in TABLES.values():
        lines += ["", f"## {table.name}", "", table.doc, "", "| column | type | unit | meaning |", "|---|---|---|---|"]
        for column in table.columns:
            choices = f" One of {', '.join(f'`{choice}`' for choice in column.choices)}." if column.choices else ""
            key = " *Key.*" if column.name in table.key else ""
            meaning = f"{column.doc}{choices}{key}"
            lines.append(f"| `{column.name}` | {column.sql_type} | {column.unit} | {meaning} |")
    return "\n".join(lines) + "\n"


def _sizes() -> Grid:
    grid = new_grid("size", "d_model", "d_ff", "layers", "heads", "vocabulary", "parameters")
    for size in SIZES.values():
        shape: dict[str, Any] = dict(size.numbers)
        cell = StepCell(**shape, context=1, mode="inference", precision="fp32")
        grid.add_row(size.name, *(f"{number:,}" for number in (*shape.values(), steps.parameter_count(cell))))
    return grid


def find_run(name: str, *, db: Path) -> RunSummary:
    """Returns the latest run of this label or whose id begins so; the latest of all for an empty name.

    Raises UsageError if there is none."""
    known = history.runs(db)
    if not known:
        raise UsageError(f"There are no runs in {db}.", do="Measure some: python -m runner sweep")
    found = next(
        (item for item in known if name in (item.label, item.given) or str(item.run_id).startswith(name)), None
    )
    if found is None:
        labels = ", ".join(item.label or str(item.run_id) for item in known[:5])
        raise UsageError(f"No run is called {name!r}.", expected=f"an id, its beginning or a label, such as {labels}")
    return found


def runs_grid(runs: list[RunSummary]) -> Grid:
    """Returns one line a run. In place of a preset, which only measured runs have, the others say what they are."""
    grid = new_grid("run", "started (UTC)", "label", "preset", "device", "torch", "cells", "not ok")
    for run in runs:
        started = f"{run.started_at:%Y-%m-%d %H:%M}" if run.started_at else ""
        grid.add_row(
            str(run.run_id),
            started,
            " ".join([run.given or run.label or "", *(f"#{tag}" for tag in run.tags)]).strip(),
            run.preset or ("" if run.source in (None, "measured") else run.source),
            run.device_name or "",
            run.torch or "",
            str(run.cells),
            str(run.failed + run.skipped),
        )
    return grid


def print_title(console: Terminal, run: RunSummary) -> None:
    """Prints what one run is: its id, when it began, its label, what measured it and how many cells."""
    started = f"{run.started_at:%Y-%m-%d %H:%M} UTC" if run.started_at else ""
    named = " ".join([run.given or run.label or "", *(f"#{tag}" for tag in run.tags)]).strip()
    preset = run.preset or ("" if run.source in (None, "measured") else run.source)
    torch = f"torch {run.torch}" if run.torch else ""
    failed = run.failed + run.skipped
    cells = f"{format_count(run.cells, 'cell')}{f', {failed} not ok' if failed else ''}"
    console.print(f"run {run.run_id}", style="bold")
    words = (started, named, preset or "", run.device_name or "", torch, cells)
    console.print(" · ".join(word for word in words if word), "")


#: Headings of columns of words, which are aligned left; the others hold numbers.
_WORDS = {
    "",
    "cell",
    "ceiling",
    "status",
    "preset",
    "what it measures",
    "experiment",
    "question",
    "size",
    "run",
    "label",
    "table",
}
_WORDS |= {"device", "torch", "started (UTC)"}


def new_grid(*names: str, rows: Iterable[Sequence[str]] = ()) -> Grid:
    """Returns a table with these columns and rows."""
    grid = Grid(box=None, header_style="bold", pad_edge=False)
    for name in names:
        grid.add_column(name, justify="left" if name in _WORDS else "right", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid
