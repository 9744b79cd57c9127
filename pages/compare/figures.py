"""The changes from A to B: a line for each pair, from A's value to B's, and its ratio in words.

figure = movers([Mover(place="toy-64 · 128", outcome="better", a=12.1, b=6.4, words="1.89× faster", …)], …)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go

from pages.figures.bytes import binary_axis
from pages.figures.colors import FAINTER, QUIET
from pages.figures.frame import layout, log_ticks
from pages.figures.pairs import LOOKS, Outcome, pairs_axis, pairs_height


@dataclass(frozen=True, kw_only=True)
class Mover:
    """One pair with the value of each side, in ms or bytes."""

    place: str
    cell_id: str
    outcome: Outcome
    a: float
    b: float
    words: str


def movers(rows: Sequence[Mover], *, names: tuple[str, str], unit: Literal["ms", "bytes"]) -> go.Figure:
    """Draws a line for each pair from A's value, hollow, to B's, filled, with the ratio in words beside it."""
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
    figure.add_scatter(  # from each name to its marks, because a grid line would go on through the words
        mode="lines", showlegend=False, hoverinfo="skip", line={"color": FAINTER, "width": 1},
        x=[value for row in rows for value in (10 ** axis["range"][0], min(row.a, row.b), None)],
        y=[value for place in range(len(rows)) for value in (place, place, None)],
    )  # fmt: skip
    figure.update_layout(**layout(height=pairs_height(places), state=f"movers {names}"))
    figure.update_layout(legend={"itemclick": False, "itemdoubleclick": False})
    figure.update_xaxes(**axis, automargin=True)
    figure.update_yaxes(**{**pairs_axis(places), "showgrid": False})
    return figure


def _value_axis(sizes: Sequence[float], *, unit: Literal["ms", "bytes"]) -> dict[str, Any]:
    """Returns a log axis with room for words on the right."""
    low, high = math.log10(min(sizes)), math.log10(max(sizes))
    reach = max(high - low, 0.3)
    limits = {"range": [low - 0.05 * reach, high + 0.75 * reach], "zeroline": False}
    if unit == "bytes":
        return {**binary_axis(sizes, most=5), **limits, "title": "Peak allocated (log)"}
    ticks = list[float]()
    for tick in log_ticks(10 ** (low - 0.05 * reach), 10 ** (high + 0.2 * reach), most=5):
        if not ticks or math.log10(tick / ticks[-1]) > 0.2 * reach:  # closer ones overlap on a phone
            ticks.append(tick)
    return {"type": "log", **limits, "tickvals": ticks, "ticktext": [f"{tick:,g}" for tick in ticks],
            "title": "Time (ms, log)"}  # fmt: skip
