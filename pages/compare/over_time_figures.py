"""One cell over runs: a dot a run with its interval, and a dashed line where the time changed.

figure = over_time(points, find_changes(points))
"""

from collections.abc import Sequence

import plotly.graph_objects as go

from pages.figures.colors import BLUE, ORANGE, SLATE
from pages.figures.dated import date_axes
from pages.figures.frame import escape_text, format_interval, layout
from pages.figures.marks import error_bars, hover_cells
from runner.analysis.compare.over_time import Change, RunPoint
from runner.formats import format_ms, format_times


def over_time(points: Sequence[RunPoint], changes: Sequence[Change]) -> go.Figure:
    """Draws the points by the start of their runs."""
    figure = go.Figure()
    times = [(point.time.ms, point.time.low_ms, point.time.high_ms) for point in points]
    figure.add_scatter(
        name="run",
        mode="lines+markers",
        x=[point.started_at for point in points],
        y=[point.time.ms for point in points],
        line={"color": SLATE, "width": 1.4},
        marker={"color": SLATE, "size": 9},
        error_y=error_bars(times, color=SLATE),
        **hover_cells((str(point.measured.cell_id), _describe(point)) for point in points),
        cliponaxis=False,
    )
    for change in changes:
        faster = change.ratio.outcome == "better"
        middle = change.before.started_at + (change.after.started_at - change.before.started_at) / 2
        color, word = (BLUE, "faster") if faster else (ORANGE, "slower")
        figure.add_shape(
            type="line", x0=middle, x1=middle, y0=0, y1=1, yref="paper",
            line={"color": color, "width": 1.6, "dash": "dash"},
        )  # fmt: skip
        figure.add_annotation(
            x=middle, y=1, yref="paper", yanchor="bottom", showarrow=False, font={"color": color, "size": 12},
            text=f"{format_times(change.ratio.ratio)} {word}",
        )  # fmt: skip
    figure.update_layout(**layout(height=340, state="over-time", legend=False), margin_t=30)
    date_axes(figure, started="Run started (UTC)", ends=[value for time in times for value in time])
    return figure


def _describe(point: RunPoint) -> str:
    sure = format_interval(point.time.low_ms, point.time.high_ms, unit="ms") if point.time.low_ms else "no interval"
    commit = f"<br>commit {escape_text(point.commit[:7])}" if point.commit else ""
    return f"<b>{escape_text(point.run_name)}</b><br>{format_ms(point.time.ms)}<br>95% interval {sure}{commit}"
