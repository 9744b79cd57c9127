"""The chart of Explore: any number over any setting, with a line for each color and machine, and crosses for failures.

    figure = explore_chart([PlotMark(x=128, y=4.2, color="bf16", cell_id="…")], Axes(x="Context", y="Time", unit="ms"))

Lines of other machines are dashed, have marks of another shape, and are named. A line joins its marks only where each
place holds one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from pages.explore.magnitude import fitting_unit, format_in_unit
from pages.figures.bytes import binary_axis
from pages.figures.colors import FAMILIES, PALETTE, QUIET, RED, SLATE, color_of
from pages.figures.frame import layout

Scale = Literal["fitting", "log", "linear"]
#: The dashes and symbols of other machines in turn; the selected machine has solid lines and circles.
_DASHES, _SYMBOLS = ("dash", "dot", "dashdot"), ("diamond", "square", "triangle-up")
#: The ratio of the largest to the smallest value from which a fitting axis is a log axis.
_WIDE = 5.0
#: The length up to which names stand beside their lines; longer ones stand in a legend.
_SHORT = 18


@dataclass(frozen=True, kw_only=True)
class PlotMark:
    """One cell. It has `y` in the axis's unit, or `failure`. `machine` is empty for the selected machine. `words`
    describe the cell under the pointer."""

    x: float | str
    y: float | None
    cell_id: str
    color: str = ""
    panel: str = ""
    machine: str = ""
    low: float | None = None
    high: float | None = None
    failure: str = ""
    words: str = ""
    pinned: bool = False


@dataclass(frozen=True, kw_only=True)
class Axes:
    """Titles, the unit of y, and the order of places and colors. x is numeric without `places`."""

    x: str
    y: str
    unit: str
    places: tuple[str, ...] = ()
    colors: tuple[str, ...] = ()
    panels: tuple[str, ...] = ("",)
    scale: Scale = "fitting"
    state: str = "explore"


@dataclass(frozen=True, kw_only=True)
class _Y:
    """The y axis: the factor by which values are divided, its scale, and the places of failures."""

    factor: float
    unit: str
    log: bool
    least: float
    most: float

    def above(self, step: int) -> float:
        """Returns a place above every value, for the `step`th failure at one x."""
        if self.log:
            spread: float = (self.most / self.least) ** (0.12 + 0.08 * step)
            return self.most * spread * 1.15
        return self.most * (1.12 + 0.08 * step)


def explore_chart(marks: Sequence[PlotMark], axes: Axes) -> go.Figure:
    """Returns the chart, with two panels in a row."""
    columns = min(2, len(axes.panels))
    rows = -(-len(axes.panels) // columns)
    many = len(axes.panels) > 1
    figure = make_subplots(
        rows=rows, cols=columns, shared_xaxes="all", shared_yaxes="all", horizontal_spacing=0.03,
        vertical_spacing=min(0.12, 0.3 / rows), subplot_titles=axes.panels if many else None,
    )  # fmt: skip
    y = _make_y(marks, axes)
    machines = list(dict.fromkeys(mark.machine for mark in marks if mark.machine))
    lines = list(dict.fromkeys((mark.color, mark.machine) for mark in sorted(marks, key=lambda m: _rank(m, axes))))
    labels = not many and not axes.places and all(len(_name_line(*line)) <= _SHORT for line in lines)
    listed: set[tuple[str, str]] = set()
    for index, panel in enumerate(axes.panels):
        place = {"row": index // columns + 1, "col": index % columns + 1}
        inside = [mark for mark in marks if mark.panel == panel]
        for line in lines:
            own = [mark for mark in inside if (mark.color, mark.machine) == line and mark.y is not None]
            figure.add_trace(_draw_line(own, line, axes, y, machines, legend=line not in listed), **place)
            listed |= {line} if own else set()
        figure.add_trace(_draw_failures(inside, axes, y), **place)
    named = len(lines) > 1 or bool(machines)
    height = 110 + 260 * rows if many else 420
    figure.update_layout(**layout(height=height, state=axes.state, legend=named and not labels))
    figure.update_layout(scattermode="group" if axes.places else "overlay", scattergap=0.5)
    if labels and named:
        _label_ends(figure, marks, axes, y)
    if many:
        figure.update_layout(margin_t=72, legend_y=1 + 34 / height)
    _set_axes(figure, marks, axes, y, columns=columns)
    return figure


def color_for(value: str, order: Sequence[str]) -> str:
    """Returns the fixed color of an entity of a known family, else a color by its place in `order`."""
    if not value:
        return SLATE
    if any(set(order) <= set(family) for family in FAMILIES.values()):
        return color_of(value)
    return PALETTE[order.index(value) % len(PALETTE)]


def _rank(mark: PlotMark, axes: Axes) -> tuple[bool, int, str]:
    return bool(mark.machine), axes.colors.index(mark.color) if mark.color in axes.colors else 0, mark.machine


def _name_line(color: str, machine: str) -> str:
    return " · ".join(part for part in (color, machine) if part) or "this machine"


def _make_y(marks: Sequence[PlotMark], axes: Axes) -> _Y:
    values = [mark.y for mark in marks if mark.y is not None]
    positive = bool(values) and min(values) > 0
    wide = positive and max(values) >= _WIDE * min(values)
    log = positive and (axes.scale == "log" or (axes.scale == "fitting" and wide))
    factor, unit = (1.0, "") if log and axes.unit == "bytes" else fitting_unit(values, axes.unit)
    least, most = (min(values) / factor, max(values) / factor) if values else (0.5, 1.0)
    return _Y(factor=factor, unit=unit, log=log, least=least, most=most if most else 1.0)


def _draw_line(
    own: Sequence[PlotMark], line: tuple[str, str], axes: Axes, y: _Y, machines: Sequence[str], *, legend: bool
) -> go.Scatter:
    color, machine = line
    done = sorted(own, key=lambda mark: (_place_mark(mark, axes), mark.y))
    alone = not axes.places and len({mark.x for mark in done}) == len(done)
    look = machines.index(machine) if machine else None
    drawn = color_for(color, axes.colors)
    values = [(mark.y or 0.0) / y.factor for mark in done]
    errors = [((mark.low or mark.y or 0) / y.factor, (mark.high or mark.y or 0) / y.factor) for mark in done]
    return go.Scatter(
        name=_name_line(color, machine), legendgroup=_name_line(color, machine), showlegend=legend,
        offsetgroup=_name_line(color, machine), mode="lines+markers" if alone else "markers",
        x=[mark.x for mark in done], y=values,
        line={"color": drawn, "width": 2, "dash": "solid" if look is None else _DASHES[look % len(_DASHES)]},
        marker={"size": [14 if mark.pinned else 8 for mark in done], "color": drawn, "opacity": 1,
                "symbol": "circle" if look is None else _SYMBOLS[look % len(_SYMBOLS)],
                "line": {"color": QUIET, "width": [3 if mark.pinned else 0 for mark in done]}},
        error_y={"type": "data", "symmetric": False, "thickness": 1.2, "width": 3,
                 "array": [high - value for value, (_, high) in zip(values, errors, strict=True)],
                 "arrayminus": [value - low for value, (low, _) in zip(values, errors, strict=True)]},
        customdata=[[mark.cell_id, _format_hover(mark, axes)] for mark in done],
        hovertemplate="%{customdata[1]}<extra></extra>", cliponaxis=False,
    )  # fmt: skip


def _place_mark(mark: PlotMark, axes: Axes) -> float:
    return float(axes.places.index(str(mark.x))) if axes.places else float(mark.x)


def _format_hover(mark: PlotMark, axes: Axes) -> str:
    name = _name_line(mark.color, mark.machine)
    what = mark.failure or format_in_unit(mark.y or 0.0, axes.unit)
    doubt = ""
    if mark.low is not None and mark.high is not None:
        low, high = (format_in_unit(end, axes.unit) for end in (mark.low, mark.high))
        doubt = f"<br>95% interval {low} to {high}"
    place = f"{mark.x:,}" if isinstance(mark.x, int) else mark.x
    lead = " · ".join(part for part in (name if mark.color or mark.machine else "", mark.panel) if part)
    return "<br>".join(
        part for part in (f"<b>{lead or place}</b>", f"{axes.x} {place}: {what}{doubt}", mark.words) if part
    )


def _draw_failures(inside: Sequence[PlotMark], axes: Axes, y: _Y) -> go.Scatter:
    """Returns crosses above all values, in the colors of their lines, those of one place above each other."""
    lost = [mark for mark in inside if mark.failure]
    first = min((_place_mark(mark, axes) for mark in inside), default=0.0)
    before = [sum(other.x == mark.x for other in lost[:index]) for index, mark in enumerate(lost)]
    return go.Scatter(
        name="no result", mode="markers+text", showlegend=False,
        x=[mark.x for mark in lost], y=[y.above(step) for step in before],
        marker={"symbol": "x", "size": 10, "color": [color_for(mark.color, axes.colors) for mark in lost],
                "line": {"color": RED, "width": 2}},
        text=[f"  {_format_failure(mark)}  " for mark in lost],
        textposition=["middle right" if _place_mark(mark, axes) == first else "middle left" for mark in lost],
        textfont={"color": RED, "size": 11},
        customdata=[[mark.cell_id, _format_hover(mark, axes)] for mark in lost],
        hovertemplate="%{customdata[1]}<extra></extra>", cliponaxis=False,
    )  # fmt: skip


def _format_failure(mark: PlotMark) -> str:
    return " ".join(part for part in (mark.color, mark.failure.split(" in ")[0]) if part)


def _label_ends(figure: go.Figure, marks: Sequence[PlotMark], axes: Axes, y: _Y) -> None:
    """Writes every line's name beside its last mark, and moves overlapping names apart."""
    ends: dict[str, PlotMark] = {}
    for mark in sorted((mark for mark in marks if mark.y is not None), key=lambda mark: float(mark.x)):
        ends[_name_line(mark.color, mark.machine)] = mark
    log_x = _is_log_x(marks, axes)
    last = max((float(mark.x) for mark in ends.values()), default=1.0)
    low, high = (math.log10(y.least), math.log10(y.most)) if y.log else (0.0, y.most)
    gap, below = max(high - low, 0.1 if y.log else high * 0.1) * 0.06, -math.inf
    for name, mark in sorted(ends.items(), key=lambda item: item[1].y or 0):
        value = (mark.y or 0) / y.factor
        at = below = max(math.log10(value) if y.log else value, below + gap)
        inner = float(mark.x) < last
        figure.add_annotation(
            x=math.log10(float(mark.x)) if log_x else float(mark.x), y=at, text=name, showarrow=False,
            xanchor="center" if inner else "left", xshift=0 if inner else 10, yshift=-14 if inner else 0,
            font={"color": color_for(mark.color, axes.colors), "size": 12},
        )  # fmt: skip
    longest = max((len(name) for name, mark in ends.items() if float(mark.x) == last), default=0)
    figure.update_layout(margin_r=18 + 7 * longest)


