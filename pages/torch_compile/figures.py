"""What compiling buys and costs: speedups by backend, seconds and steps as dots, and the lines that cross.

    figure = way_dots([WayDot(place="small · 512 tok", backend="compiled", ratio=2.6, low=2.5, high=2.7, …)])
    figure = cost_dots([CostDot(place="…", backend="compiled", kind="cold", value=29.2)], unit="s")
    figure = crossing_lines([CumulatedLine(name="eager", backend="eager", start_s=0.0, step_ms=50.1), …])

Filled is cold, hollow is warm: the same compilation with an empty cache and with a full one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import plotly.graph_objects as go

from pages.figures.colors import FAINT, FAINTER, FAMILIES, QUIET, RED, color_of
from pages.figures.frame import format_interval, layout, log_ticks
from pages.figures.marks import cross_failures, error_bars, hover_cells, ring_hosts
from pages.figures.ratios import left_end, ratio_axis
from pages.figures.rows import chart_pixels, label_rows, row_pixels, wrap_label
from runner.formats import format_number

#: The compiler's cache at the start: empty, filled by this very cell, or as earlier cells had left it.
Kind = Literal["cold", "warm", "as found"]
Unit = Literal["s", "steps"]
_SYMBOLS: Mapping[Kind, str] = {"cold": "circle", "warm": "circle-open", "as found": "diamond-wide-open"}
_DASHES: Mapping[str, str] = {"cold": "solid", "warm": "dash", "as found": "dot"}


@dataclass(frozen=True, kw_only=True)
class WayDot:
    """The whole step of one pair: the speedup of `backend` over eager, or why there is no ratio. `host` says which
    sides the host bounds."""

    place: str
    backend: str
    cell_id: str
    ratio: float = 1.0
    low: float | None = None
    high: float | None = None
    failure: str | None = None
    host: str = ""


@dataclass(frozen=True, kw_only=True)
class CostDot:
    """Seconds or steps of one compiled cell. An infinite value is drawn as the word "never", or "undecided" where the
    interval allows for less."""

    place: str
    backend: str
    kind: Kind
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class CumulatedLine:
    """Seconds over steps: `start_s` before the first one, then `step_ms` each."""

    name: str
    backend: str
    start_s: float
    step_ms: float
    kind: Kind | None = None

    def seconds(self, steps: float) -> float:
        return self.start_s + steps * self.step_ms / 1e3


def way_dots(rows: Sequence[WayDot]) -> go.Figure:
    """Draws one line a pair, one dot a backend, ringed where the host bounds a side."""
    places = list(dict.fromkeys(row.place for row in rows))
    backends = sorted({row.backend for row in rows}, key=list(FAMILIES["backend"]).index)
    figure = go.Figure()
    axis = ratio_axis(value for row in rows if not row.failure for value in (row.ratio, row.low, row.high))
    beside = {place: [name for name in backends if (place, name) in {(row.place, row.backend) for row in rows}]
              for place in places}  # fmt: skip
    at = {
        (place, name): _place_dot(place, name, places=places, beside=beside[place])
        for place in places
        for name in beside[place]
    }
    for backend in backends:
        chosen = [row for row in rows if row.backend == backend and not row.failure]
        lost = [row for row in rows if row.backend == backend and row.failure]
        figure.add_scatter(
            name=backend,
            mode="markers",
            x=[row.ratio for row in chosen],
            y=[at[row.place, backend] for row in chosen],
            marker={"color": color_of(backend), "size": 10},
            error_x=error_bars((row.ratio, row.low, row.high) for row in chosen),
            **hover_cells((row.cell_id, _describe_way(row)) for row in chosen),
            cliponaxis=False,
        )
        cross_failures(
            figure,
            x=left_end(axis),
            y=[at[row.place, backend] for row in lost],
            failures=[(row.cell_id, row.failure) for row in lost],
        )
    rings = ring_hosts(figure, ((r.host, r.ratio, at[r.place, r.backend]) for r in rows if not r.failure))
    figure.add_vline(x=1, line={"color": FAINT, "width": 2})
    labels = [wrap_label(place) for place in places]
    row = max(row_pixels(labels, least=36), 14 * max(map(len, beside.values()), default=1))
    height = chart_pixels(len(places), row=row, entries=len(backends) + rings, squeezed=row)
    figure.update_layout(**layout(height=max(220, height), state="ways"))
    figure.update_xaxes(**axis, title="Speedup of the step (×, log)")
    label_rows(figure, labels, showgrid=True, gridcolor=FAINTER)
    return figure


def _place_dot(place: str, backend: str, *, places: Sequence[str], beside: Sequence[str]) -> float:
    """Returns where a dot stands: on its place's line, or around it with those `beside` it there."""
    return places.index(place) + (beside.index(backend) - (len(beside) - 1) / 2) * 0.7 / max(len(beside), 2)


