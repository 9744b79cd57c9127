"""How time or memory grows with the length: log axes, a line an implementation, guides of growth ∝S and ∝S².

    figure = scaling_lines([ScalingPoint(line="naive", entity="naive", length=1024, value=3.2, …)], axis=Axis(…))

Cells that ran out of memory are crosses above a line: the device's limit where memory is drawn, else the chart's top.
Names of lines stand right of the plot, one below the other, where they cover no point however wide the chart is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import plotly.graph_objects as go

from pages.figures.bytes import binary_axis
from pages.figures.colors import QUIET, RED, color_of
from pages.figures.frame import format_interval, layout
from pages.figures.marks import error_bars, hover_cells
from runner.formats import format_bytes, format_number

Dash = Literal["solid", "dash", "dot", "dashdot"]
#: The height of a line of text, as a share of the plot.
_LINE = 0.05


@dataclass(frozen=True, kw_only=True)
class ScalingPoint:
    """One cell. `value` is in ms or bytes; for a cell that `ran_out`, what it would have needed, or None."""

    line: str
    entity: str
    length: int
    value: float | None
    cell_id: str
    dash: Dash = "solid"
    low: float | None = None
    high: float | None = None
    ran_out: bool = False


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The titles and unit of the axes. `limit_bytes` is the device's memory; only for bytes."""

    x: str
    y: str
    unit: Literal["ms", "bytes"]
    state: str
    limit_bytes: int | None = None


def scaling_lines(points: Sequence[ScalingPoint], *, axis: Axis) -> go.Figure:
    """Draws the chart. Points of a line come in order of length."""
    done = [point for point in points if not point.ran_out and point.value]
    lost = [point for point in points if point.ran_out]
    figure = go.Figure()
    longest = max((point.length for point in points), default=1)
    guides = _draw_guides(figure, done, longest=longest)
    for name in dict.fromkeys(point.line for point in done):
        line = [point for point in done if point.line == name]
        figure.add_scatter(
            name=name,
            mode="lines+markers",
            x=[point.length for point in line],
            y=[point.value for point in line],
            line={"color": color_of(line[0].entity), "width": 2, "dash": line[0].dash},
            marker={"size": 7, "color": color_of(line[0].entity),
                    "symbol": "circle" if line[0].dash == "solid" else "circle-open",
                    "line": {"width": 0 if line[0].dash == "solid" else 2, "color": color_of(line[0].entity)}},
            error_y=error_bars(((point.value or 0, point.low, point.high) for point in line), thickness=1.2)
            if any(point.high for point in line) else None,
            **hover_cells((point.cell_id, _describe(point, axis)) for point in line),
            cliponaxis=False,
        )  # fmt: skip
    limit = axis.limit_bytes if axis.unit == "bytes" else None
    ceiling = limit if limit and lost else max((point.value or 0 for point in done), default=1) * 2
    span = _count_decades([*(point.value or 0 for point in done), *([ceiling] if lost else [])])
    places = _place_lost(lost, ceiling, span=span)
    _draw_lost(figure, lost, places, ceiling=ceiling, limit=limit)
    heights = [*(point.value or 0 for point in done), *places, *([ceiling] if lost else [])]
    named = _name_lines(figure, done, guides, span=_count_decades(heights), longest=longest)
    figure.update_layout(**layout(height=420, state=axis.state, legend=False))
    figure.update_layout(margin_r=18 + 7 * max(map(len, named), default=0))
    _draw_axes(figure, points, axis=axis, heights=heights)
    return figure


def _describe(point: ScalingPoint, axis: Axis) -> str:
    value = point.value or 0
    text = format_bytes(value) if axis.unit == "bytes" else f"{format_number(value)} ms"
    doubt = f"<br>95% interval {format_interval(point.low, point.high, unit='ms')}" if axis.unit == "ms" else ""
    return f"<b>{point.line}</b><br>{point.length:,} tokens: {text}{doubt}"


def _count_decades(values: Sequence[float]) -> float:
    """Returns how many powers of ten the values span, at least 0.3."""
    return max(math.log10(max(values) / min(values)), 0.3) if values else 0.3


def _place_lost(lost: Sequence[ScalingPoint], ceiling: float, *, span: float) -> list[float]:
    """Returns the heights of crosses: at what was needed, if that is well above the limit; crosses of one length stand
    above each other, a line of text apart."""
    line = 10 ** (span * _LINE)
    places: list[float] = []
    for index, point in enumerate(lost):
        below = [place for place, other in zip(places, lost[:index], strict=True) if other.length == point.length]
        wanted = max(ceiling * 1.35, min(point.value or 0, ceiling * 8))
        places.append(max([wanted, *(place * line for place in below)]))
    return places


def _draw_lost(
    figure: go.Figure, lost: Sequence[ScalingPoint], places: Sequence[float], *, ceiling: float, limit: int | None
) -> None:
    if not lost:
        return
    words = f"the device holds {format_bytes(limit)}" if limit else "out of memory"
    firsts = {point.line: point for point in sorted(lost, key=lambda point: -point.length)}
    figure.add_hline(y=ceiling, line={"color": RED, "width": 1.4, "dash": "dash"})
    figure.add_annotation(
        text=words, x=0, xref="paper", xanchor="left", y=math.log10(ceiling), yanchor="top", showarrow=False,
        font={"color": RED, "size": 12},
    )  # fmt: skip
    figure.add_scatter(
        name="out of memory",
        mode="markers+text",
        x=[point.length for point in lost],
        y=list(places),
        marker={"symbol": "x", "size": 10, "color": [color_of(point.entity) for point in lost],
                "line": {"color": RED, "width": 2}},
        text=[f"{point.line}  " if point == firsts[point.line] else "" for point in lost],
        textposition="middle left",
        textfont={"color": RED, "size": 12},
        **hover_cells((point.cell_id, _describe_lost(point)) for point in lost),
        cliponaxis=False,
    )  # fmt: skip


