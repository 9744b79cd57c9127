"""What varies between processes as dots on a log axis, and a canary's rounds over time.

figure = noise_dots([NoiseDot(kind="H200 · node1 · host-bound steps", clock="step", std=0.02, one=0.14, five=0.04)])
figure = canary_dots([CanaryDot(at=started_at, round=0, median_ms=12.1, …)], changes=[drift], state="run")
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import plotly.graph_objects as go

from pages.figures.colors import BLUE, FAINT, FAINTER, ORANGE, SLATE
from pages.figures.dated import date_axes
from pages.figures.frame import CLOCKS, escape_text, format_interval, layout, log_ticks, unit_of
from pages.figures.marks import error_bars, hover_cells
from pages.figures.rows import chart_pixels, under_headings
from runner.analysis.audit.findings import Drift
from runner.formats import format_number
from runner.results import Clock

#: The dots of a row: field, name, color and symbol.
_DOTS = (
    ("std", "standard deviation", SLATE, "circle"),
    ("five", "resolved by five processes each", BLUE, "diamond"),
    ("one", "resolved by one process each", ORANGE, "square"),
)


@dataclass(frozen=True, kw_only=True)
class NoiseDot:
    """One kind of cell by one clock, as shares of the time: what processes differ by, and the smallest difference that
    one process each and five can resolve, None for none."""

    kind: str
    clock: Clock
    std: float
    one: float | None
    five: float | None


@dataclass(frozen=True, kw_only=True)
class CanaryDot:
    """One process that measured the canary: when it started, and its median step with the interval within it (ms)."""

    cell_id: str
    at: datetime
    round: int
    median_ms: float
    low_ms: float | None = None
    high_ms: float | None = None


def noise_dots(rows: Sequence[NoiseDot]) -> go.Figure:
    """Draws a row a clock below the name of each kind; left is better."""
    lines = under_headings([escape_text(row.kind) for row in rows], [CLOCKS[row.clock] for row in rows])
    figure = go.Figure()
    figure.add_scatter(
        mode="lines", showlegend=False, hoverinfo="skip", line={"color": FAINT, "width": 2},
        x=[value for row in rows for value in (100 * row.std, 100 * (row.one or row.five or row.std), None)],
        y=[value for at in lines.at for value in (at, at, None)],
    )  # fmt: skip
    for field, name, color, symbol in _DOTS:
        values = [value and 100 * value for value in (getattr(row, field) for row in rows)]
        figure.add_scatter(
            name=name,
            mode="markers",
            x=values,
            y=lines.at,
            marker={"color": color, "size": 10, "symbol": symbol},
            customdata=[[escape_text(row.kind), CLOCKS[row.clock]] for row in rows],
            hovertemplate=f"<b>%{{customdata[0]}}</b><br>%{{customdata[1]}}<br>{name}: %{{x:.3~g}}%<extra></extra>",
            cliponaxis=False,
        )
    ends = [100 * value for row in rows for value in (row.std, row.five, row.one) if value]
    ticks = log_ticks(min(ends) / 1.5, max(ends) * 1.5, most=5)
    height = chart_pixels(lines.count, row=28, entries=len(_DOTS))
    figure.update_layout(**layout(height=height, state="noise"))
    figure.update_xaxes(
        type="log", title="Share of the time (%, log)", tickvals=ticks, ticktext=[f"{tick:,g}%" for tick in ticks],
        zeroline=False, automargin=True, tickangle=0, gridcolor=FAINTER,
    )  # fmt: skip
    lines.draw(figure)
    return figure


def canary_dots(rows: Sequence[CanaryDot], *, changes: Sequence[Drift], state: str) -> go.Figure:
    """Draws a dot a process at the moment at which it started, and shades when the machine changed."""
    figure = go.Figure()
    for change in changes:
        figure.add_vrect(x0=change.started_at, x1=change.ended_at, fillcolor=FAINTER, line_width=0, layer="below")
    if changes:
        shade = {"color": FAINT, "size": 12, "symbol": "square"}
        figure.add_scatter(name="the machine changed", mode="markers", x=[None], y=[None], marker=shade)
    figure.add_scatter(
        name="one process",
        mode="lines+markers",
        x=[row.at for row in rows],
        y=[row.median_ms for row in rows],
        line={"color": SLATE, "width": 1.4},
        marker={"color": SLATE, "size": 9},
        error_y=error_bars(((row.median_ms, row.low_ms, row.high_ms) for row in rows), color=SLATE),
        **hover_cells((row.cell_id, _describe(row)) for row in rows),
        cliponaxis=False,
    )
    figure.update_layout(**layout(height=320, state=f"canary-{state}", legend=bool(changes)))
    ends = [value for row in rows for value in (row.median_ms, row.low_ms, row.high_ms)]
    date_axes(figure, started="Started (UTC)", ends=ends)
    return figure


def _describe(row: CanaryDot) -> str:
    unit = unit_of("timings", "median_ms")
    return (
        f"<b>round {row.round}</b>, {row.at:%Y-%m-%d %H:%M:%S}<br>{format_number(row.median_ms)} {unit}"
        f"<br>within this process {format_interval(row.low_ms, row.high_ms, unit=unit)}"
    )
