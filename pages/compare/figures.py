"""A against B: every pair as a dot with its interval on a log axis, and what moved, from A's value to B's.

    figure = ratio_dots([RatioDot(place="toy-64 · 128", outcome="better", ratio=1.9, low=1.8, high=2.0, …)], …)
    figure = movers([Mover(place="toy-64 · 128", outcome="better", a=12.1, b=6.4, words="1.89× faster", …)], …)

Right of 1× B is better: faster, or smaller. A pair of which one side failed keeps its place, with the reason.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go

from pages.figures.bytes import binary_axis
from pages.figures.colors import BLUE, FAINT, FAINTER, ORANGE, QUIET, RED
from pages.figures.frame import interval, layout, log_ticks
from pages.figures.marks import ring_hosts
from pages.figures.ratios import left_end, ratio_axis
from pages.figures.rows import row_pixels, wrap_label
from runner.formats import format_number

Outcome = Literal["better", "worse", "same"]
#: The color and the symbol of each outcome.
LOOKS: Mapping[Outcome, tuple[str, str]] = {
    "worse": (ORANGE, "diamond"),
    "same": (QUIET, "circle-open"),
    "better": (BLUE, "circle"),
}


@dataclass(frozen=True, kw_only=True)
class RatioDot:
    """One pair or, with `failure`, a cell that could not be compared. `ratio` is A over B, `host` says which sides the
    host bounds."""

    place: str
    cell_id: str
    outcome: Outcome = "same"
    ratio: float = 1.0
    low: float | None = None
    high: float | None = None
    values: str = ""
    host: str = ""
    failure: str | None = None


@dataclass(frozen=True, kw_only=True)
class Mover:
    """One pair with the value of each side, in ms or bytes."""

    place: str
    cell_id: str
    outcome: Outcome
    a: float
    b: float
    words: str


def ratio_dots(rows: Sequence[RatioDot], *, legend: Mapping[Outcome, str], noise: float, axis_title: str) -> go.Figure:
    """One line a pair. `legend` names the outcomes; a ratio within `noise` of 1 lies in the band."""
    places = list(dict.fromkeys(row.place for row in rows))
    measured = [row for row in rows if not row.failure]
    figure = go.Figure()
    figure.add_vrect(x0=1 / (1 + noise), x1=1 + noise, fillcolor=FAINTER, line_width=0, layer="below")
    figure.add_vline(x=1, line={"color": FAINT, "width": 2})
    for outcome, (color, symbol) in LOOKS.items():
        chosen = [row for row in measured if row.outcome == outcome]
        if chosen:
            figure.add_scatter(
                name=legend[outcome],
                mode="markers",
                x=[row.ratio for row in chosen],
                y=[places.index(row.place) for row in chosen],
                marker={"color": color, "size": 9, "symbol": symbol, "line": {"width": 1.6, "color": color}},
                error_x={**_errors(chosen), "width": 0 if outcome == "same" else 3},
                customdata=[[row.cell_id, _hover(row)] for row in chosen],
                hovertemplate="%{customdata[1]}<extra></extra>",
                cliponaxis=False,
            )
    ring_hosts(figure, ((row.host, row.ratio, places.index(row.place)) for row in measured))
    axis = ratio_axis(value for row in measured for value in (row.ratio, row.low, row.high))
    lost = [row for row in rows if row.failure]
    figure.add_scatter(
        x=[left_end(axis)] * len(lost),
        y=[places.index(row.place) for row in lost],
        mode="markers+text",
        showlegend=False,
        marker={"symbol": "x", "size": 8, "color": RED},
        text=[f"  {row.failure}" for row in lost],
        textposition="middle right",
        textfont={"color": RED, "size": 12},
        hoverinfo="skip",
        cliponaxis=False,
    )
    figure.update_layout(**layout(height=_height(places), state=f"ratios {axis_title}"))
    figure.update_xaxes(**axis, title=axis_title)
    figure.update_yaxes(**_places(places))
    return figure


def movers(rows: Sequence[Mover], *, names: tuple[str, str], unit: Literal["ms", "bytes"]) -> go.Figure:
    """One line a pair from A's value, hollow, to B's, full; how many times better or worse beside it."""
    places = [row.place for row in rows]
    figure = go.Figure()
    for outcome in ("worse", "better"):
        chosen = [(place, row) for place, row in enumerate(rows) if row.outcome == outcome]
        figure.add_scatter(
            mode="lines", showlegend=False, hoverinfo="skip", line={"color": LOOKS[outcome][0], "width": 2.5},
            x=[value for _, row in chosen for value in (row.a, row.b, None)],
            y=[value for place, _ in chosen for value in (place, place, None)],
        )  # fmt: skip
    colors = [LOOKS[row.outcome][0] for row in rows]
    for side, name in enumerate(names):
        values = [(row.a, row.b)[side] for row in rows]
        figure.add_scatter(
            name=name, mode="markers", x=values, y=list(range(len(rows))), showlegend=False, cliponaxis=False,
            marker={"color": colors, "size": 10, "symbol": "circle" if side else "circle-open",
                    "line": {"width": 2, "color": colors}},
            customdata=[[row.cell_id, name, row.words] for row in rows],
            hovertemplate=f"<b>%{{customdata[1]}}</b>: %{{x:,.4~g}} {unit}<br>%{{customdata[2]}}<extra></extra>",
        )  # fmt: skip
        symbol = {"color": QUIET, "size": 10, "symbol": "circle" if side else "circle-open",
                  "line": {"width": 2, "color": QUIET}}  # fmt: skip
        figure.add_scatter(name=name, mode="markers", x=[None], y=[None], marker=symbol)
    figure.add_scatter(
        mode="text", showlegend=False, hoverinfo="skip", x=[max(row.a, row.b) for row in rows],
        y=list(range(len(rows))), text=[f"\u2002 {row.words}" for row in rows], textposition="middle right",
        textfont={"size": 12}, cliponaxis=False,
    )  # fmt: skip
    sizes = [value for row in rows for value in (row.a, row.b)]
    axis = _value_axis(sizes, unit=unit)
    figure.add_scatter(  # from each name to its marks; a grid's line would go on through the words beside them
        mode="lines", showlegend=False, hoverinfo="skip", line={"color": FAINTER, "width": 1},
        x=[value for row in rows for value in (10 ** axis["range"][0], min(row.a, row.b), None)],
        y=[value for place in range(len(rows)) for value in (place, place, None)],
    )  # fmt: skip
    figure.update_layout(**layout(height=_height(places), state=f"movers {names}"))
    figure.update_layout(legend={"itemclick": False, "itemdoubleclick": False})
    figure.update_xaxes(**axis, automargin=True)
    figure.update_yaxes(**{**_places(places), "showgrid": False})
    return figure


def _height(places: Sequence[str]) -> int:
    return max(200, 100 + row_pixels([wrap_label(place) for place in places], least=32) * len(places))


def _places(places: Sequence[str]) -> dict[str, Any]:
    return {
        "tickvals": list(range(len(places))),
        "ticktext": [wrap_label(place) for place in places],
        "range": [len(places) - 0.4, -0.6],
        "automargin": True,
        "gridcolor": FAINTER,
        "zeroline": False,
        "showgrid": True,
    }


def _value_axis(sizes: Sequence[float], *, unit: Literal["ms", "bytes"]) -> dict[str, Any]:
    """A log axis with room for words at its right."""
    low, high = math.log10(min(sizes)), math.log10(max(sizes))
    reach = max(high - low, 0.3)
    limits = {"range": [low - 0.05 * reach, high + 0.75 * reach], "zeroline": False}
    if unit == "bytes":
        return {**binary_axis(sizes, most=5), **limits, "title": "Peak allocated (log)"}
    ticks = log_ticks(10 ** (low - 0.05 * reach), 10 ** (high + 0.2 * reach), most=5)
    return {"type": "log", **limits, "tickvals": ticks, "ticktext": [f"{tick:,g}" for tick in ticks],
            "title": "Median (ms, log)"}  # fmt: skip


def _errors(rows: Sequence[RatioDot]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "thickness": 1.4,
        "width": 3,
        "array": [(row.high or row.ratio) - row.ratio for row in rows],
        "arrayminus": [row.ratio - (row.low or row.ratio) for row in rows],
    }


def _hover(row: RatioDot) -> str:
    sure = f"<br>95% interval {interval(row.low, row.high, unit='×')}" if row.low else ""
    return f"<b>{row.place}</b><br>{row.values}<br>A / B {format_number(row.ratio)}×{sure}" + (
        f"<br>{row.host}" if row.host else ""
    )