def _describe_lost(point: ScalingPoint) -> str:
    needed = f"<br>it would need {format_bytes(point.value)}" if point.value and point.value > 2**12 else ""
    return f"<b>{point.line}</b><br>{point.length:,} tokens: out of memory{needed}"


def _name_lines(
    figure: go.Figure, done: Sequence[ScalingPoint], guides: Mapping[str, float], *, span: float, longest: int
) -> list[str]:
    """Writes the names of lines and guides right of the plot, at the height of their ends or above the name below; a
    thin leader joins a line that ends earlier. A line named after another (`naive · compiled`) is dashed in its color
    and needs no name. Returns the names."""
    ends = {point.line: point for point in done}
    named = {line: end for line, end in ends.items() if line.rpartition(" · ")[0] not in ends}
    heights = {**guides, **{line: end.value or 1 for line, end in named.items()}}
    below = -math.inf
    for name, height in sorted(heights.items(), key=lambda item: item[1]):
        below = max(math.log10(height), below + span * _LINE)
        end = named.get(name)
        color = color_of(end.entity) if end else QUIET
        if end and end.length < longest:
            figure.add_scatter(
                mode="lines", x=[end.length, longest * 1.04], y=[height, 10**below], hoverinfo="skip",
                line={"color": color, "width": 1, "dash": "dot"}, opacity=0.55, showlegend=False, cliponaxis=False,
            )  # fmt: skip
        figure.add_annotation(
            x=1, xref="paper", y=below, text=name, showarrow=False, xanchor="left", xshift=6,
            font={"color": color, "size": 12},
        )  # fmt: skip
    return list(heights)


def _draw_guides(figure: go.Figure, done: Sequence[ScalingPoint], *, longest: int) -> dict[str, float]:
    """Draws growth ∝S and ∝S² from the first point of the steepest line, as far as the chart reaches. Returns the
    heights of those that reach the right side; others are named at their ends."""
    lines = [[point for point in done if point.line == name] for name in {point.line: None for point in done}]
    lines = [line for line in lines if len(line) > 1]
    if not lines:
        return {}
    steepest = max(lines, key=lambda line: (line[-1].value or 1) / (line[0].value or 1))
    first, start = steepest[0], steepest[0].value or 1
    reach, highest = max(point.length for point in done), max(point.value or 0 for point in done)
    reaching: dict[str, float] = {}
    for power, name in ((1, "∝ S"), (2, "∝ S²")):
        end = min(reach, first.length * (highest * 1.05 / start) ** (1 / power))
        height = start * (end / first.length) ** power
        if end == longest:
            reaching[name] = height
        figure.add_scatter(
            name=name, mode="lines+text", x=[first.length, end], y=[start, height],
            text=["", "" if end == longest else f"{name} "], textposition="top left", hoverinfo="skip",
            line={"color": QUIET, "dash": "dot", "width": 1.2}, textfont={"color": QUIET},
        )  # fmt: skip
    return reaching


def _space(lengths: Sequence[int]) -> list[int]:
    """Returns the lengths whose labels do not touch on a phone: the longest, and from there down all that are far
    enough."""
    kept = list(lengths[-1:])
    for length in reversed(lengths[:-1]):
        if math.log(kept[-1] / length) >= math.log(lengths[-1] / lengths[0]) * 0.14:
            kept.append(length)
    return kept[::-1]


def format_length(length: int) -> str:
    """Formats a length: `64K` for 65,536, `8M` for 128 times as many."""
    for size, letter in ((2**20, "M"), (2**10, "K")):
        if length % size == 0:
            return f"{length // size:,}{letter}"
    return f"{length:,}"


def _draw_axes(figure: go.Figure, points: Sequence[ScalingPoint], *, axis: Axis, heights: Sequence[float]) -> None:
    lengths = sorted({point.length for point in points})
    spread = max(math.log10(lengths[-1] / lengths[0]), 0.3) if lengths else 1
    figure.update_xaxes(
        type="log",
        title=axis.x,
        tickvals=_space(lengths),
        ticktext=[format_length(length) for length in _space(lengths)],
        tickangle=0,
        range=[math.log10(lengths[0]) - 0.05 * spread, math.log10(lengths[-1]) + 0.05 * spread] if lengths else None,
        automargin=True,
    )
    figure.update_yaxes(title=axis.y, type="log", automargin=True)
    if not heights:
        return
    room = max(math.log10(max(heights) / min(heights)), 0.3) * 0.08
    figure.update_yaxes(range=[math.log10(min(heights)) - room, math.log10(max(heights)) + room])
    if axis.unit == "bytes":
        figure.update_yaxes(**binary_axis(heights))
    else:
        figure.update_yaxes(dtick=1, minor={"dtick": "D1"}, tickformat=",~g")
