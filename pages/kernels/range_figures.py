"""What ranges take, of the time and of the FLOPs: two bars a range, side by side.

figure = range_bars([RangeBar(name="softmax", entity="softmax", device_ms=1.2, flops=5_000_000)])
"""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.figures.colors import color_of
from pages.figures.frame import escape_text, layout
from runner.formats import format_number, format_quantity


@dataclass(frozen=True, kw_only=True)
class RangeBar:
    """One range; `entity` gives its color; `flops` is None where they were not counted."""

    name: str
    entity: str
    device_ms: float
    flops: int | None


def range_bars(bars: Sequence[RangeBar]) -> go.Figure:
    """Draws shares of all these ranges together; FLOPs are hatched, and left out where no range's are known."""
    names = [escape_text(bar.name) for bar in bars]
    colors = [color_of(bar.entity) for bar in bars]
    total_ms, flops = sum(bar.device_ms for bar in bars) or 1.0, [bar.flops for bar in bars if bar.flops is not None]
    figure = go.Figure()
    figure.add_bar(
        name="share of the time", orientation="h", y=names, x=[bar.device_ms * 100 / total_ms for bar in bars],
        text=[f"{_format_share(bar.device_ms / total_ms)} · {format_number(bar.device_ms)} ms" for bar in bars],
        textposition="outside", cliponaxis=False, marker={"color": colors}, hoverinfo="skip",
    )  # fmt: skip
    if sum(flops):
        figure.add_bar(
            name="share of the FLOPs", orientation="h", y=names, hoverinfo="skip", textposition="outside",
            x=[(bar.flops or 0) * 100 / sum(flops) for bar in bars], cliponaxis=False,
            text=[_format_flops(bar.flops, whole=sum(flops)) for bar in bars],
            marker={"color": colors, "pattern": {"shape": "/", "fillmode": "overlay", "size": 6}},
        )  # fmt: skip
    figure.update_layout(**layout(height=110 + 54 * len(bars), state="ranges"), barmode="group")
    most = max([bar.device_ms / total_ms for bar in bars] + [count / (sum(flops) or 1) for count in flops], default=1.0)
    figure.update_xaxes(title="Share (%)", range=[0, most * 160], nticks=6, tickangle=0)
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False)
    return figure


def _format_flops(flops: int | None, *, whole: int) -> str:
    return "not counted" if flops is None else f"{_format_share(flops / whole)} · {format_quantity(flops, 'FLOP')}"


def _format_share(value: float) -> str:
    """Formats whole percents, and those below ten with a digit more."""
    return f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"
