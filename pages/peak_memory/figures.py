"""Peaks beside each other (fp32 and bf16, predicted and measured, phases of a step), and what a block keeps.

figure = peak_pairs([PeakPair(place="toy-64 · 128", base=28.5e6, other=24.3e6)], names=("fp32", "bf16"))
figure = predicted_dots([PredictedDot(…)])
figure = phase_peak_bars([PhasePeakBar(phase="forward", held={"peak, live tensors": 28_500_000})], state="cell")
figure = saved_bars([("softmax in attention", 4 * 2**20)], rest=0)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from pages.figures.bytes import binary_axis
from pages.figures.colors import FAINT, QUIET, color_of
from pages.figures.frame import escape_text, layout
from pages.figures.marks import hover_cells
from pages.figures.rows import beside, label_rows
from pages.figures.tensors import format_ratio
from runner.formats import format_bytes, format_number, unit_for


@dataclass(frozen=True, kw_only=True)
class PeakPair:
    """One place and two peaks in bytes."""

    place: str
    base: int
    other: int

    @property
    def ratio(self) -> float:
        return self.other / self.base


@dataclass(frozen=True, kw_only=True)
class PredictedDot:
    """One cell: predicted and measured peak in bytes."""

    place: str
    cell_id: str
    precision: str
    predicted: int
    measured: int

    @property
    def ratio(self) -> float:
        return self.measured / self.predicted


def peak_pairs(pairs: Sequence[PeakPair], *, names: tuple[str, str]) -> go.Figure:
    """Draws a ring and a dot a place, joined, with the ratio right of them."""
    at = list(range(len(pairs)))
    sizes = [value for pair in pairs for value in (pair.base, pair.other)]
    figure = go.Figure()
    figure.add_scatter(
        mode="lines", showlegend=False, hoverinfo="skip", line={"color": FAINT, "width": 3},
        x=[value for pair in pairs for value in (pair.base, pair.other, None)],
        y=[value for row in at for value in (row, row, None)],
    )  # fmt: skip
    ring = {"symbol": "circle-open", "size": 15, "line": {"width": 2}}
    drawn = ((names[0], [pair.base for pair in pairs], ring), (names[1], [pair.other for pair in pairs], {"size": 8}))
    for name, values, marker in drawn:
        figure.add_scatter(
            name=name, mode="markers", x=values, y=at, marker={"color": color_of(name), **marker},
            customdata=[[format_bytes(value), pair.place] for value, pair in zip(values, pairs, strict=True)],
            hovertemplate=f"<b>%{{customdata[1]}}</b><br>{name}: %{{customdata[0]}}<extra></extra>", cliponaxis=False,
        )  # fmt: skip
    figure.update_layout(**layout(height=max(200, 110 + 27 * len(pairs)), state="peak-pairs"))
    figure.update_xaxes(**_make_byte_axis(sizes, most=4), title="Peak allocated", automargin=True, tickangle=0)
    label_rows(figure, [pair.place for pair in pairs])
    beside(figure, {row: f"{format_ratio(pair.ratio)}×" for row, pair in enumerate(pairs)})
    return figure


def _make_byte_axis(sizes: Sequence[float], *, most: int = 8) -> dict[str, Any]:
    """Returns a log axis of powers of two or, where the sizes span less than two of those, an even axis in their
    unit."""
    low, high = min(sizes), max(sizes)
    if high >= 4 * low:
        inside = [2 ** math.ceil(math.log2(low)), 2 ** math.floor(math.log2(high))]
        ends = [math.log10(low), math.log10(high)]
        room = 0.05 * (ends[1] - ends[0])
        return {**binary_axis(inside, most=most), "range": [ends[0] - room, ends[1] + room]}
    factor, unit = unit_for(sizes)
    room = max(0.08 * (high - low), 0.01 * high)
    start, end = (low - room) / factor, (high + room) / factor
    stride = _choose_stride((end - start) / min(most, 5))
    ticks = [stride * step for step in range(math.ceil(start / stride), math.floor(end / stride) + 1)]
    return {"range": [start * factor, end * factor], "tickvals": [tick * factor for tick in ticks],
            "ticktext": [f"{tick:.6g} {unit}" for tick in ticks]}  # fmt: skip


def _choose_stride(least: float) -> float:
    """Returns the smallest of 1, 2, 5, 10, 20, … that is not below `least`, also below 1."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= least)


