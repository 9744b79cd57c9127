"""Shares of a step that each limit binds, and shares of the peak that steps reach; a row a step.

figure = bound_bars([BoundBar(place="small · 512 tok<br>bf16", shares={"compute": 0.4, …})])
figure = utilization_dots([UsedShare(place="small · 512<br>bf16", entity="bf16", measured=0.41, promised=0.31, …)])
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.figures.colors import BLUE, FAINT, FAINTER, GREEN, ORANGE, QUIET, color_of
from pages.figures.frame import layout
from pages.figures.ink import ink_on
from pages.figures.marks import hover_cells
from pages.figures.rows import BAR, STACKED, beside, chart_pixels, under_headings, wrap_label

#: Words and color of each share, in the order of drawing.
BOUNDS: Mapping[str, tuple[str, str]] = {
    "compute": ("compute-bound", BLUE),
    "memory": ("memory-bound", GREEN),
    "launch": ("device waits for the host", ORANGE),
    "unknown": ("unknown", QUIET),
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
    """Draws one bar a step, those of one size and context under its name. Shares that no step has are not in the
    legend."""
    places = [bar.place.partition("<br>") for bar in bars]
    rows = under_headings([group for group, _, _ in places], [wrap_label(rest) for _, _, rest in places])
    figure = go.Figure()
    for bound, (words, color) in BOUNDS.items():
        chosen = [(at, bar) for at, bar in zip(rows.at, bars, strict=True) if bar.shares.get(bound)]
        if not chosen:
            continue
        values = [bar.shares[bound] for _, bar in chosen]
        texts = [f"<b>{bar.place}</b><br>{words}: {bar.shares[bound]:.1%}" for _, bar in chosen]
        is_known = bound != "unknown"
        figure.add_bar(
            name=words, orientation="h", x=values, y=[at for at, _ in chosen], width=BAR,
            marker={"color": color, "line": {"width": 0},
                    "pattern": {"shape": "" if is_known else "/", "size": 6, "solidity": 0.25}},
            text=[f"{value:.0%}" if value >= _ROOM and is_known else "" for value in values],
            textfont={"color": ink_on(color)} if is_known else None,
            textposition="inside", insidetextanchor="middle", textangle=0,
            **hover_cells((bar.cell_id, text) for (_, bar), text in zip(chosen, texts, strict=True)),
        )  # fmt: skip
    height = chart_pixels(rows.count, row=29, entries=len(figure.data), squeezed=28)
    figure.update_layout(**layout(height=height, state="bounds"), **STACKED, margin_r=18)
    figure.update_xaxes(
        title="Share of the step", range=[0, 1], tickformat=".0%", tickangle=0, tickvals=[0, 0.25, 0.5, 0.75, 1]
    )
    rows.draw(figure)
    return figure


@dataclass(frozen=True, kw_only=True)
class UsedShare:
    """One step: its share of the measured peak of its precision, `entity`, and of the datasheet's, where known."""

    place: str
    entity: str
    cell_id: str
    measured: float | None
    promised: float | None


def utilization_dots(rows: Sequence[UsedShare]) -> go.Figure:
    """Draws shares of the measured peak as filled dots, of the datasheet's as hollow ones; rows of one size and context
    stand under its name, in the order given."""
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
        values, colors = [getattr(row, name) for _, row in chosen], [color_of(row.entity) for _, row in chosen]
        texts = [f"<b>{row.place}</b><br>{getattr(row, name):.1%} {words}" for _, row in chosen]
        figure.add_scatter(
            name=words, mode="markers", x=values, y=[at for at, _ in chosen], cliponaxis=False,
            marker={"symbol": symbol, "size": 10, "color": colors, "line": {"width": 2, "color": colors}},
            **hover_cells((row.cell_id, text) for (_, row), text in zip(chosen, texts, strict=True)),
        )  # fmt: skip
    height = chart_pixels(placed.count, row=28, entries=2, squeezed=28)
    figure.update_layout(**layout(height=max(200, height), state="utilization"))
    figure.update_xaxes(
        title="Share of the peak (MFU)", range=[0, _find_reach(rows)], tickformat=".0%", tickangle=0, nticks=5
    )
    placed.draw(figure)
    figure.update_yaxes(showgrid=True, gridcolor=FAINTER)
    shares = {at: f"{row.measured or row.promised or 0:.0%}" for at, row in zip(placed.at, rows, strict=True)}
    beside(figure, shares)
    return figure


def _find_reach(rows: Sequence[UsedShare]) -> float:
    return max((share for row in rows for share in (row.measured, row.promised) if share), default=1.0) * 1.04
