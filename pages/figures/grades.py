"""Grades as stacked bars, and findings as bars by code.

figure = grade_bars([GradeBar(name="steps", counts={"A": 12, "C": 3, None: 1})], meanings=GRADES, state="grades")
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.figures.colors import SLATE, STRONG, color_of, tint
from pages.figures.frame import escape_text, layout
from pages.figures.ink import ink_on
from pages.figures.marks import write_ends
from pages.figures.rows import BAR, STACKED, chart_pixels, label_rows, row_pixels, wrap_label

#: What rows without a grade are called.
NO_RESULT = "no result"
#: The least share of the longest bar that has room for a number.
_ROOM = 0.03
#: So many rows have a tick each.
_FEW = 6


@dataclass(frozen=True, kw_only=True)
class GradeBar:
    """How many rows have each grade, of a table, a run or a machine; None are those without a result."""

    name: str
    counts: Mapping[str | None, int]


@dataclass(frozen=True, kw_only=True)
class FindingBar:
    """How many rows have one finding, and the grade that its severity gives them."""

    name: str
    severity: str
    grade: str
    rows: int


def grade_bars(bars: Sequence[GradeBar], *, meanings: Mapping[str, str], state: str) -> go.Figure:
    """Draws one bar each with the numbers inside and their sum at the end. `meanings` say what each grade means, from
    the best to the worst."""
    figure = go.Figure()
    labels = [wrap_label(escape_text(bar.name)) for bar in bars]
    most = max((sum(bar.counts.values()) for bar in bars), default=0) or 1
    for grade in (*meanings, None):
        numbers = [bar.counts.get(grade, 0) for bar in bars]
        if not any(numbers):
            continue
        words = NO_RESULT if grade is None else f"{grade}: {meanings[grade]}"
        color = tint(SLATE, opacity=0.4) if grade is None else color_of(grade)
        figure.add_bar(
            name=words,
            orientation="h",
            y=list(range(len(bars))),
            x=numbers,
            width=BAR,
            marker={"color": color, "line": {"width": 0}},
            text=[f"{number:,}" if number >= _ROOM * most else "" for number in numbers],
            textangle=0,
            textposition="inside",
            insidetextanchor="middle",
            textfont={"color": STRONG if grade is None else ink_on(color)},
            customdata=[f"<b>{label.replace('<br>', ' · ')}</b><br>{words}" for label in labels],
            hovertemplate="%{customdata}<br>%{x:,} rows<extra></extra>",
        )
    write_ends(
        figure,
        x=[sum(bar.counts.values()) for bar in bars],
        y=list(range(len(bars))),
        text=[f"  {sum(bar.counts.values()):,}" for bar in bars],
    )
    height = chart_pixels(len(bars), row=row_pixels(labels, least=34), entries=len(figure.data) - 1)
    figure.update_layout(**layout(height=height, state=state), **STACKED)
    figure.update_layout(margin_r=48)
    _count_rows(figure, most)
    label_rows(figure, labels, showgrid=False, ticks="")
    return figure


def finding_bars(bars: Sequence[FindingBar], *, state: str) -> go.Figure:
    """Draws one bar a code, in the color of the grade that it gives a row, with its number at the end."""
    figure = go.Figure()
    for severity, grade in dict.fromkeys((bar.severity, bar.grade) for bar in bars):
        chosen = [(place, bar) for place, bar in enumerate(bars) if bar.severity == severity]
        figure.add_bar(
            name=f"{severity}: grade {grade}",
            orientation="h",
            y=[place for place, _ in chosen],
            x=[bar.rows for _, bar in chosen],
            width=BAR,
            marker={"color": color_of(grade), "line": {"width": 0}},
            customdata=[bar.name for _, bar in chosen],
            hovertemplate="<b>%{customdata}</b><br>%{x:,} rows<extra></extra>",
        )
    numbers = [bar.rows for bar in bars]
    write_ends(figure, x=numbers, y=list(range(len(bars))), text=[f"  {number:,}" for number in numbers])
    height = chart_pixels(len(bars), row=30, entries=len(figure.data) - 1)
    figure.update_layout(**layout(height=height, state=state), barmode="overlay", margin_r=48)
    _count_rows(figure, max(numbers, default=1))
    label_rows(figure, [bar.name for bar in bars], showgrid=False, ticks="")
    return figure


def _count_rows(figure: go.Figure, most: int) -> None:
    """Draws the horizontal axis of bars of at most so many rows, with whole numbers only."""
    figure.update_xaxes(
        title="Rows", range=[0, most * 1.02], nticks=6, dtick=1 if most <= _FEW else None, tickangle=0,
        automargin=True, tickformat=",d",
    )  # fmt: skip