def predicted_dots(dots: Sequence[PredictedDot]) -> go.Figure:
    """Draws measured over predicted peaks, log-log, with the line of agreement."""
    sizes = [value for dot in dots for value in (dot.predicted, dot.measured)]
    figure = go.Figure()
    ends = [min(sizes) / 2, max(sizes) * 2]
    figure.add_scatter(
        name="as predicted", mode="lines", x=ends, y=ends, hoverinfo="skip", line={"color": QUIET, "width": 1.5}
    )
    for precision in dict.fromkeys(dot.precision for dot in dots):
        chosen = [dot for dot in dots if dot.precision == precision]
        figure.add_scatter(
            name=precision, mode="markers", x=[dot.predicted for dot in chosen], y=[dot.measured for dot in chosen],
            marker={"color": color_of(precision), "size": 9, "opacity": 0.8},
            **hover_cells((dot.cell_id, _describe(dot)) for dot in chosen),
        )  # fmt: skip
    figure.update_layout(**layout(height=400, state="predicted"))
    figure.update_xaxes(**_make_byte_axis(sizes, most=4), title="Predicted peak", automargin=True, tickangle=0)
    figure.update_yaxes(**_make_byte_axis(sizes), title="Measured peak", automargin=True)
    return figure


def _describe(dot: PredictedDot) -> str:
    return (
        f"<b>{dot.place}</b><br>measured {format_bytes(dot.measured)}<br>predicted {format_bytes(dot.predicted)}"
        f"<br>{format_number(dot.ratio)}× as predicted"
    )


@dataclass(frozen=True, kw_only=True)
class PhasePeakBar:
    """One phase of a step: bytes by what they count, in drawing order."""

    phase: str
    held: Mapping[str, int]


def phase_peak_bars(bars: Sequence[PhasePeakBar], *, state: str) -> go.Figure:
    """Draws a bar a phase for the first count, in the color of the phase, and a mark for each other count."""
    names = list(dict.fromkeys(name for bar in bars for name in bar.held))
    factor, unit = unit_for([size for bar in bars for size in bar.held.values()])
    figure = go.Figure()
    for name, symbol in zip(names, (None, "line-ns", "diamond-open", "circle"), strict=False):
        chosen = [bar for bar in bars if name in bar.held]
        x, y = [bar.held[name] / factor for bar in chosen], [bar.phase for bar in chosen]
        hover = {"customdata": [[format_bytes(bar.held[name])] for bar in chosen],
                 "hovertemplate": f"<b>%{{y}}</b><br>{name}: %{{customdata[0]}}<extra></extra>"}  # fmt: skip
        if symbol is None:
            colors = [color_of(bar.phase) for bar in chosen]
            figure.add_bar(name=name, orientation="h", x=x, y=y, marker={"color": colors}, showlegend=False, **hover)
        else:
            figure.add_scatter(
                name=name, mode="markers", x=x, y=y, cliponaxis=False, **hover,
                marker={"symbol": symbol, "size": 11, "color": "#FFFFFF", "line": {"width": 2.5, "color": QUIET}},
            )  # fmt: skip
    figure.update_layout(**layout(height=120 + 34 * len(bars), state=f"phases-{state}"))
    figure.update_xaxes(title=f"Held ({unit})", rangemode="tozero", automargin=True)
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False)
    return figure


def saved_bars(kept: Sequence[tuple[str, int]], *, rest: int) -> go.Figure:
    """Draws `kept`, (operation, bytes); `rest` is what all others keep together (0: nothing)."""
    rows = [*kept, *([("all others", rest)] if rest else [])]
    factor, unit = unit_for([size for _, size in rows])
    figure = go.Figure()
    figure.add_bar(
        orientation="h",
        y=[escape_text(name) for name, _ in rows],
        x=[size / factor for _, size in rows],
        text=[format_bytes(size) for _, size in rows],
        textposition="outside",
        cliponaxis=False,
        marker={"color": [color_of("activation")] * len(kept) + [QUIET]},
        hovertemplate="%{y}: %{text}<extra></extra>",
    )
    figure.update_layout(**layout(height=90 + 34 * len(rows), state="kept", legend=False))
    figure.update_xaxes(title=f"Kept by one block ({unit})", rangemode="tozero")
    figure.update_xaxes(range=[0, max(size for _, size in rows) / factor * 1.3])
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False)
    return figure