def _is_log_x(marks: Sequence[PlotMark], axes: Axes) -> bool:
    if axes.places or axes.scale == "linear" or not marks:
        return False
    numbers = [float(mark.x) for mark in marks]
    return min(numbers) > 0 and (axes.scale == "log" or max(numbers) >= 4 * min(numbers))


def _set_axes(figure: go.Figure, marks: Sequence[PlotMark], axes: Axes, y: _Y, *, columns: int) -> None:
    if axes.places:
        order = [place for place in axes.places if any(mark.x == place for mark in marks)]
        figure.update_xaxes(
            type="category", categoryorder="array", categoryarray=order, showgrid=False, range=[-0.5, len(order) - 0.5]
        )
    else:
        places = sorted({float(mark.x) for mark in marks})
        log_x = _is_log_x(marks, axes)
        ends = [math.log10(place) if log_x else place for place in places[:1] + places[-1:]] or [0.0, 1.0]
        room = max(ends[-1] - ends[0], 0.3 if log_x else abs(ends[-1]) * 0.2 or 1.0) * 0.06
        figure.update_xaxes(
            type="log" if log_x else "linear",
            tickvals=places,
            ticktext=[f"{place:,.10g}" for place in places],
            range=[ends[0] - room, ends[-1] + room],
        )
    figure.update_xaxes(automargin=True)
    for index in range(max(0, len(axes.panels) - columns), len(axes.panels)):
        figure.update_xaxes(title=axes.x, showticklabels=True, row=index // columns + 1, col=index % columns + 1)
    lost = [mark for mark in marks if mark.failure]
    most = max((sum(o.x == m.x and o.panel == m.panel for o in lost) for m in lost), default=0)
    highest = max((mark.high / y.factor for mark in marks if mark.y is not None and mark.high), default=0.0)
    top = max(y.above(most) if most else y.most * (1.25 if y.log else 1.08), highest * 1.05)
    figure.update_yaxes(automargin=True, **_choose_range(marks, y, top))
    title = axes.y + (f" ({y.unit})" if y.unit else "") + (", log" if y.log else "")
    figure.update_yaxes(title=title, col=1)


def _choose_range(marks: Sequence[PlotMark], y: _Y, top: float) -> dict[str, Any]:
    least = min([y.least, *((mark.low or mark.y or 0) / y.factor for mark in marks if mark.y is not None)])
    if not y.log:
        return {"range": [min(0.0, least * 1.08), top], "rangemode": "tozero"}
    bytes_axis = y.unit == "" and y.factor == 1.0 and y.most > 1024
    ticks = binary_axis([least, top]) if bytes_axis else {
        "type": "log", "tickformat": ",~g", "dtick": 1 if top > 300 * least else "D2" if top > 4 * least else "D1",
    }  # fmt: skip
    return {**ticks, "range": [math.log10(least / 1.15), math.log10(top)]}
