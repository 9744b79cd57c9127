"""Published times over measured ones: a dot for each phase of each cell, on a log axis around 1×.

figure = ratio_dots([RatioDot(place="S at 256 tokens", phase="forward", ratio=0.42, low=0.41, high=0.43, grade="C", …)])
"""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.figures.colors import FAINT, FAINTER, color_of
from pages.figures.frame import WORDS, escape_text, format_interval, layout
from pages.figures.marks import error_bars, hover_cells
from pages.figures.ratios import ratio_axis
from pages.figures.rows import chart_pixels, label_rows, row_pixels, wrap_label
from runner.formats import format_ms, format_number
from runner.schema import Phase

_SYMBOLS: dict[Phase, str] = {
    "forward": "circle",
    "backward": "diamond",
    "forward_backward": "square",
    "optimizer": "triangle-up",
    "step": "star",
}


@dataclass(frozen=True, kw_only=True)
class PublishedDot:
    """One published time over the measured one. `grade` is what the audit says of the published row."""

    place: str
    phase: Phase
    cell_id: str
    ratio: float
    low: float | None
    high: float | None
    published_ms: float
    measured_ms: float
    grade: str | None


def ratio_dots(dots: Sequence[PublishedDot], *, state: str) -> go.Figure:
    """Draws one line a cell, one dot a phase: filled where the row stands, hollow where the audit is against it."""
    places = list(dict.fromkeys(dot.place for dot in dots))
    figure = go.Figure()
    phases = [phase for phase in _SYMBOLS if any(dot.phase == phase for dot in dots)]
    for index, phase in enumerate(phases):
        chosen = [dot for dot in dots if dot.phase == phase]
        apart = (index - (len(phases) - 1) / 2) * 0.22
        symbols = [_SYMBOLS[phase] + ("" if dot.grade in ("A", "B") else "-open") for dot in chosen]
        figure.add_scatter(
            name=WORDS[phase],
            mode="markers",
            x=[dot.ratio for dot in chosen],
            y=[places.index(dot.place) + apart for dot in chosen],
            marker={"color": color_of(phase), "size": 10, "symbol": symbols, "line": {"width": 2}},
            error_x=error_bars((dot.ratio, dot.low, dot.high) for dot in chosen),
            **hover_cells((dot.cell_id, _describe(dot)) for dot in chosen),
            cliponaxis=False,
        )
    labels = [wrap_label(escape_text(place)) for place in places]
    row = row_pixels(labels, least=34)
    figure.add_vline(x=1, line={"color": FAINT, "width": 2})
    height = chart_pixels(len(places), row=row, entries=len(phases), squeezed=row)
    figure.update_layout(**layout(height=max(200, height), state=state))
    axis = ratio_axis(value for dot in dots for value in (dot.ratio, dot.low, dot.high))
    figure.update_xaxes(**axis, title="Published time over measured time (×, log)")
    label_rows(figure, labels, showgrid=True, gridcolor=FAINTER)
    return figure


def _describe(dot: PublishedDot) -> str:
    judged = f"grade {dot.grade}" if dot.grade else "no grade"
    return (
        f"<b>{escape_text(dot.place)}</b><br>{WORDS[dot.phase]}: published {format_ms(dot.published_ms)}, measured "
        f"{format_ms(dot.measured_ms)}<br>{format_number(dot.ratio)}× "
        f"({format_interval(dot.low, dot.high, unit='×')})<br>published row: {judged}"
    )
