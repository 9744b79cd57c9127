"""What a peak of memory is made of: stacked bars, one a cell, in the colors of the categories.

    figure = part_bars([PeakBar(group="toy-64", place="128 · fp32", parts={"parameter": 1.4e6}, …)], state="parts")

A failed cell keeps its row, with its reason instead of a bar.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import plotly.graph_objects as go

from pages.figures.colors import QUIET, color_of
from pages.figures.frame import layout
from pages.figures.marks import color_failures, hover_cells, write_ends
from pages.figures.rows import BAR, chart_pixels, under_headings
from runner.formats import format_bytes, unit_for

#: The categories in the plural.
CATEGORY_WORDS = {
    "parameter": "parameters",
    "gradient": "gradients",
    "optimizer state": "optimizer state",
    "activation": "activations",
    "autocast copy": "autocast copies",
    "input": "inputs",
    "temporary": "temporaries",
    "workspace": "workspace",
    "rounding": "rounding",
    "unknown": "unexplained",
    "fragmentation": "fragmentation",
}
#: Bytes that CUDA's allocator adds to the requested sizes, and their patterns.
ALLOCATOR = {"rounding": ".", "fragmentation": "/"}


@dataclass(frozen=True, kw_only=True)
class PeakBar:
    """One cell. `parts` are bytes by category; `total` is the peak of live tensors."""

    group: str
    place: str
    cell_id: str
    parts: dict[str, int] = field(default_factory=dict)
    total: int = 0
    failure: str | None = None


def part_bars(bars: Sequence[PeakBar], *, state: str) -> go.Figure:
    """Draws the bars. Parts without a byte in any cell are left out. A negative residual, where parts come to more than
    the peak, goes from zero to the left."""
    ends = [sum(max(size, 0) for size in bar.parts.values()) for bar in bars]
    least = min((size for bar in bars for size in bar.parts.values()), default=0)
    factor, unit = unit_for(ends)
    rows = under_headings([bar.group for bar in bars], [bar.place for bar in bars])
    figure = go.Figure()
    for category, words in CATEGORY_WORDS.items():
        chosen = [(at, bar) for at, bar in zip(rows.at, bars, strict=True) if bar.parts.get(category)]
        if not chosen:
            continue
        figure.add_bar(
            name=words,
            orientation="h",
            y=[at for at, _ in chosen],
            x=[bar.parts[category] / factor for _, bar in chosen],
            width=BAR,
            marker={"color": QUIET if category in ALLOCATOR else color_of(category), "line": {"width": 0},
                    "pattern": {"shape": ALLOCATOR.get(category, ""), "size": 6, "solidity": 0.25}},
            **hover_cells((bar.cell_id, _describe(bar, category)) for _, bar in chosen),
        )  # fmt: skip
    write_ends(
        figure,
        x=[end / factor for end in ends],
        y=rows.at,
        text=[f" ✕ {bar.failure}" if bar.failure else f"  {_describe_total(bar)}" for bar in bars],
        textfont=color_failures(bar.failure for bar in bars),
    )
    height = chart_pixels(rows.count, row=27, entries=len(figure.data) - 1, squeezed=24)
    figure.update_layout(**layout(height=height, state=state), barmode="relative")
    figure.update_layout(margin_r=68)
    figure.update_xaxes(
        title=f"Alive at the peak ({unit})",
        range=[min(least, 0) / factor * 1.1, max(ends, default=1) / factor * _find_room(bars) or 1],
        nticks=6,
        tickangle=0,
    )
    rows.draw(figure)
    return figure


def _find_room(bars: Sequence[PeakBar]) -> float:
    """Returns the axis's length over the longest bar's: most labels fit the margin, one with more than a size does
    not."""
    return 1.6 if any(_has_excess(bar) for bar in bars) else 1.02


def _describe_total(bar: PeakBar) -> str:
    """Says the peak, and by how much the parts come to more: at this scale it may be less than a pixel."""
    excess = f" (parts are {format_bytes(-bar.parts['unknown'])} more)" if _has_excess(bar) else ""
    return f"{format_bytes(bar.total)}{excess}"


def _has_excess(bar: PeakBar) -> bool:
    return bar.parts.get("unknown", 0) < 0


def _describe(bar: PeakBar, category: str) -> str:
    size = bar.parts[category]
    return (
        f"<b>{bar.group} · {bar.place}</b><br>{CATEGORY_WORDS[category]}: {format_bytes(size)}"
        f"<br>{size / max(bar.total, 1):.1%} of the peak of {format_bytes(bar.total)}"
    )
