"""What part of the peak is made use of: a line a step, from the datasheet's share to the measured one's.

figure = utilization_dots([UsedShare(place="small · 512<br>bf16", entity="bf16", measured=0.41, promised=0.31, …)])
"""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.charts.colors import FAINT, FAINTER, color_of
from pages.charts.frame import layout
from pages.charts.rows import chart_pixels, folded, row_pixels


@dataclass(frozen=True, kw_only=True)
class UsedShare:
    """One step: its share of the measured peak of its precision, `entity`, and of the promised one, where known."""

    place: str
    entity: str
    cell_id: str
    measured: float | None
    promised: float | None


def utilization_dots(rows: Sequence[UsedShare]) -> go.Figure:
    """Filled dots are shares of the measured peak, hollow ones of the datasheet's."""
    figure = go.Figure()
    for place, row in enumerate(rows):
        if row.measured and row.promised:
            figure.add_scatter(
                x=[row.promised, row.measured], y=[place, place], mode="lines", showlegend=False, hoverinfo="skip",
                line={"color": FAINT, "width": 2},
            )  # fmt: skip
    for name, symbol in (("measured", "circle"), ("promised", "circle-open")):
        chosen = [(place, row) for place, row in enumerate(rows) if getattr(row, name)]
        if not chosen:
            continue
        words = "of the measured peak" if name == "measured" else "of the datasheet's"
        labelled = name == "measured" or not any(row.measured for _, row in chosen)
        figure.add_scatter(
            name=words, mode="markers+text" if labelled else "markers",
            x=[getattr(row, name) for _, row in chosen], y=[place for place, _ in chosen],
            marker={"symbol": symbol, "size": 10, "color": [color_of(row.entity) for _, row in chosen],
                    "line": {"width": 2, "color": [color_of(row.entity) for _, row in chosen]}},
            text=[f"  {getattr(row, name):.0%}" for _, row in chosen] if labelled else None,
            textposition="middle right", cliponaxis=False,
            customdata=[[row.cell_id, f"<b>{row.place}</b><br>{getattr(row, name):.1%} {words}"] for _, row in chosen],
            hovertemplate="%{customdata[1]}<extra></extra>",
        )  # fmt: skip
    most = max((share for row in rows for share in (row.measured, row.promised) if share), default=1.0)
    labels = [folded(row.place) for row in rows]
    height = chart_pixels(len(rows), row=row_pixels(labels, least=36), entries=2)
    figure.update_layout(**layout(height=max(220, height), state="utilization"), margin_r=44)
    figure.update_xaxes(
        title="Share of the peak (MFU)", range=[0, most * 1.04], tickformat=".0%", tickangle=0, nticks=5
    )
    figure.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=labels, range=[len(rows) - 0.4, -0.6],
        automargin=True, zeroline=False, showgrid=True, gridcolor=FAINTER,
    )  # fmt: skip
    return figure
