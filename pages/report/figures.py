"""The memory of recorded steps over time: total bytes as a line, with the beginning of each phase.

figure = total_lines([TotalLine(name="train", at_ms=(0.0, 1.2), held_bytes=(10, 30), marks=((0.0, "forward"),))])
"""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from pages.figures.colors import FAINT, color_of
from pages.figures.frame import escape_text, layout
from runner.formats import unit_for

#: The height of one timeline, and of what stands around them (px).
_LINE, _AROUND = 210, 70


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
        rows=len(lines), shared_yaxes="all", vertical_spacing=0.24 / len(lines), subplot_titles=titles
    )
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
        for at, phase in line.marks:
            figure.add_vline(x=at, line={"color": FAINT, "width": 1.2}, row=row, col=1)
            figure.add_annotation(
                x=at,
                y=1,
                yref="y domain",
                text=escape_text(phase),
                showarrow=False,
                xanchor="left",
                yanchor="top",
                font={
                    "size": 11.5,
                    "color": color_of(phase)
                    if phase in ("forward", "loss", "backward", "optimizer")
                    else color_of("step"),
                },
                textangle=-90,
                row=row,
                col=1,
            )
    figure.update_layout(**layout(height=_LINE * len(lines) + _AROUND, state="timelines", legend=False))
    figure.update_yaxes(title=f"In use ({unit})", rangemode="tozero", nticks=5)
    figure.update_xaxes(title="Time since the step began (ms)", row=len(lines), col=1)
    figure.update_annotations(font={"size": 12})
    return figure
