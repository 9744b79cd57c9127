"""The console that every command prints through. It takes labels, hosts, messages and file names as plain text.

    console = Terminal()
    console.say(f"Measured by {label}")

Markup, emoji codes and highlighting are off, and control characters are made visible (`runner.visible`). Only rich's
own `Text` has color.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from runner.results.findings import Grade
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
