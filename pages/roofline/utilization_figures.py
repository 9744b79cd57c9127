"""What part of the peak is made use of: a line a step, from the datasheet's share to the measured one's.

figure = utilization_dots([UsedShare(place="small · 512<br>bf16", entity="bf16", measured=0.41, promised=0.31, …)])
"""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.figures.colors import FAINT, FAINTER, color_of
from pages.figures.frame import layout
from pages.figures.rows import beside, chart_pixels, under_headings, wrap_label


@dataclass(frozen=True, kw_only=True)
class UsedShare:
    """One step: its share of the measured peak of its precision, `entity`, and of the promised one, where known."""

    place: str
    entity: str
    cell_id: str
    measured: float | None
    promised: float | None


def utilization_dots(rows: Sequence[UsedShare]) -> go.Figure:
    """Filled dots are shares of the measured peak, hollow ones of the datasheet's; rows of one size and context stand
    under its name, in the order in which they come."""
    groups = [row.place.partition("<br>")[0] for row in rows]
    order = sorted(range(len(rows)), key=lambda index: groups.index(groups[index]))
    rows = [rows[index] for index in order]
    placed = under_headings(
        [groups[index] for index in order], [wrap_label(row.place.partition("<br>")[2]) for row in rows]
    )
    figure = go.Figure()
    both = [(at, row) for at, row in zip(placed.at, rows, strict=True) if row.measured and row.promised]
    figure.add_scatter(
        x=[share for _, row in both for share in (row.promised, row.measured, None)], mode="lines", showlegend=False,
        y=[place for at, _ in both for place in (at, at, None)], hoverinfo="skip", line={"color": FAINT, "width": 2},
    )  # fmt: skip
    for name, symbol in (("measured", "circle"), ("promised", "circle-open")):
        chosen = [(at, row) for at, row in zip(placed.at, rows, strict=True) if getattr(row, name)]
        if not chosen:
            continue
        words = "of the measured peak" if name == "measured" else "of the datasheet's"
        figure.add_scatter(
            name=words, mode="markers", x=[getattr(row, name) for _, row in chosen], y=[at for at, _ in chosen],
            marker={"symbol": symbol, "size": 10, "color": [color_of(row.entity) for _, row in chosen],
                    "line": {"width": 2, "color": [color_of(row.entity) for _, row in chosen]}},
            customdata=[[row.cell_id, f"<b>{row.place}</b><br>{getattr(row, name):.1%} {words}"] for _, row in chosen],
            hovertemplate="%{customdata[1]}<extra></extra>", cliponaxis=False,
        )  # fmt: skip
    height = chart_pixels(placed.count, row=28, entries=2, squeezed=28)
    figure.update_layout(**layout(height=max(200, height), state="utilization"))
    figure.update_xaxes(
        title="Share of the peak (MFU)", range=[0, _reach(rows)], tickformat=".0%", tickangle=0, nticks=5
    )
    placed.draw(figure)
    figure.update_yaxes(showgrid=True, gridcolor=FAINTER)
    shares = {at: f"{row.measured or row.promised or 0:.0%}" for at, row in zip(placed.at, rows, strict=True)}
    beside(figure, shares)
    return figure


def _reach(rows: Sequence[UsedShare]) -> float:
    return max((share for row in rows for share in (row.measured, row.promised) if share), default=1.0) * 1.04
