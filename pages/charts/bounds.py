"""What binds a step: its time as shares bound by multiplying, by memory, by launching, and unknown; a bar a step.

figure = bound_bars([BoundBar(place="small · 512 tok<br>bf16", shares={"compute": 0.4, …})])
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.charts.colors import BLUE, FAINT, GREEN, ORANGE
from pages.charts.frame import layout
from pages.charts.rows import STACKED, chart_pixels, folded, row_pixels

#: Words and color of each share, in the order of drawing.
BOUNDS: Mapping[str, tuple[str, str]] = {
    "compute": ("bound by multiplying", BLUE),
    "memory": ("bound by memory", GREEN),
    "launch": ("device waits for the host", ORANGE),
    "unknown": ("unknown", FAINT),
}
#: Shares below this have no room for their number.
_ROOM = 0.06


@dataclass(frozen=True, kw_only=True)
class BoundBar:
    """One step; `place` is written beside its bar, and `shares` add up to 1."""

    place: str
    cell_id: str
    shares: Mapping[str, float]


def bound_bars(bars: Sequence[BoundBar]) -> go.Figure:
    """The chart; shares that no step has are left out of the legend."""
    figure = go.Figure()
    for bound, (words, color) in BOUNDS.items():
        chosen = [(place, bar) for place, bar in enumerate(bars) if bar.shares.get(bound)]
        if not chosen:
            continue
        values = [bar.shares[bound] for _, bar in chosen]
        figure.add_bar(
            name=words, orientation="h", x=values, y=[place for place, _ in chosen],
            marker={"color": color, "line": {"width": 0}, "pattern": {"shape": "/" if bound == "unknown" else ""}},
            text=[f"{value:.0%}" if value >= _ROOM and bound != "unknown" else "" for value in values],
            textposition="inside", insidetextanchor="middle", textangle=0,
            customdata=[[bar.cell_id, f"<b>{bar.place}</b><br>{words}: {bar.shares[bound]:.1%}"] for _, bar in chosen],
            hovertemplate="%{customdata[1]}<extra></extra>",
        )  # fmt: skip
    labels = [folded(bar.place) for bar in bars]
    row = row_pixels(labels, least=36)
    height = chart_pixels(len(bars), row=row, entries=len(figure.data), squeezed=row)
    figure.update_layout(**layout(height=height, state="bounds"), **STACKED, margin_r=18)
    figure.update_xaxes(
        title="Share of the step", range=[0, 1], tickformat=".0%", tickangle=0, tickvals=[0, 0.25, 0.5, 0.75, 1]
    )
    figure.update_yaxes(
        tickvals=list(range(len(bars))), ticktext=labels, range=[len(bars) - 0.4, -0.6],
        automargin=True, zeroline=False, showgrid=False,
    )  # fmt: skip
    return figure
