"""A against B: every pair as a dot with its interval on a log axis.

    figure = ratio_dots([RatioDot(place="toy-64 · 128", outcome="better", ratio=1.9, low=1.8, high=2.0, …)], …)

Right of 1× B is better: faster, or smaller. A pair with a failed side keeps its place, with the reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go

from pages.figures.colors import BLUE, FAINT, FAINTER, ORANGE, QUIET, RED
from pages.figures.frame import format_interval, layout
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
    figure.update_layout(**layout(height=pairs_height(places), state=f"ratios {axis_title}"))
    figure.update_xaxes(**axis, title=axis_title)
    figure.update_yaxes(**pairs_axis(places))
    return figure


def pairs_height(places: Sequence[str]) -> int:
    """Returns the height of a chart with a line for each place (px)."""
    return max(200, 100 + row_pixels([wrap_label(place) for place in places], least=32) * len(places))


def pairs_axis(places: Sequence[str]) -> dict[str, Any]:
    """Returns the settings of the axis with a line for each place, the first on top."""
    return {
        "tickvals": list(range(len(places))),
        "ticktext": [wrap_label(place) for place in places],
        "range": [len(places) - 0.4, -0.6],
        "automargin": True,
        "gridcolor": FAINTER,
        "zeroline": False,
        "showgrid": True,
    }


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
    sure = f"<br>95% interval {format_interval(row.low, row.high, unit='×')}" if row.low else ""
    return f"<b>{row.place}</b><br>{row.values}<br>A / B {format_number(row.ratio)}×{sure}" + (
        f"<br>{row.host}" if row.host else ""
    )