def cost_dots(rows: Sequence[CostDot], *, unit: Unit) -> go.Figure:
    """Draws one line a compiled cell in its backend's color; cold, warm and as found as different marks, each
    labeled."""
    places = list(dict.fromkeys(row.place for row in rows))
    done = [row for row in rows if math.isfinite(row.value) and row.value > 0]
    ends = [end for row in done for end in _find_reach_of(row)] or [0.0]
    room = max(max(ends) - min(ends), 0.5)
    span = [min(ends) - room * 0.12, max(ends) + room * 0.3]
    figure = go.Figure()
    for place in dict.fromkeys(row.place for row in done):
        line = [row for row in done if row.place == place]
        figure.add_scatter(
            x=[row.value for row in line], y=[places.index(place)] * len(line), mode="lines", showlegend=False,
            line={"color": color_of(line[0].backend), "width": 2}, hoverinfo="skip",
        )  # fmt: skip
    for kind in [kind for kind in _NAMES if kind in {row.kind for row in done}]:
        _draw_marks(figure, [row for row in done if row.kind == kind], places=places, unit=unit)
        figure.add_scatter(  # what the legend shows: the mark, in no backend's color
            x=[None], y=[None], mode="markers", name=_NAMES[kind],
            marker={"color": QUIET, "size": 10, "symbol": _SYMBOLS[kind], "line": {"width": 2, "color": QUIET}},
        )  # fmt: skip
    lost = {row.place: row for row in rows if not math.isfinite(row.value)}
    figure.add_scatter(
        x=[10 ** span[1]] * len(lost), y=[places.index(place) for place in lost], mode="text", showlegend=False,
        text=["never  " if row.low is None or math.isinf(row.low) else "undecided  " for row in lost.values()],
        textposition="middle left", textfont={"color": RED, "size": 13}, hoverinfo="skip",
    )  # fmt: skip
    labels = [wrap_label(place) for place in places]
    row = row_pixels(labels, least=46)
    height = chart_pixels(len(places), row=row, entries=len({dot.kind for dot in done}), squeezed=row)
    figure.update_layout(**layout(height=max(230, height), state=f"cost-{unit}"))
    ticks = log_ticks(10 ** span[0], 10 ** span[1], most=6) if done else []
    title = {"s": "Compile time (s, log)", "steps": "Steps (log)"}[unit]
    figure.update_xaxes(type="log", range=span, title=title, tickvals=ticks, ticktext=[f"{tick:,g}" for tick in ticks])
    label_rows(figure, labels, showgrid=True, gridcolor=FAINTER)
    return figure


def _find_reach_of(row: CostDot) -> tuple[float, float]:
    """Returns how far the interval of a cost reaches, as powers of ten: at most ten times as far as its value, so that
    one wide interval does not press all values together."""
    low, high = (row.value if end is None else end for end in (row.low, row.high))
    return math.log10(max(low, row.value / 10)), math.log10(min(high, row.value * 10))


def _draw_marks(figure: go.Figure, rows: Sequence[CostDot], *, places: Sequence[str], unit: Unit) -> None:
    """Draws one kind of all cells: its marks, their values beside them, their intervals."""
    colors = [color_of(row.backend) for row in rows]
    say = format_number if unit == "s" else format_steps
    figure.add_scatter(
        x=[row.value for row in rows],
        y=[places.index(row.place) for row in rows],
        mode="markers+text",
        showlegend=False,
        marker={"color": colors, "size": 10, "symbol": _SYMBOLS[rows[0].kind], "line": {"width": 2, "color": colors}},
        text=[say(row.value) for row in rows],
        textposition="bottom center" if rows[0].kind == "warm" else "top center",
        textfont={"size": 12, "color": QUIET},
        error_x=error_bars(
            ((row.value, row.low, row.high) for row in rows),
            color=QUIET,
            width=0,
            visible=any(row.low is not None for row in rows),
        ),
        customdata=[[_describe_cost(row, unit)] for row in rows],
        hovertemplate="%{customdata[0]}<extra></extra>",
        cliponaxis=False,
    )


