"""Rows of a chart: where they stand, what is written beside and above them, and how tall they are.

    rows = under_headings(["small", "small", "large"], ["128", "512", "128"])   # stand at 1, 2, 4; headings at 0, 3
    figure.add_bar(orientation="h", y=rows.at, x=[…], width=BAR)
    rows.draw(figure)

A chart does not know how wide it will be. So long names stand above their rows or are folded into lines: beside a row
they would take all of a phone's width.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import plotly.graph_objects as go

#: The thickness of a bar, as a share of its row.
BAR = 0.72
#: Layout of stacked bars; a number that does not fit its part is left out, not shrunk.
STACKED: dict[str, Any] = {"barmode": "stack", "uniformtext": {"minsize": 9, "mode": "hide"}}
#: The most letters of a line beside a row: half of the card on a phone.
MAX_LETTERS = 28
#: Pixels of a label's line, of a legend's entry, and of everything below a chart's rows.
_LINE, _ENTRY, _BELOW = 15, 19, 64
#: The least pixels of a row where the legend takes a line an entry.
_MIN_ROW = 20


@dataclass(frozen=True, kw_only=True)
class ChartRows:
    """`at[i]` is where the `i`th row stands, counted from the top; `headings` are the places and texts above them."""

    at: tuple[int, ...]
    places: tuple[str, ...]
    headings: tuple[tuple[int, str], ...]

    @property
    def count(self) -> int:
        """The number of rows and headings together."""
        return len(self.at) + len(self.headings)

    def draw(self, figure: go.Figure) -> None:
        """Draws the labels, the headings and the vertical axis, from the top down."""
        for at, heading in self.headings:
            figure.add_annotation(
                text=f"<b>{heading}</b>", x=0, xref="paper", xanchor="left", y=at, yshift=-4, showarrow=False,
                font={"size": 12},
            )  # fmt: skip
        figure.update_yaxes(
            tickvals=list(dict.fromkeys(self.at)), ticktext=list(dict(zip(self.at, self.places, strict=True)).values()),
            range=[self.count - 0.5, -0.5], automargin=True, zeroline=False, showgrid=False, ticks="",
        )  # fmt: skip


def under_headings(groups: Sequence[str], places: Sequence[str]) -> ChartRows:
    """Returns a row for each place, in order, and above the first of a group its name, if any. Line breaks in names
    become dots."""
    at: list[int] = []
    headings: list[tuple[int, str]] = []
    for index, group in enumerate(groups):
        if group and (index == 0 or group != groups[index - 1]):
            headings.append((index + len(headings), group.replace("<br>", " · ")))
        at.append(index + len(headings))
    return ChartRows(at=tuple(at), places=tuple(places), headings=tuple(headings))


def label_rows(figure: go.Figure, labels: Sequence[str], *, edge: float = 0.4, **style: Any) -> None:
    """Labels the rows of the vertical axis, which stand at 0, 1, … from the top down, with `edge` of a row below the
    last; `style` is of the axis."""
    figure.update_yaxes(
        tickvals=list(range(len(labels))), ticktext=list(labels), range=[len(labels) - edge, edge - 1],
        automargin=True, zeroline=False, **style,
    )  # fmt: skip


def beside(figure: go.Figure, words: Mapping[int, str]) -> None:
    """Writes words right of the plot, each as high as its row, once the vertical axis has its range. No mark lies on
    them there, and Plotly makes room for the longest."""
    figure.add_scatter(yaxis="y2", x=[None], y=[None], showlegend=False)  # an axis without a trace is not drawn
    figure.update_layout(yaxis2={
        "overlaying": "y", "side": "right", "range": figure.layout.yaxis.range, "tickvals": list(words),
        "ticktext": list(words.values()), "automargin": True, "showgrid": False, "zeroline": False, "ticks": "",
    })  # fmt: skip


def wrap_label(label: str) -> str:
    """Returns the label in lines of at most `MAX_LETTERS`, broken between its parts; unchanged where its lines fit."""
    lines = label.split("<br>")
    if all(len(line) <= MAX_LETTERS for line in lines):
        return label
    kept: list[str] = []
    for part in " · ".join(lines).split(" · "):
        if kept and len(kept[-1]) + 3 + len(part) <= MAX_LETTERS:
            kept[-1] += f" · {part}"
        else:
            kept.append(part)
    return "<br>".join(kept)


def row_pixels(labels: Sequence[str], *, least: int) -> int:
    """Returns how tall rows with these labels must be, so that no two neighbors touch."""
    lines = [label.count("<br>") + 1 for label in labels]
    most = max((sum(pair) / 2 for pair in pairwise(lines)), default=max(lines, default=1))
    return max(least, math.ceil(_LINE * most) + 8)


def chart_pixels(count: int, *, row: int, entries: int = 0, squeezed: int = _MIN_ROW) -> int:
    """Returns the height of a chart of `count` rows. On a phone every entry of the legend takes a line: a chart with
    many entries and few rows is taller, so that rows keep at least `squeezed` pixels."""
    on_a_phone = _ENTRY * entries + 12 + squeezed * count
    return _BELOW + max((36 if entries else 12) + row * count, on_a_phone if entries else 0)
