"""What would help, ranked: the ratio of the step for every change, dots with 95% intervals on a log axis around 1×.

    figure = counterfactual_dots([SpeedupDot(place="bf16 products", phase="step", ratio=1.9, …)], singles=4)

Drawn as all speedups are; single changes above the line, several at once below it.
"""

from collections.abc import Sequence

import plotly.graph_objects as go

from pages.charts.colors import FAINT
from pages.charts.frame import number
from pages.charts.speedups import SpeedupDot, speedup_dots


def counterfactual_dots(rows: Sequence[SpeedupDot], *, singles: int) -> go.Figure:
    """One line a change, in the order given; the first `singles` change one thing."""
    figure = speedup_dots(rows, variant="the changed step")
    figure.update_traces(
        text=[f"{number(row.ratio)}×" for row in rows if not row.failure], textposition="top center",
        selector={"name": "whole step"},
    )  # fmt: skip
    if 0 < singles < len(rows):
        figure.add_hline(y=singles - 0.5, line={"color": FAINT, "width": 1, "dash": "dot"})
    figure.update_layout(showlegend=False, margin_t=16)
    figure.update_xaxes(title="Speedup (×, log)")
    return figure
