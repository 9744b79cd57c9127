"""Every step of one cell, phase by phase, warm-up included.

figure = sample_steps([PhaseSample(round=0, phase="forward", step=0, is_warmup=True, duration_ms=3.1), …])
"""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from pages.figures.colors import FAINTER, color_of
from pages.figures.frame import WORDS, layout, title_of, unit_of
from runner.results import PhaseSample

#: More dots than these are drawn by WebGL.
MANY = 3_000


def sample_steps(rows: Sequence[PhaseSample], *, state: str) -> go.Figure:
    """Draws time (log) over step number, a color a phase; hollow dots are warm-up. Rounds follow one another."""
    figure = go.Figure()
    lengths = {
        number: max(row.step for row in rows if row.round == number) + 1 for number in {row.round for row in rows}
    }
    starts = {number: sum(length for other, length in lengths.items() if other < number) for number in lengths}
    trace = go.Scattergl if len(rows) > MANY else go.Scatter
    for phase in (phase for phase in WORDS if any(row.phase == phase for row in rows)):
        chosen = [row for row in rows if row.phase == phase]
        figure.add_trace(
            trace(
                x=[starts[row.round] + row.step for row in chosen],
                y=[row.duration_ms for row in chosen],
                mode="lines+markers",
                name=WORDS[phase],
                line={"color": color_of(phase), "width": 1},
                marker={
                    "color": color_of(phase),
                    "size": 6,
                    "line": {"width": 1.4, "color": color_of(phase)},
                    "symbol": ["circle-open" if row.is_warmup else "circle" for row in chosen],
                },
                customdata=[[row.round, row.step, "warm-up" if row.is_warmup else "measured"] for row in chosen],
                hovertemplate=(
                    f"{WORDS[phase]}: %{{y:.4~g}} {unit_of('samples', 'duration_ms')}<br>round %{{customdata[0]}}, "
                    "step %{customdata[1]} (%{customdata[2]})<extra></extra>"
                ),
            )
        )
    _shade_warmup(figure, rows, starts)
    figure.update_layout(**layout(height=380, state=f"samples-{state}"))
    figure.update_xaxes(
        title="Step since the start" + (", rounds one after the other" if len(starts) > 1 else ""),
        zeroline=False,
        showgrid=False,
    )
    figure.update_yaxes(
        type="log", title=title_of("samples", "duration_ms") + ", log", automargin=True, tickformat=",~g", dtick="D2"
    )
    return figure


def _shade_warmup(figure: go.Figure, rows: Sequence[PhaseSample], starts: Mapping[int, int]) -> None:
    """Shades the warm-up steps of each round, which begins at its place in `starts`. Only the first are named: with
    many rounds the names would overlap."""
    named = False
    for number in sorted(starts):
        warm = sum(row.is_warmup for row in rows if row.round == number and row.phase == rows[0].phase)
        if warm:
            figure.add_vrect(
                x0=starts[number] - 0.5,
                x1=starts[number] + warm - 0.5,
                fillcolor=FAINTER,
                line={"width": 0},
                layer="below",
                annotation={"text": "warm-up", "font": {"size": 11}, "visible": not named},
                annotation_position="bottom left",
            )
            named = True
