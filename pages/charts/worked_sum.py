"""Which tensors make up the memory that was not there? One bar a tensor, each beginning where the one above ends.

figure = worked_sum_bars([("scores", "B × S² × 4 bytes", 8 * 2**30)], limit_bytes=16 * 2**30)
"""

from collections.abc import Sequence

import plotly.graph_objects as go

from pages.charts.bytes import in_unit, unit_for
from pages.charts.colors import RED, color_of
from pages.charts.frame import layout


def worked_sum_bars(tensors: Sequence[tuple[str, str, int]], *, limit_bytes: int | None) -> go.Figure:
    """`tensors` are (name, formula, bytes) of all that is alive at the peak, in order of birth."""
    sizes = [size for _, _, size in tensors]
    total = sum(sizes)
    factor, unit = unit_for([total])
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    names = [f"{name}<br>{formula}" for name, formula, _ in tensors]
    figure = go.Figure()
    figure.add_bar(
        orientation="h",
        y=[*names, "<b>all together</b>"],
        x=[size / factor for size in (*sizes, total)],
        base=[start / factor for start in (*starts, 0)],
        text=[f" {in_unit(size)}" for size in (*sizes, total)],
        textposition="auto",
        insidetextanchor="middle",
        textangle=0,
        cliponaxis=False,
        marker={"color": [color_of("activation")] * len(sizes) + [color_of("unknown")]},
        hovertemplate="%{y}: %{text}<extra></extra>",
        showlegend=False,
    )
    if limit_bytes:
        figure.add_vline(x=limit_bytes / factor, line={"color": RED, "width": 1.6, "dash": "dash"})
        figure.add_annotation(
            x=limit_bytes / factor, y=1, yref="paper", yanchor="bottom", showarrow=False, xanchor="right",
            text=f"there are {in_unit(limit_bytes)}", font={"color": RED, "size": 12},
        )  # fmt: skip
    figure.update_layout(**{**layout(height=90 + 42 * (len(sizes) + 1), state="worked-sum", legend=False),
                            "margin": {"l": 8, "r": 72, "t": 28, "b": 8}})  # fmt: skip
    figure.update_xaxes(title=f"Alive at the peak ({unit})", rangemode="tozero",
                        range=[0, max(total, limit_bytes or 0) / factor * 1.02])  # fmt: skip
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False)
    return figure
