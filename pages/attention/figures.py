"""Which tensors make up the peak? One bar a tensor, each beginning where the one above ends.

figure = peak_breakdown_bars([("scores", "B × S² × 4 bytes", 8 * 2**30)], limit_bytes=16 * 2**30)
"""

from collections.abc import Sequence

import plotly.graph_objects as go

from pages.figures.colors import RED, color_of
from pages.figures.frame import layout
from pages.figures.rows import BAR, beside, label_rows
from runner.formats import format_bytes, unit_for


def peak_breakdown_bars(tensors: Sequence[tuple[str, str, int]], *, limit_bytes: int | None) -> go.Figure:
    """Draws `tensors`, (name, formula, bytes) of all that is alive at the peak, in order of allocation."""
    sizes = [size for _, _, size in tensors]
    total = sum(sizes)
    factor, unit = unit_for([total])
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    names = [*(f"{name}<br>{formula}" for name, formula, _ in tensors), "<b>all together</b>"]
    figure = go.Figure()
    figure.add_bar(
        name="tensors", orientation="h", y=list(range(len(names))), x=[size / factor for size in (*sizes, total)],
        base=[start / factor for start in (*starts, 0)], width=BAR, customdata=names, showlegend=False,
        marker={"color": [color_of("activation")] * len(sizes) + [color_of("unknown")]},
        hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip
    if limit_bytes:
        figure.add_vline(x=limit_bytes / factor, line={"color": RED, "width": 1.6, "dash": "dash"})
        figure.add_annotation(
            x=limit_bytes / factor, y=1, yref="paper", yanchor="bottom", showarrow=False, xanchor="right",
            text=f"there are {format_bytes(limit_bytes)}", font={"color": RED, "size": 12},
        )  # fmt: skip
    figure.update_layout(**layout(height=90 + 36 * len(names), state="worked-sum", legend=False), margin_t=28)
    figure.update_xaxes(title=f"Alive at the peak ({unit})", rangemode="tozero",
                        range=[0, max(total, limit_bytes or 0) / factor * 1.02], nticks=6, tickangle=0)  # fmt: skip
    label_rows(figure, names, edge=0.5, showgrid=False, ticks="")
    beside(figure, {at: format_bytes(size) for at, size in enumerate((*sizes, total))})
    return figure
