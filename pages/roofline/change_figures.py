"""What would help, ranked: the ratio of the step for every change, dots with 95% intervals on a log axis.

    figure = counterfactual_dots([SpeedupDot(place="bf16 products", phase="step", ratio=1.9, …)], singles=4)

Drawn as all speedups are; single changes above the line, several at once below it.
"""

from collections.abc import Sequence

import plotly.graph_objects as go

from pages.figures.colors import FAINT
from pages.figures.rows import beside, chart_pixels, row_pixels, wrap_label
from pages.figures.speedups import SpeedupDot, speedup_dots
from runner.formats import format_number


def counterfactual_dots(rows: Sequence[SpeedupDot], *, singles: int) -> go.Figure:
    """One line a change, in the order given; the first `singles` change one thing."""
    figure = speedup_dots(rows, variant="the changed step")
    beside(figure, {at: f"{format_number(row.ratio)}×" for at, row in enumerate(rows) if not row.failure})
    row = row_pixels([wrap_label(row.place) for row in rows], least=30)
    figure.update_layout(height=chart_pixels(len(rows), row=row))
    if 0 < singles < len(rows):
        figure.add_hline(y=singles - 0.5, line={"color": FAINT, "width": 1, "dash": "dot"})
    figure.update_layout(showlegend=False, margin_t=16)
    # The column of numbers takes the room that a phone has for ticks halfway.
    axis = figure.layout.xaxis
    every = 2 if len(axis.tickvals) > 3 else 1
    figure.update_xaxes(title="Speedup (×, log)", tickvals=axis.tickvals[::every], ticktext=axis.ticktext[::every])
    return figure
