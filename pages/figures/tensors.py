"""Measured beside predicted sizes: a dot in a ring, one row each.

figure = size_pairs([SizePair(name="probabilities", predicted=2**20, measured=2**20, color="#7F4BD6")], state="tensors")

Rows without either are left out. Sizes are on a log axis, which shows a few bytes beside gigabytes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.figures.bytes import binary_axis
from pages.figures.colors import QUIET, RED
from pages.figures.frame import layout
from pages.figures.rows import beside, label_rows
from runner.formats import format_bytes, format_number

#: Ratios within this of 1 are "as predicted".
NEAR = 0.02
#: Ratios within this of 1 are not written.
ALIKE = 0.0005


@dataclass(frozen=True, kw_only=True)
class SizePair:
    """Bytes of one thing: predicted and measured; None where unknown."""

    name: str
    predicted: int | None
    measured: int | None
    color: str

    @property
    def ratio(self) -> float | None:
        """Measured over predicted; None unless both are known and something was predicted."""
        return self.measured / self.predicted if self.predicted and self.measured is not None else None

    @property
    def words(self) -> str:
        """The size, and how it compares where it is not as predicted."""
        if self.ratio is not None:
            off = "" if abs(self.ratio - 1) < ALIKE else f" · {format_ratio(self.ratio)}×"
            return f"{format_bytes(self.measured or 0)}{off}"
        if self.measured:
            return f"{format_bytes(self.measured)} · not predicted"
        return f"{format_bytes(self.predicted or 0)} predicted · not measured"


def format_ratio(ratio: float) -> str:
    """Formats a ratio; near 1 with a digit more, and exactly 1 without any."""
    if ratio == 1:
        return "1"
    return f"{ratio:.3f}" if 0.9 < ratio < 1.1 else format_number(ratio)


def size_pairs(pairs: Sequence[SizePair], *, state: str) -> go.Figure:
    """Draws names on the left, sizes and ratios in words on the right."""
    drawn = [pair for pair in pairs if pair.predicted or pair.measured]
    figure = go.Figure()
    rings = [(row, p.name, p.predicted) for row, p in enumerate(drawn) if p.predicted]
    dots = [(row, p.name, p.measured) for row, p in enumerate(drawn) if p.measured]
    ring = {"symbol": "circle-open", "size": 15, "color": QUIET, "line": {"width": 1.8}}
    colors = [pair.color for pair in drawn if pair.measured]
    for name, chosen, marker in (("predicted", rings, ring), ("measured", dots, {"size": 8, "color": colors})):
        figure.add_scatter(
            name=name, mode="markers", x=[size for _, _, size in chosen], y=[row for row, _, _ in chosen],
            marker=marker, customdata=[[words, format_bytes(size)] for _, words, size in chosen],
            hovertemplate=f"<b>%{{customdata[0]}}</b><br>{name} %{{customdata[1]}}<extra></extra>", cliponaxis=False,
        )  # fmt: skip
    sizes = [size for _, _, size in (*rings, *dots)]
    low, high = math.log10(min(sizes)), math.log10(max(sizes))
    room = 0.12 * max(high - low, 1.0)
    figure.update_layout(**layout(height=96 + 24 * len(drawn), state=state))
    figure.update_xaxes(
        **binary_axis(sizes, most=2), title="Size (log)", automargin=True, tickangle=0, range=[low - room, high + room]
    )
    label_rows(figure, [pair.name for pair in drawn])
    beside(figure, {row: _color_words(pair) for row, pair in enumerate(drawn)})
    return figure


def _color_words(pair: SizePair) -> str:
    """Returns the words right of a row; red where measurement and prediction differ."""
    is_near = pair.ratio is not None and abs(pair.ratio - 1) <= NEAR
    return pair.words if is_near else f'<span style="color:{RED}">{pair.words}</span>'
