"""The axes of medians over the time at which they were measured.

date_axes(figure, started="Run started (UTC)", ends=[6.5, 6.6, None])
"""

from collections.abc import Iterable

import plotly.graph_objects as go

from pages.figures.frame import title_of


def date_axes(figure: go.Figure, *, started: str, ends: Iterable[float | None]) -> None:
    """Gives the figure a date axis of this title and an axis of medians (ms) with room around all that is drawn: the
    medians and the ends of their intervals, None where there is none. Zero is not on it, as changes are what to see."""
    known = [value for value in ends if value is not None]
    room = 0.08 * (max(known) - min(known)) or 0.05 * max(known)
    figure.update_xaxes(type="date", title=started, automargin=True, nticks=5, tickangle=0, showgrid=False)
    figure.update_yaxes(
        title=title_of("timings", "median_ms"), automargin=True, tickformat=",~g", zeroline=False,
        range=[min(known) - room, max(known) + room],
    )  # fmt: skip
