"""Small pictures of a few bars, as HTML that needs no script: one beside each answer of the front page.

    html = small_bars([SmallBar(name="bf16", value=1.9, words="1.90×", color=color_of("bf16"))], alt="…", mark=1.0)

Names and words may come from a file of others: they are escaped. `small.css` lays the bars out, on a page and in a file
that opens offline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

#: More bars than these are not a small picture any more.
MAX_BARS = 5
STYLE = Path(__file__).with_suffix(".css")


@dataclass(frozen=True, kw_only=True)
class SmallBar:
    """One bar from 0 to `value`, with its 95% interval where one is known; `words` stand right of it."""

    name: str
    value: float
    words: str
    color: str
    low: float | None = None
    high: float | None = None


def small_bars(bars: Sequence[SmallBar], *, alt: str, mark: float | None = None) -> str:
    """Returns the first bars on one scale, with a line at `mark`; empty without bars."""
    shown = bars[:MAX_BARS]
    whole = max([bar.high or bar.value for bar in shown] + ([mark] if mark else []), default=0.0)
    if whole <= 0:
        return ""
    line = f'<b class="small-mark" style="left:{_percent(mark, whole)}"></b>' if mark else ""
    rows = "".join(_draw_row(bar, whole, line) for bar in shown)
    return f'<div class="small-bars" role="img" aria-label="{escape(alt, quote=True)}">{rows}</div>'


def _draw_row(bar: SmallBar, whole: float, line: str) -> str:
    filled = f'<i style="width:{_percent(bar.value, whole)};background:{bar.color}"></i>'
    sure = ""
    if bar.low is not None and bar.high is not None:
        left, width = _percent(bar.low, whole), _percent(bar.high - bar.low, whole)
        sure = f'<u style="left:{left};width:{width}"></u>'
    track = f'<span class="small-track">{filled}{line}{sure}</span>'
    return f"<span>{escape(bar.name)}</span>{track}<span>{escape(bar.words)}</span>"


def _percent(value: float, whole: float) -> str:
    return f"{100 * min(max(value / whole, 0.0), 1.0):.1f}%"
