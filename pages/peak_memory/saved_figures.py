"""What one block keeps for the backward pass, by operation: bars, the largest first.

figure = saved_bars([("softmax in attention", 4 * 2**20)])
"""

from collections.abc import Sequence

import plotly.graph_objects as go

from pages.figures.colors import QUIET, color_of
from pages.figures.frame import escape_text, layout
from runner.formats import format_bytes, unit_for


def saved_bars(kept: Sequence[tuple[str, int]], *, rest: int) -> go.Figure:
    """`kept` are (who, bytes); `rest` is what all others keep together (0: nothing)."""
    rows = [*kept, *([("all others", rest)] if rest else [])]
    factor, unit = unit_for([size for _, size in rows])
    figure = go.Figure()
    figure.add_bar(
        orientation="h",
        y=[escape_text(name) for name, _ in rows],
        x=[size / factor for _, size in rows],
        text=[format_bytes(size) for _, size in rows],
        textposition="outside",
        cliponaxis=False,
        marker={"color": [color_of("activation")] * len(kept) + [QUIET]},
        hovertemplate="%{y}: %{text}<extra></extra>",
    )
    figure.update_layout(**layout(height=90 + 34 * len(rows), state="kept", legend=False))
    figure.update_xaxes(title=f"Kept by one block ({unit})", rangemode="tozero")
    figure.update_xaxes(range=[0, max(size for _, size in rows) / factor * 1.3])
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False)
    return figure