_NAMES: Mapping[Kind, str] = {
    "cold": "cold: empty cache",
    "warm": "warm: filled cache",
    "as found": "as found: what earlier cells had cached",
}


def crossings(lines: Sequence[CumulatedLine]) -> list[tuple[CumulatedLine, float]]:
    """Returns where lines meet the first one, in steps; those that never do are left out."""
    base, *others = lines
    met = [(line, (line.start_s - base.start_s) * 1e3 / (base.step_ms - line.step_ms)) for line in others
           if base.step_ms > line.step_ms]  # fmt: skip
    return [(line, steps) for line, steps in met if steps >= 0]


def crossing_lines(lines: Sequence[CumulatedLine]) -> go.Figure:
    """Draws cumulated time over steps, with a ring where a line meets the first one."""
    met = crossings(lines)
    longest = max([steps for _, steps in met], default=0.0) * 1.9 or _find_reach(lines)
    top = max(line.seconds(longest) for line in lines)
    factor, unit = _choose_unit(top)
    figure = go.Figure()
    for line in lines:
        color = color_of(line.backend)
        figure.add_scatter(
            name=line.name,
            mode="lines",
            x=[0, longest],
            y=[line.start_s / factor, line.seconds(longest) / factor],
            line={"color": color, "width": 2.5, "dash": _DASHES.get(line.kind or "", "solid")},
            hovertemplate=f"{line.name}: {format_number(line.start_s)} s and {format_number(line.step_ms)} ms a step"
            "<extra></extra>",
        )
    for line, steps in met:
        figure.add_scatter(
            x=[steps], y=[line.seconds(steps) / factor], mode="markers+text", showlegend=False,
            marker={"size": 13, "symbol": "circle-open", "color": color_of(line.backend), "line": {"width": 2.5}},
            text=[f"  after {format_steps(steps)} steps"], textposition="bottom right", textfont={"size": 13},
            hoverinfo="skip", cliponaxis=False,
        )  # fmt: skip
    figure.update_layout(**layout(height=380, state="crossing"))
    figure.update_xaxes(title="Steps", range=[0, longest], tickformat=",", zeroline=False)
    figure.update_yaxes(
        title=f"Time since the start ({unit})", range=[-0.1 * top / factor, 1.04 * top / factor], automargin=True
    )
    return figure


def format_steps(steps: float) -> str:
    """Formats the first whole step that is enough, in three digits: `41`, `1,130`."""
    least = math.ceil(steps)
    return f"{least}" if least < 1000 else format_number(least)


def _find_reach(lines: Sequence[CumulatedLine]) -> float:
    """Returns the steps to draw where nothing crosses: until the start is a fifth of the whole."""
    return max(5 * max(line.start_s for line in lines) * 1e3 / max(line.step_ms for line in lines), 10.0)


def _choose_unit(seconds: float) -> tuple[float, str]:
    return next((factor, unit) for limit, factor, unit in _UNITS if seconds >= limit)


_UNITS = ((7200.0, 3600.0, "h"), (180.0, 60.0, "min"), (0.0, 1.0, "s"))


def _describe_way(row: WayDot) -> str:
    ends = format_interval(row.low, row.high, unit="×")
    host = f"<br>{row.host}" if row.host else ""
    return f"<b>{row.place}</b><br>{row.backend}: {format_number(row.ratio)}×<br>95% interval {ends}{host}"


def _describe_cost(row: CostDot, unit: Unit) -> str:
    ends = f"<br>95% interval {format_interval(row.low, row.high)}" if row.low is not None else ""
    return f"<b>{row.place}</b><br>{_NAMES[row.kind]}<br>{format_number(row.value)} {unit}{ends}"
