"""Marks that several charts share: error bars, text at the ends of bars, crosses for cells without a result.

figure.add_scatter(x=ratios, error_x=error_bars((row.ratio, row.low, row.high) for row in rows))
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go

from pages.figures.colors import QUIET, RED

#: What the legend says of a ring.
HOST_SIDE = "bound by the host on a side"
#: A value with the ends of its interval.
Interval = tuple[float, float | None, float | None]


def error_bars(rows: Iterable[Interval], *, thickness: float = 1.4, width: float = 3, **style: Any) -> dict[str, Any]:
    """Returns Plotly's `error_x` or `error_y`. An end that is None or infinite has no bar."""
    ends = [
        (middle, *(middle if end is None or not math.isfinite(end) else end for end in (low, high)))
        for middle, low, high in rows
    ]
    return {
        "type": "data",
        "symmetric": False,
        "thickness": thickness,
        "width": width,
        "array": [high - middle for middle, _, high in ends],
        "arrayminus": [middle - low for middle, low, _ in ends],
        **style,
    }


def flat_colors(colors: Sequence[str]) -> dict[str, Any]:
    """Returns the settings of a heatmap whose values 0, 1, … have these colors."""
    steps = [[(level + side) / len(colors), color] for level, color in enumerate(colors) for side in (0, 1)]
    return {"colorscale": steps, "showscale": False, "zmin": -0.5, "zmax": len(colors) - 0.5, "xgap": 3, "ygap": 3}


def hover_cells(cells: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Returns the settings of a trace for tooltips and clicks, given the (cell id, tooltip) of each point."""
    return {"customdata": [list(cell) for cell in cells], "hovertemplate": "%{customdata[1]}<extra></extra>"}


def write_ends(figure: go.Figure, *, x: Sequence[float], y: Sequence[float], text: Sequence[str], **style: Any) -> None:
    """Writes `text` right of the points (x, y), such as the ends of bars; `style` is of the trace."""
    look = {"textfont": {"size": 12, "color": QUIET}, **style}
    figure.add_scatter(
        mode="text", x=x, y=y, text=text, textposition="middle right", showlegend=False, hoverinfo="skip",
        cliponaxis=False, **look,
    )  # fmt: skip


def ring_hosts(figure: go.Figure, dots: Iterable[tuple[str, float, float]]) -> int:
    """Draws a ring around each dot with a host-bound side, with its entry of the legend. `dots` are what is
    said of the host, if anything, with x and y. Returns the number of entries."""
    points = [(x, y) for host, x, y in dots if host]
    if points:
        figure.add_scatter(
            name=HOST_SIDE, mode="markers", x=[x for x, _ in points], y=[y for _, y in points], hoverinfo="skip",
            cliponaxis=False, marker={"symbol": "circle-open", "size": 17, "color": QUIET, "line": {"width": 1.6}},
        )  # fmt: skip
    return 1 if points else 0


def color_failures(failures: Iterable[object]) -> dict[str, Any]:
    """Returns the font of texts at bar ends: red where there is a failure."""
    return {"size": 12, "color": [RED if failure else QUIET for failure in failures]}


def cross_failures(
    figure: go.Figure, *, x: float, y: Sequence[float], failures: Sequence[tuple[str, str | None]]
) -> None:
    """Draws a red cross at `x` in each row of `y`, with its reason. `failures` are cell ids and reasons."""
    figure.add_scatter(
        mode="markers+text", x=[x] * len(failures), y=y, text=[f"  {reason}" for _, reason in failures],
        textposition="middle right", textfont={"color": RED, "size": 12}, showlegend=False, hoverinfo="skip",
        cliponaxis=False, marker={"symbol": "x", "size": 8, "color": RED}, customdata=[[cell] for cell, _ in failures],
    )  # fmt: skip
