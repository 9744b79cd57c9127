"""The console that every command prints through, and tables on it. It takes labels, hosts, messages and file names as
plain text.

    console = Terminal()
    console.say(f"Measured by {label}")
    console.print(new_grid("size", "parameters", rows=[("small", "128,625,408")]))

Markup, emoji codes and highlighting are off, and control characters are made visible (`runner.formats`). Only rich's
own `Text` has color.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from runner.formats import visible

_MODULE = "python -m runner"
_PROGRAM = "stepscope" if Path(sys.argv[0]).stem == "stepscope" else _MODULE


class Terminal(Console):
    """A console for untrusted text, in tables too."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how, markup=False, emoji=False, highlight=False)

    def say(self, line: str | Text, *, style: str | None = None) -> None:
        """Prints one line, however long it is."""
        self.print(line, style=style, soft_wrap=True)

    def dump(self, document: Any) -> None:
        from runner.render.json import to_text

        print(to_text(document, indent=1), file=self.file)

    def render_str(self, text: str, **how: Any) -> Text:
        """Makes a string visible; rich calls this for every string, in the cells of a table too. Commands are named as
        this one was."""
        return super().render_str(as_started(visible(text)), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Makes styled text visible."""
        if isinstance(renderable, Text):
            renderable = renderable.copy()
            renderable.plain = visible(renderable.plain)  # as long as before, so the places of styles within it stay
            parts = renderable.split(_MODULE, include_separator=True, allow_blank=True)
            for part in parts:
                part.plain = as_started(part.plain)  # it ends with the name, which becomes shorter
            renderable = renderable.blank_copy().join(parts)
        return super().render(renderable, options)


def as_started(text: str) -> str:
    """Returns a text with its commands named as this one was started."""
    return text.replace(_MODULE, _PROGRAM)


#: Where errors and progress go that are not part of a command's output.
errors = Terminal(stderr=True)

#: Headings of columns of words, which are aligned left; the others hold numbers.
_WORDS = {
    "", "cell", "ceiling", "status", "preset", "what it measures", "experiment", "question", "size", "table", "result",
    "findings",
}  # fmt: skip


def new_grid(*names: str, rows: Iterable[Sequence[str]] = ()) -> Table:
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for name in names:
        grid.add_column(name, justify="left" if name in _WORDS else "right", overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return grid
