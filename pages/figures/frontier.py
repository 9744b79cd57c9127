"""Which problems fit? Bars over what grows (sequence length, context, batch), a row for each question.

    figure = frontier_map([FrontierSpan(group="naive · fp32", row="d 64", fits=4096, fails=4160)], [], grows=grows)

A bar reaches to the largest size that fitted; the pale red one begins at the smallest that failed. The largest size
that fits stands right of its row, where no mark can lie on it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.figures.colors import BLUE, RED, SLATE, tint
from pages.figures.frame import layout
from pages.figures.ink import DARK, LIGHT
from pages.figures.rows import beside
from pages.figures.scaling import format_length

Places = Mapping[tuple[str, str], int]


@dataclass(frozen=True, kw_only=True)
class FrontierSpan:
    """The largest size that fits (0: none does) and the smallest that does not (None: none failed)."""

    group: str
    row: str
    fits: int
    fails: int | None
    predicted: int | None = None


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One measured cell: it fitted or ran out of memory."""

    group: str
    row: str
    size: int
    fitted: bool


@dataclass(frozen=True, kw_only=True)
class Grows:
    """What grows along the axis. `unit` is plural: tokens, sequences."""

    title: str
    unit: str
    state: str


def frontier_map(spans: Sequence[FrontierSpan], tried: Sequence[Tried], *, grows: Grows) -> go.Figure:
    """Draws results of `runner frontier` as bars and cells of a sweep as marks. Groups come in the order given."""
    rows: dict[str, dict[str, None]] = {}
    for group, row in [*((span.group, span.row) for span in spans), *((cell.group, cell.row) for cell in tried)]:
        rows.setdefault(group, {})[row] = None
    # Each group has a line of its own for its name, above its rows.
    names: list[tuple[str, str | None]] = [
        (group, row) for group, members in rows.items() for row in (None, *sorted(members, key=_width_of))
    ]
    places = {(group, row): at for at, (group, row) in enumerate(names) if row is not None}
    low, high = _find_ends(spans, tried)
    figure = go.Figure()
    for name, color in (("fits", tint(BLUE, opacity=0.8)), ("does not fit", tint(RED, opacity=0.4))):
        xs: list[float | None] = []
        ys: list[float | None] = []
        for span in spans:
            ends = (low, span.fits or low) if name == "fits" else (span.fails or high, high)
            xs += [*ends, None]
            ys += [places[span.group, span.row]] * 2 + [None]
        figure.add_scatter(name=name, mode="lines", x=xs, y=ys, line={"color": color, "width": 15}, hoverinfo="skip")
    _draw_ends(figure, spans, places, unit=grows.unit)
    _draw_cells(figure, tried, places, unit=grows.unit)
    figure.update_layout(**layout(height=130 + 27 * len(names), state=grows.state))
    _set_axes(figure, names, ends=(low, high), title=grows.title)
    beside(figure, {places[span.group, span.row]: _format_largest(span) for span in spans})
    return figure


def _width_of(row: str) -> int:
    """Returns the number that a row is named after, or 0, so that rows without one keep their order."""
    last = row.rpartition(" ")[2]
    return int(last) if last.isdigit() else 0


def _find_ends(spans: Sequence[FrontierSpan], tried: Sequence[Tried]) -> tuple[float, float]:
    """Returns where the axis begins and ends."""
    sizes = [value for span in spans for value in (span.fits, span.fails, span.predicted) if value]
    sizes += [cell.size for cell in tried]
    return min(sizes, default=1) / 2, max(sizes, default=2) * 1.6


def _set_axes(
    figure: go.Figure, names: Sequence[tuple[str, str | None]], *, ends: tuple[float, float], title: str
) -> None:
    low, high = ends
    ticks = [2**power for power in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]
    ticks = [tick for tick in ticks[:: max(1, math.ceil(len(ticks) / 5))] if tick >= 1]
    figure.update_xaxes(
        type="log", title=title, range=[math.log10(low), math.log10(high)], tickvals=ticks,
        ticktext=[format_length(tick) for tick in ticks], automargin=True, tickangle=0,
    )  # fmt: skip
    for at, (group, row) in enumerate(names):
        if row is None:
            figure.add_annotation(
                text=f"<b>{group}</b>", x=0, xref="paper", xanchor="left", y=at, yshift=-4, showarrow=False
            )
    rows = {at: row for at, (_, row) in enumerate(names) if row is not None}
    figure.update_yaxes(
        tickvals=list(rows), ticktext=list(rows.values()), range=[len(names) - 0.4, -0.6], ticks="",
        automargin=True, showgrid=False, zeroline=False,
    )  # fmt: skip


def _format_largest(span: FrontierSpan) -> str:
    return f"<b>{span.fits:,}</b>" if span.fits else f'<span style="color:{RED}">nothing fits</span>'


def _draw_ends(figure: go.Figure, spans: Sequence[FrontierSpan], places: Places, *, unit: str) -> None:
    """Draws invisible marks at the ends of bars, for their tooltips, and marks at predicted sizes."""
    figure.add_scatter(
        name="largest that fits", mode="markers", showlegend=False, x=[span.fits or None for span in spans],
        y=[places[span.group, span.row] for span in spans], marker={"size": 15, "opacity": 0},
        hovertemplate=f"fits: %{{x:,}} {unit}<extra></extra>",
    )  # fmt: skip
    predicted = [span for span in spans if span.predicted]
    figure.add_scatter(
        name="predicted", mode="markers", x=[span.predicted for span in predicted],
        y=[places[span.group, span.row] for span in predicted],
        marker={"symbol": "diamond-tall", "size": 16, "color": DARK, "line": {"width": 1.5, "color": LIGHT}},
        hovertemplate=f"predicted: %{{x:,}} {unit}<extra></extra>",
    )  # fmt: skip


def _draw_cells(figure: go.Figure, tried: Sequence[Tried], places: Places, *, unit: str) -> None:
    for fitted, name, symbol, color in ((True, "measured", "circle", SLATE), (False, "out of memory", "x", RED)):
        chosen = [cell for cell in tried if cell.fitted is fitted]
        if chosen:
            figure.add_scatter(
                name=name, mode="markers", x=[cell.size for cell in chosen],
                y=[places[cell.group, cell.row] for cell in chosen],
                marker={"symbol": symbol, "size": 9, "color": color, "line": {"width": 1, "color": LIGHT}},
                hovertemplate=f"%{{x:,}} {unit}: {name}<extra></extra>",
            )  # fmt: skip
