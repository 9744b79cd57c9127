"""What too little warm-up does: every early step of the same cell after 0, 1, 2 and 5 warm-up steps.

    figure = warmup_steps([WarmupStep(warmup=0, step=0, is_warmup=False, step_ms=31.0), …])

Hollow dots are warm-up steps, which the median (line) and the mean (dashes) leave out. With few warm-up steps a cold
step is measured: it moves the mean, hardly the median.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from pages.figures.colors import RED, color_of
from pages.figures.frame import label_of, layout, unit_of
from runner.formats import format_number


@dataclass(frozen=True, kw_only=True)
class WarmupStep:
    """One whole step of the cell that had `warmup` warm-up steps; `step` counts from the process's start."""

    warmup: int
    step: int
    is_warmup: bool
    step_ms: float


def warmup_steps(rows: Sequence[WarmupStep]) -> go.Figure:
    """Draws one panel a warm-up count, all on one logarithmic time axis."""
    counts = sorted({row.warmup for row in rows})
    titles = [f"after {count}" for count in counts]
    figure = make_subplots(cols=max(1, len(counts)), shared_yaxes=True, horizontal_spacing=0.02, subplot_titles=titles)
    for column, count in enumerate(counts, start=1):
        chosen = sorted((row for row in rows if row.warmup == count), key=lambda row: row.step)
        _draw_averages(figure, [row for row in chosen if not row.is_warmup], column=column)
        _draw_dots(figure, chosen, column=column, named=column == len(counts))
    figure.update_layout(**layout(height=340, state="warmup"))
    figure.update_layout(legend={"y": 1.12}, margin_b=52)
    figure.update_annotations(font={"size": 13})
    figure.update_xaxes(title="", nticks=3, zeroline=False, range=[-1, max((row.step for row in rows), default=1) + 1])
    figure.add_annotation(
        text="Step since the start", x=0.5, y=0, xref="paper", yref="paper", yshift=-46, showarrow=False,
        font={"size": 13},
    )  # fmt: skip
    times = [row.step_ms for row in rows] or [1.0]
    ticks = "D2" if max(times) > 4 * min(times) else "D1"  # every digit, where 1, 2 and 5 may all be out of sight
    figure.update_yaxes(type="log", dtick=ticks, tickformat=",~g", automargin=True)
    figure.update_yaxes(
        title=f"{label_of('samples', 'duration_ms')} of a step ({unit_of('samples', 'duration_ms')}, log)", col=1
    )
    return figure


def _draw_averages(figure: go.Figure, measured: Sequence[WarmupStep], *, column: int) -> None:
    """Draws the median and the mean of the measured steps as lines; nothing without any."""
    lines = (("median", median, "solid", color_of("step")), ("mean", fmean, "dash", RED))
    for name, average, dash, color in lines if measured else ():
        value = average([row.step_ms for row in measured])
        figure.add_scatter(
            x=[measured[0].step - 0.4, measured[-1].step + 0.4],
            y=[value, value],
            mode="lines",
            name=name,
            line={"color": color, "dash": dash, "width": 1.8},
            legendgroup=name,
            showlegend=column == 1,
            hovertemplate=f"{name}: {format_number(value)} {unit_of('timings', 'median_ms')}<extra></extra>",
            row=1,
            col=column,
        )


def _draw_dots(figure: go.Figure, steps: Sequence[WarmupStep], *, column: int, named: bool) -> None:
    """Draws the steps of one panel, those of the warm-up hollow."""
    color = color_of("step")
    for name, is_warmup, symbol in (("measured step", False, "circle"), ("warm-up step", True, "circle-open")):
        dots = [row for row in steps if row.is_warmup is is_warmup]
        figure.add_scatter(
            x=[row.step for row in dots],
            y=[row.step_ms for row in dots],
            mode="markers",
            name=name,
            marker={"color": color, "symbol": symbol, "size": 7, "line": {"width": 1.6, "color": color}},
            legendgroup=name,
            showlegend=named,
            row=1,
            col=column,
            hovertemplate=f"step %{{x}}: %{{y:.4~g}} {unit_of('timings', 'median_ms')}<extra>{name}</extra>",
        )
