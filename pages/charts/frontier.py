"""Which problems fit? A map over the sequence length, a row a head width, for every implementation and precision.

    figure = frontier_map([FrontierSpan(group="naive · fp32", d_head=64, fits=4096, fails=4160, …)], tried=[])

A bar reaches as far as something was seen to fit; the pale red one begins at the first length that was seen to fail.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.charts.colors import BLUE, QUIET, RED, SLATE, tint
from pages.charts.frame import layout


@dataclass(frozen=True, kw_only=True)
class FrontierSpan:
    """The longest sequence that fits (0: none does) and the shortest that does not (None: none failed)."""

    group: str
    d_head: int
    fits: int
    fails: int | None
    predicted: int | None = None


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One measured cell: it fitted, or it ran out."""

    group: str
    d_head: int
    seq_len: int
    fitted: bool


def frontier_map(spans: Sequence[FrontierSpan], tried: Sequence[Tried]) -> go.Figure:
    """Bars are the answers of `runner frontier`; marks are cells that a sweep tried."""
    present = {(span.group, span.d_head) for span in spans} | {(cell.group, cell.d_head) for cell in tried}
    rows = sorted(present, key=lambda row: (not row[0].startswith("naive"), *row))
    groups = list(dict.fromkeys(group for group, _ in rows))
    # Each group has a line of its own for its name, above its rows.
    places = {row: index + groups.index(row[0]) + 1 for index, row in enumerate(rows)}
    height = len(rows) + len(groups)
    lengths = [value for span in spans for value in (span.fits, span.fails, span.predicted) if value]
    lengths += [cell.seq_len for cell in tried]
    low, high = min(lengths) / 2, max(lengths) * 1.6
    figure = go.Figure()
    for name, color in (("fits", tint(BLUE, opacity=0.75)), ("does not fit", tint(RED, opacity=0.3))):
        xs: list[float | None] = []
        ys: list[float | None] = []
        for span in spans:
            ends = (low, span.fits or low) if name == "fits" else (span.fails or high, high)
            xs += [*ends, None]
            ys += [places[span.group, span.d_head]] * 2 + [None]
        figure.add_scatter(name=name, mode="lines", x=xs, y=ys, line={"color": color, "width": 15}, hoverinfo="skip")
    _marks(figure, spans, tried, places)
    figure.update_layout(**layout(height=130 + 27 * height, state="frontier"))
    ticks = [2**power for power in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]
    ticks = ticks[:: max(1, math.ceil(len(ticks) / 5))]
    figure.update_xaxes(
        type="log", title="Sequence length (tokens)", range=[math.log10(low), math.log10(high)], tickvals=ticks,
        ticktext=[f"{tick:,}" for tick in ticks], automargin=True, tickangle=0,
    )  # fmt: skip
    for group in groups:
        above = min(place for (name, _), place in places.items() if name == group) - 1
        figure.add_annotation(text=f"<b>{group}</b>", x=0, xref="paper", xanchor="left", y=above, yshift=-4,
                              showarrow=False)  # fmt: skip
    figure.update_yaxes(
        tickvals=list(places.values()), ticktext=[f"d {d_head}" for _, d_head in places], range=[height - 0.4, -0.6],
        automargin=True, title="", showgrid=False, zeroline=False,
    )  # fmt: skip
    return figure


def _marks(
    figure: go.Figure, spans: Sequence[FrontierSpan], tried: Sequence[Tried], places: dict[tuple[str, int], int]
) -> None:
    figure.add_scatter(
        name="longest that fits", mode="text", showlegend=False, hoverinfo="skip",
        x=[span.fits for span in spans if span.fits], y=[places[s.group, s.d_head] for s in spans if s.fits],
        text=[f"{span.fits:,} " for span in spans if span.fits], textposition="middle left",
        textfont={"color": "#FFFFFF", "size": 12},
    )  # fmt: skip
    predicted = [span for span in spans if span.predicted]
    figure.add_scatter(
        name="predicted", mode="markers", x=[span.predicted for span in predicted],
        y=[places[span.group, span.d_head] for span in predicted],
        marker={"symbol": "line-ns", "size": 16, "line": {"width": 2.5, "color": QUIET}},
        hovertemplate="predicted: %{x:,} tokens<extra></extra>",
    )  # fmt: skip
    for fitted, name, symbol, color in ((True, "measured", "circle", SLATE), (False, "out of memory", "x", RED)):
        chosen = [cell for cell in tried if cell.fitted is fitted]
        if chosen:
            figure.add_scatter(
                name=name, mode="markers", x=[cell.seq_len for cell in chosen],
                y=[places[cell.group, cell.d_head] for cell in chosen],
                marker={"symbol": symbol, "size": 8 if fitted else 9, "color": color},
                hovertemplate=f"%{{x:,}} tokens: {name}<extra></extra>",
            )  # fmt: skip
