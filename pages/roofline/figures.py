"""How far below its roof is a step, and which changes would help?

    figure = roofline([RoofLine(entity="bf16", …)], [RoofPoint(kind="step", entity="bf16", …)], state="roof")
    figure = counterfactual_dots([SpeedupDot(place="bf16 products", phase="step", ratio=1.9, …)], singles=4)

A solid roof was measured, a dashed one is the datasheet's.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import plotly.graph_objects as go

from pages.figures.colors import FAINT, QUIET, color_of
from pages.figures.frame import layout
from pages.figures.marks import hover_cells
from pages.figures.rows import beside, chart_pixels, row_pixels, wrap_label
from pages.figures.speedups import SpeedupDot, speedup_dots
from runner.formats import SI_PREFIXES, format_number, format_quantity

_SYMBOLS = {"step": "circle", "kernel": "diamond-open"}
#: Below this height (px) Plotly puts an axis title on the ticks.
_MIN_HEIGHT = 150


@dataclass(frozen=True, kw_only=True)
class RoofLine:
    """The roof of one precision, `entity`: its rate (FLOP/s) and the bandwidth (bytes/s)."""

    entity: str
    source: Literal["measured", "datasheet"]
    flops_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, kw_only=True)
class RoofPoint:
    """A step or a kernel: operations per byte and operations per second. `note` is written beside the point."""

    kind: Literal["step", "kernel"]
    entity: str
    words: str
    operations_per_byte: float
    flops_per_s: float
    cell_id: str
    note: str = ""


def roofline(roofs: Sequence[RoofLine], points: Sequence[RoofPoint], *, state: str) -> go.Figure:
    """Draws operations per second over operations per byte, log-log; there must be a roof or a point."""
    low, high = _find_reach(roofs, points)
    figure = go.Figure()
    for roof in roofs:
        _draw_roof(figure, roof, low=low, high=high)
    for kind in ("kernel", "step"):
        for entity in dict.fromkeys(point.entity for point in points):
            chosen = [point for point in points if point.kind == kind and point.entity == entity]
            if chosen:
                _draw_points(figure, chosen)
    heights = [roof.flops_per_s for roof in roofs] + [point.flops_per_s for point in points]
    floor, top = math.log10(min(heights)) - 0.35, math.log10(max(heights)) + 0.45
    _label_roofs(figure, roofs)
    lowest = min((point.flops_per_s for point in points if point.kind == "step"), default=1.0)
    for point in (point for point in points if point.note):
        figure.add_annotation(
            text=point.note, x=math.log10(point.operations_per_byte), y=math.log10(point.flops_per_s), ax=0, ayref="y",
            ay=math.log10(lowest) - 0.3, yanchor="top",
            arrowcolor=QUIET, arrowwidth=1, arrowhead=0, standoff=6, font={"color": QUIET, "size": 12},
        )  # fmt: skip
    figure.update_layout(**layout(height=460, state=state))
    decades = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    figure.update_xaxes(
        type="log", title="Operations per byte moved (FLOP/byte, log)", range=[math.log10(low), math.log10(high)],
        tickvals=[10.0**power for power in decades], ticktext=[f"{10.0**power:,g}" for power in decades],
        zeroline=False, tickangle=0,
    )  # fmt: skip
    ticks = range(math.ceil(floor), math.floor(top) + 1)
    figure.update_yaxes(
        type="log", title="FLOP/s (log)", range=[floor, top], tickvals=[10.0**power for power in ticks],
        ticktext=[_format_tick(10.0**power) for power in ticks], automargin=True, zeroline=False, showgrid=False,
    )  # fmt: skip
    return figure


def _format_tick(value: float) -> str:
    factor, prefix = next((pair for pair in SI_PREFIXES if value >= pair[0]), (1.0, ""))
    return f"{value / factor:g} {prefix}"


def _find_reach(roofs: Sequence[RoofLine], points: Sequence[RoofPoint]) -> tuple[float, float]:
    """Returns the ends of the axis of intensity: every point, and some of both sides of every roof."""
    ridges = [roof.flops_per_s / roof.bytes_per_s for roof in roofs]
    drawn = [point.operations_per_byte for point in points]
    low = min([*drawn, *(ridge / 5 for ridge in ridges)])
    return low / 1.6, max([*(place * 3 for place in drawn), *(ridge * 5 for ridge in ridges)])


def _draw_roof(figure: go.Figure, roof: RoofLine, *, low: float, high: float) -> None:
    ridge = roof.flops_per_s / roof.bytes_per_s
    places = [low, ridge, high] if low < ridge < high else [low, high]
    figure.add_scatter(
        name=f"{roof.entity} {roof.source}", mode="lines", x=places,
        y=[min(roof.flops_per_s, place * roof.bytes_per_s) for place in places], showlegend=False,
        line={"color": color_of(roof.entity), "width": 2 if roof.source == "measured" else 1.3,
              "dash": "solid" if roof.source == "measured" else "dash"},
        hovertemplate=f"{roof.entity}, {roof.source}: {format_quantity(roof.flops_per_s, 'FLOP/s')}, "
        f"{format_quantity(roof.bytes_per_s, 'B/s')}<br>ridge at {format_number(ridge)} FLOP/byte<extra></extra>",
    )  # fmt: skip


def _draw_points(figure: go.Figure, chosen: Sequence[RoofPoint]) -> None:
    kind, color = chosen[0].kind, color_of(chosen[0].entity)
    figure.add_scatter(
        name=f"{chosen[0].entity} {kind}s",
        mode="markers",
        x=[point.operations_per_byte for point in chosen],
        y=[point.flops_per_s for point in chosen],
        marker={"symbol": _SYMBOLS[kind], "color": color, "size": 10 if kind == "step" else 8,
                "line": {"width": 0 if kind == "step" else 2, "color": color}, "opacity": 0.95},
        **hover_cells((point.cell_id, point.words) for point in chosen),
    )  # fmt: skip


def _label_roofs(figure: go.Figure, roofs: Sequence[RoofLine]) -> None:
    """Writes a line of text a precision in the corner above the slope, where no point can be: the highest roof first,
    the unit once where all have the same."""
    ordered = sorted({roof.entity for roof in roofs}, key=lambda name: -max(_list_rates(roofs, name)))
    units: set[str] = set()
    for row, entity in enumerate(ordered):
        words, unit = _join_rates(_list_rates(roofs, entity))
        figure.add_annotation(
            x=0, y=1, xref="paper", yref="paper", xanchor="left", yanchor="top", xshift=8, yshift=-4 - 16 * row,
            text=f"{entity} {words} {'' if unit in units else unit}".rstrip(), showarrow=False, align="left",
            font={"color": color_of(entity), "size": 12}, borderpad=0,
        )  # fmt: skip
        units.add(unit)


def _join_rates(rates: Sequence[float]) -> tuple[str, str]:
    """Returns `769 of 990` and `TFLOP/s`; where units differ, each number with its own."""
    rate_texts = [format_quantity(value, "FLOP/s") for value in rates]
    units = {words.split()[1] for words in rate_texts}
    return (
        (" of ".join([words.split()[0] for words in rate_texts]), units.pop())
        if len(units) == 1
        else (" of ".join(rate_texts), "")
    )


def _list_rates(roofs: Sequence[RoofLine], entity: str) -> list[float]:
    """Returns the measured rate of a precision, and the datasheet's."""
    return [roof.flops_per_s for roof in roofs if roof.entity == entity]


def counterfactual_dots(rows: Sequence[SpeedupDot], *, singles: int) -> go.Figure:
    """Draws one line a change, in the order given; the first `singles` change one thing and stand above a line."""
    figure = speedup_dots(rows, variant="the changed step")
    beside(figure, {at: f"{format_number(row.ratio)}×" for at, row in enumerate(rows) if not row.failure})
    row = row_pixels([wrap_label(row.place) for row in rows], least=30)
    figure.update_layout(height=max(_MIN_HEIGHT, chart_pixels(len(rows), row=row)))
    if 0 < singles < len(rows):
        figure.add_hline(y=singles - 0.5, line={"color": FAINT, "width": 1, "dash": "dot"})
    figure.update_layout(showlegend=False, margin_t=16)
    # The column of numbers takes the room that a phone has for ticks halfway.
    axis = figure.layout.xaxis
    every = 2 if len(axis.tickvals) > 3 else 1
    figure.update_xaxes(title="Speedup (×, log)", tickvals=axis.tickvals[::every], ticktext=axis.ticktext[::every])
    return figure
