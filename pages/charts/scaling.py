"""How time or memory grows with the length: log axes, a line a way of computing, guides of growth ∝S and ∝S².

    figure = scaling_lines([ScalingPoint(line="naive", entity="naive", length=1024, value=3.2, …)], axis=Axis(…))

Cells that ran out of memory are crosses above a line: the device's limit where memory is drawn, else the chart's top.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go

from pages.charts.bytes import binary_axis, in_unit
from pages.charts.colors import QUIET, RED, color_of
from pages.charts.frame import interval, layout, number

Dash = Literal["solid", "dash", "dot", "dashdot"]


@dataclass(frozen=True, kw_only=True)
class ScalingPoint:
    """One cell. `value` is in ms or bytes; a cell that `ran_out` has what it would have needed, or None."""

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
    """What the axes are. `limit_bytes` is the device's memory; only for bytes."""

    x: str
    y: str
    unit: Literal["ms", "bytes"]
    state: str
    limit_bytes: int | None = None


def scaling_lines(points: Sequence[ScalingPoint], *, axis: Axis) -> go.Figure:
    """The chart. Points of a line come in order of length."""
    done = [point for point in points if not point.ran_out and point.value]
    lost = [point for point in points if point.ran_out]
    figure = go.Figure()
    _guides(figure, done)
    for name in dict.fromkeys(point.line for point in done):
        line = [point for point in done if point.line == name]
        figure.add_scatter(
            name=name,
            mode="lines+markers",
            x=[point.length for point in line],
            y=[point.value for point in line],
            line={"color": color_of(line[0].entity), "width": 2, "dash": line[0].dash},
            marker={"size": 7, "color": color_of(line[0].entity)},
            error_y=_errors(line),
            customdata=[[point.cell_id, _hover(point, axis)] for point in line],
            hovertemplate="%{customdata[1]}<extra></extra>",
            cliponaxis=False,
        )
    limit = axis.limit_bytes if axis.unit == "bytes" else None
    ceiling = limit if limit and lost else max((point.value or 0 for point in done), default=1) * 2
    places = _lost_places(lost, ceiling)
    _draw_lost(figure, lost, places, ceiling=ceiling, limit=limit)
    heights = [*(point.value or 0 for point in done), *places, *([ceiling] if lost else [])]
    _label_ends(figure, done, heights)
    figure.update_layout(**layout(height=420, state=axis.state, legend=False))
    # Names of lines that end at the right edge stand beside the plot, whatever its width.
    edge = max((point.length for point in points), default=0) / 2
    figure.update_layout(margin_r=14 + 7 * max((len(point.line) for point in done if point.length > edge), default=0))
    _axes(figure, points, axis=axis, heights=heights)
    return figure


def _hover(point: ScalingPoint, axis: Axis) -> str:
    value = point.value or 0
    said = in_unit(value) if axis.unit == "bytes" else f"{number(value)} ms"
    doubt = f"<br>95% interval {interval(point.low, point.high, unit='ms')}" if axis.unit == "ms" else ""
    return f"<b>{point.line}</b><br>{point.length:,} tokens: {said}{doubt}"


def _errors(line: Sequence[ScalingPoint]) -> dict[str, Any]:
    values = [(point.value or 0, point.low, point.high) for point in line]
    return {
        "type": "data",
        "symmetric": False,
        "array": [(high or value) - value for value, _, high in values],
        "arrayminus": [value - (low or value) for value, low, _ in values],
        "thickness": 1.2,
        "width": 3,
    }


def _lost_places(lost: Sequence[ScalingPoint], ceiling: float) -> list[float]:
    """Where crosses stand: at what was needed, if that is well above the limit; those of one length side by side."""
    places: list[float] = []
    for index, point in enumerate(lost):
        before = sum(other.length == point.length for other in lost[:index])
        places.append(max(ceiling * 1.35, min(point.value or 0, ceiling * 8)) * 1.35**before)
    return places


def _draw_lost(
    figure: go.Figure, lost: Sequence[ScalingPoint], places: Sequence[float], *, ceiling: float, limit: int | None
) -> None:
    if not lost:
        return
    words = f"the device holds {in_unit(limit)}" if limit else "out of memory"
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
        text=[f"{point.line}  " for point in lost],
        textposition="middle left",
        textfont={"color": RED, "size": 12},
        customdata=[[point.cell_id, _needed(point)] for point in lost],
        hovertemplate="%{customdata[1]}<extra></extra>",
        cliponaxis=False,
    )  # fmt: skip


def _needed(point: ScalingPoint) -> str:
    needed = f"<br>it would need {in_unit(point.value)}" if point.value and point.value > 2**12 else ""
    return f"<b>{point.line}</b><br>{point.length:,} tokens: out of memory{needed}"


def _label_ends(figure: go.Figure, done: Sequence[ScalingPoint], heights: Sequence[float]) -> None:
    """Every line's name beside its last point; names that would lie on each other are moved apart."""
    span = max(math.log10(max(heights) / min(heights)), 0.3) if heights else 0.3
    ends = {point.line: point for point in done}
    last = max((point.length for point in done), default=0)
    below: dict[int, float] = {}
    for end in sorted(ends.values(), key=lambda point: point.value or 0):
        at = max(math.log10(end.value or 1), below.get(end.length, -math.inf) + span * 0.055)
        below[end.length] = at
        # Where other lines go on, what tells this one apart stands below its end, not all of its name beside it.
        inner = end.length < last
        name = end.line.split(" · ")[-1] if inner else end.line
        figure.add_annotation(
            x=math.log10(end.length), y=at, text=name, showarrow=False, xanchor="center" if inner else "left",
            xshift=0 if inner else 9, yshift=-13 if inner else 0, font={"color": color_of(end.entity), "size": 12},
        )  # fmt: skip


def _guides(figure: go.Figure, done: Sequence[ScalingPoint]) -> None:
    """Growth ∝S and ∝S², from the first point of the line that grows most, as far as the chart reaches."""
    lines = [[point for point in done if point.line == name] for name in {point.line: None for point in done}]
    lines = [line for line in lines if len(line) > 1]
    if not lines:
        return
    steepest = max(lines, key=lambda line: (line[-1].value or 1) / (line[0].value or 1))
    first, start = steepest[0], steepest[0].value or 1
    longest, highest = max(point.length for point in done), max(point.value or 0 for point in done)
    for power, name in ((1, "∝ S"), (2, "∝ S²")):
        end = min(longest, first.length * (highest * 1.05 / start) ** (1 / power))
        figure.add_scatter(
            name=name, mode="lines+text", x=[first.length, end], y=[start, start * (end / first.length) ** power],
            text=["", f"{name} "], textposition="top left", hoverinfo="skip",
            line={"color": QUIET, "dash": "dot", "width": 1.2}, textfont={"color": QUIET},
        )  # fmt: skip


def _axes(figure: go.Figure, points: Sequence[ScalingPoint], *, axis: Axis, heights: Sequence[float]) -> None:
    lengths = sorted({point.length for point in points})
    spread = max(math.log10(lengths[-1] / lengths[0]), 0.3) if lengths else 1
    figure.update_xaxes(
        type="log",
        title=axis.x,
        tickvals=lengths,
        ticktext=[f"{length:,}" for length in lengths],
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
