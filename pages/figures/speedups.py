"""How many times faster one way is than another: dots with 95% intervals on a log axis.

    figure = speedup_dots([SpeedupDot(place="toy-64 · 128", phase="step", ratio=1.9, low=1.8, high=2.0, …)])
    figure = speedup_trend(dots)          # the same over the size of the model

Right of 1× the variant is faster. A pair with a failed side keeps its line, with the reason.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

import plotly.graph_objects as go

from pages.figures.colors import FAINT, FAINTER, color_of
from pages.figures.frame import WORDS, format_interval, format_short, layout, title_of
from pages.figures.marks import Interval, cross_failures, error_bars, hover_cells, ring_hosts
from pages.figures.ratios import left_end, ratio_axis
from pages.figures.rows import chart_pixels, label_rows, row_pixels, wrap_label
from runner.formats import format_number
from runner.schema import Phase

_SYMBOLS: dict[Phase, str] = {"forward": "circle", "backward": "diamond", "step": "square"}
#: The width of a letter below an axis, as a share of that axis on a phone.
LETTER = 0.025


@dataclass(frozen=True, kw_only=True)
class SpeedupDot:
    """One phase of one pair or, with `failure`, a pair that has no ratio. `host` says which sides the host bounds."""

    place: str
    size: str
    phase: Phase
    cell_id: str
    ratio: float = 1.0
    low: float | None = None
    high: float | None = None
    parameters: int | None = None
    failure: str | None = None
    host: str = ""


def speedup_dots(rows: Sequence[SpeedupDot], *, variant: str) -> go.Figure:
    """Draws one line a pair, one dot a phase, ringed where the host bounds a side."""
    places = list(dict.fromkeys(row.place for row in rows))
    figure = go.Figure()
    measured = [row for row in rows if not row.failure]
    phases = [phase for phase in _SYMBOLS if any(row.phase == phase for row in measured)]
    apart = {phase: (index - (len(phases) - 1) / 2) * 0.22 for index, phase in enumerate(phases)}
    for phase in phases:
        chosen = [row for row in measured if row.phase == phase]
        figure.add_scatter(
            name=WORDS[phase],
            mode="markers+text" if phase == "step" else "markers",
            x=[row.ratio for row in chosen],
            y=[places.index(row.place) + apart[phase] for row in chosen],
            marker={"color": color_of(phase), "size": 9, "symbol": _SYMBOLS[phase]},
            error_x=error_bars(map(_interval, chosen)),
            **hover_cells((row.cell_id, _describe(row)) for row in chosen),
            cliponaxis=False,
        )
    rings = ring_hosts(figure, ((row.host, row.ratio, places.index(row.place) + apart[row.phase]) for row in measured))
    axis = ratio_axis(value for row in measured for value in _interval(row))
    lost = [row for row in rows if row.failure]
    cross_failures(
        figure,
        x=left_end(axis),
        y=[places.index(row.place) for row in lost],
        failures=[(row.cell_id, row.failure) for row in lost],
    )
    figure.add_vline(x=1, line={"color": FAINT, "width": 2})
    labels = [wrap_label(place) for place in places]
    row = row_pixels(labels, least=36)
    height = chart_pixels(len(places), row=row, entries=len(phases) + rings, squeezed=row)
    figure.update_layout(**layout(height=max(200, height), state=f"speedups-{variant}"))
    figure.update_xaxes(**axis, title=f"Speedup of {variant} (×, log)")
    label_rows(figure, labels, showgrid=True, gridcolor=FAINTER)
    return figure


def speedup_trend(rows: Sequence[SpeedupDot], *, variant: str) -> go.Figure:
    """Draws every pair over the number of parameters; the line joins the geometric means of each size."""
    figure = go.Figure()
    usable = [row for row in rows if not row.failure and row.parameters]
    phases = [phase for phase in _SYMBOLS if any(row.phase == phase for row in usable)]
    sizes = [row.parameters or 1 for row in usable]
    apart = max(max(sizes, default=1) / min(sizes, default=1), 10) ** 0.02
    for index, phase in enumerate(phases):
        chosen = [row for row in usable if row.phase == phase]
        aside = apart ** (index - (len(phases) - 1) / 2)  # marks of one size stand beside each other
        figure.add_scatter(
            x=[(row.parameters or 1) * aside for row in chosen],
            y=[row.ratio for row in chosen],
            mode="markers",
            name=WORDS[phase],
            marker={
                "color": "rgba(0, 0, 0, 0)",
                "size": 8,
                "symbol": _SYMBOLS[phase],
                "line": {"color": color_of(phase), "width": 1.5},
            },
            error_y=error_bars(map(_interval, chosen), color=color_of(phase), width=0),
            legendgroup=phase,
            showlegend=False,
            **hover_cells((row.cell_id, _describe(row)) for row in chosen),
        )
        means = _geometric_means(chosen)
        figure.add_scatter(
            x=list(means),
            y=list(means.values()),
            mode="lines",
            legendgroup=phase,
            name=WORDS[phase],
            line={"color": color_of(phase), "width": 2},
            hoverinfo="skip",
        )
    figure.add_hline(y=1, line={"color": FAINT, "width": 2})
    axis = _parameter_axis({row.parameters: row.size for row in usable if row.parameters})
    lines = max((label.count("<br>") + 1 for label in axis["ticktext"]), default=2)
    figure.update_layout(**layout(height=330 + 15 * lines, state=f"trend-{variant}"))
    figure.update_xaxes(**axis)
    values = (value for row in usable for value in _interval(row))
    figure.update_yaxes(**ratio_axis(values), title=f"Speedup of {variant} (×, log)")
    return figure


def _parameter_axis(names: Mapping[int, str]) -> dict[str, Any]:
    """Returns a log axis of parameters with the sizes at their counts, and room beside them."""
    low, high = (math.log10(end(names, default=1)) for end in (min, max))
    room = max(0.08 * (high - low), 0.15)
    sizes = sorted(names)
    places = [(math.log10(size) - low + room) / (high - low + 2 * room) for size in sizes]
    return {
        "type": "log",
        "title": title_of("steps", "parameters"),
        "automargin": True,
        "showgrid": False,
        "range": [low - room, high + room],
        "tickangle": 0,
        "tickvals": sizes,
        "ticktext": _stagger([f"{names[size]}<br>{format_short(size)}" for size in sizes], places),
    }


def _stagger(labels: Sequence[str], places: Sequence[float]) -> list[str]:
    """Returns labels of two lines, each lowered until it does not overlap another. `places` are shares of the axis, in
    ascending order."""
    ends: list[float] = []
    staggered = []
    for label, place in zip(labels, places, strict=True):
        half = LETTER * max(map(len, label.split("<br>"))) / 2
        row = next((row for row, end in enumerate(ends) if end < place - half), len(ends))
        ends[row : row + 1] = [place + half]
        staggered.append("<br>" * 2 * row + label)
    return staggered


def _geometric_means(rows: Sequence[SpeedupDot]) -> dict[int, float]:
    """Returns the geometric mean of the ratios by number of parameters, smallest first."""
    groups: dict[int, list[float]] = {}
    for row in rows:
        groups.setdefault(row.parameters or 0, []).append(row.ratio)
    return {size: geometric_mean(ratios) for size, ratios in sorted(groups.items())}


def _interval(row: SpeedupDot) -> Interval:
    return row.ratio, row.low, row.high


def _describe(row: SpeedupDot) -> str:
    return (
        f"<b>{row.place}</b><br>{WORDS[row.phase]}: {format_number(row.ratio)}×"
        f"<br>95% interval {format_interval(row.low, row.high, unit='×')}{f'<br>{row.host}' if row.host else ''}"
    )
