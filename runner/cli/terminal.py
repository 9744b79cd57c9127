"""The consoles that every command prints through: whatever they are given is text and nothing else.

    console = Terminal()
    console.say(f"Measured by {label}")

No markup, no emoji codes, no highlighting, and no control character of a label, a host, a message or a file's name: see
`runner.visible`. Color is for what is wrapped in rich's own `Text`.
"""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from runner.visible import visible


class Terminal(Console):
    """A console for text of others, in tables too."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how, markup=False, emoji=False, highlight=False)

    def say(self, line: str | Text, *, style: str | None = None) -> None:
        """One line, however long it is."""
        self.print(line, style=style, soft_wrap=True)

    def render_str(self, text: str, **how: Any) -> Text:
        """The text as it is printed; rich asks this for every string, in the cells of a table too."""
        return super().render_str(visible(text), **how)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The same for text that has a style."""
        if isinstance(renderable, Text):
            renderable = renderable.copy()
            renderable.plain = visible(renderable.plain)
        return super().render(renderable, options)
