"""The memory of recorded steps over time: total bytes as a line, with the beginning of each phase.

figure = total_lines([TotalLine(name="train", at_ms=(0.0, 1.2), held_bytes=(10, 30), marks=((0.0, "forward"),))])
"""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from pages.figures.colors import FAINT, QUIET, color_of
from pages.figures.frame import escape_text, layout
from runner.formats import unit_for

#: The height of one timeline, and of what stands around them (px).
_LINE, _AROUND = 210, 100
#: The share of a timeline that has room for a phase's name.
_ROOM = 0.1


@dataclass(frozen=True, kw_only=True)
class TotalLine:
    """One timeline: moments (ms) with the bytes held from there on, and the beginnings of phases (ms)."""

    name: str
    at_ms: Sequence[float]
    held_bytes: Sequence[float]
    marks: Sequence[tuple[float, str]]


def total_lines(lines: Sequence[TotalLine]) -> go.Figure:
    """Draws one panel a timeline, each with its own time axis and one axis of bytes from zero."""
    factor, unit = unit_for([size for line in lines for size in line.held_bytes])
    titles = [escape_text(line.name) for line in lines]
    figure = make_subplots(
        rows=len(lines), shared_yaxes="all", vertical_spacing=0.34 / len(lines), subplot_titles=titles
    )
    figure.update_annotations(font={"size": 13}, yshift=18)
    for row, line in enumerate(lines, start=1):
        figure.add_scatter(
            x=list(line.at_ms),
            y=[size / factor for size in line.held_bytes],
            mode="lines",
            fill="tozeroy",
            line={"color": color_of("activation"), "width": 1.4, "shape": "hv"},
            name=escape_text(line.name),
            hovertemplate=f"%{{x:.3g}} ms: %{{y:.4~g}} {unit}<extra></extra>",
            row=row,
            col=1,
        )
        _mark_phases(figure, line, row=row)
    figure.update_layout(**layout(height=_LINE * len(lines) + _AROUND, state="timelines", legend=False))
    figure.update_layout(margin_t=52)
    figure.update_yaxes(title=f"In use ({unit})", rangemode="tozero", nticks=5)
    figure.update_xaxes(title="Time since the step began (ms)", row=len(lines), col=1)
    return figure


def _mark_phases(figure: go.Figure, line: TotalLine, *, row: int) -> None:
    """Draws a line where each phase begins and its name above its span, unless that is too short for one."""
    end = max(line.at_ms, default=0.0)
    for (begins, phase), following in zip(line.marks, [*(at for at, _ in line.marks[1:]), end], strict=False):
        figure.add_vline(x=begins, line={"color": FAINT, "width": 1.2}, row=row, col=1)
        if following - begins >= _ROOM * end:
            figure.add_annotation(
                x=(begins + following) / 2,
                y=1,
                yref="y domain",
                text=escape_text(phase),
                showarrow=False,
                yanchor="bottom",
                font={"size": 11.5, "color": QUIET},
                row=row,
                col=1,
            )
