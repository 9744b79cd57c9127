"""How much of a step the device works, and how much it waits for the host: one bar a cell.

figure = busy_bars([BusyBar(group="small", place="512 · train", cell_id="…", busy=0.93, label="+4%")], names=…)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.figures.colors import FAINT, STRONG, color_of
from pages.figures.frame import layout
from pages.figures.ink import ink_on
from pages.figures.marks import write_ends
from pages.figures.rows import BAR, STACKED, chart_pixels, under_headings, wrap_label


@dataclass(frozen=True, kw_only=True)
class BusyBar:
    """One cell. `busy` is a share of its step; `label` stands beside the bar."""

    group: str
    place: str
    cell_id: str
    busy: float
    label: str


def busy_bars(bars: Sequence[BusyBar], *, names: tuple[str, str]) -> go.Figure:
    """Draws the bars; `names` are words for busy time and for the rest."""
    rows = under_headings([bar.group for bar in bars], [wrap_label(bar.place) for bar in bars])
    figure = go.Figure()
    for name, color, shares in (
        (names[0], color_of("step"), [min(bar.busy, 1.0) for bar in bars]),
        (names[1], FAINT, [max(0.0, 1 - bar.busy) for bar in bars]),
    ):
        figure.add_bar(
            name=name, orientation="h", y=rows.at, x=[share * 100 for share in shares], width=BAR,
            marker={"color": color, "line": {"width": 0}}, textposition="inside", insidetextanchor="start",
            textfont={"color": STRONG if color == FAINT else ink_on(color)},
            text=[f"{share:.0%}" if share >= 0.1 else "" for share in shares], textangle=0,
            customdata=[[bar.cell_id] for bar in bars], hovertemplate=f"{name}: %{{x:.1f}} %<extra></extra>",
        )  # fmt: skip
    write_ends(figure, x=[100] * len(bars), y=rows.at, text=[f"  {bar.label}" for bar in bars])
    height = chart_pixels(rows.count, row=28, entries=2)
    figure.update_layout(**layout(height=height, state="busy"), **STACKED, margin_r=56)
    figure.update_xaxes(title="Share of the step (%)", range=[0, 100], tickvals=[0, 25, 50, 75, 100], tickangle=0)
    rows.draw(figure)
    return figure
