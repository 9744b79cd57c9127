"""The console that every command prints through, and tables on it. It takes labels, hosts, messages and file names as
plain text.

    console = Terminal()
    console.say(f"Measured by {label}")
    console.print(new_grid("size", "parameters", rows=[("small", "128,625,408")]))

Markup, emoji codes and highlighting are off, and control characters are made visible (`runner.visible`). Only rich's
own `Text` has color.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from runner.formats import format_count
from runner.results import RunSummary
from runner.results.findings import Grade
from runner.store.database import look_through
from runner.visible import visible

#: The color of each grade of the audit.
STYLES: Mapping[Grade, str] = {"A": "green", "B": "blue", "C": "yellow", "D": "red"}


class Terminal(Console):
    """A console for untrusted text, in tables too."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how, markup=False, emoji=False, highlight=False)

    def say(self, line: str | Text, *, style: str | None = None) -> None:
        """Prints one line, however long it is."""
        self.print(line, style=style, soft_wrap=True)

    def render_str(self, text: str, **how: Any) -> Text:
        """Makes a string visible; rich calls this for every string, in the cells of a table too."""
        return super().render_str(visible(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Makes styled text visible."""
        if isinstance(renderable, Text):
            renderable = renderable.copy()
            renderable.plain = visible(renderable.plain)
        return super().render(renderable, options)


#: Where errors and progress go that are not part of a command's output.
errors = Terminal(stderr=True)

#: Headings of columns of words, which are aligned left; the others hold numbers.
_WORDS = {"", "cell", "ceiling", "status", "preset", "what it measures", "experiment", "question", "size", "table"}


def new_grid(*names: str, rows: Iterable[Sequence[str]] = ()) -> Table:
    """Returns a table with these columns and rows."""
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for name in names:
        grid.add_column(name, justify="left" if name in _WORDS else "right", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid


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
