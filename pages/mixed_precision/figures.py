"""What precision costs: errors beside speedups, and sums that drift from the exact line.

figure = price_dots([Price(place="small", precision="bf16", errors={"loss": 4e-6, …}, ratio=1.9, …)], mode="train")
figure = drift_lines([Drift(line="fp16 += fp16", entity="fp16", points=[(1, 2e-6), …])], value=0.01)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from pages.figures.colors import FAINT, QUIET, color_of
from pages.figures.frame import format_interval, format_power_of_ten, layout
from pages.figures.marks import error_bars, hover_cells
from pages.figures.scaling import Dash
from runner.formats import format_number

#: The compared results, and their symbols.
SYMBOLS = {"loss": "circle", "logits": "diamond", "gradients": "square"}
_RATIOS = (0.1, 0.2, 0.5, 1, 2, 4, 8, 16)


@dataclass(frozen=True, kw_only=True)
class Price:
    """One precision at one place. Errors are relative; `ratio` is the speedup of a step over fp32."""

    place: str
    precision: str
    cell_id: str
    errors: Mapping[str, float | None]
    ratio: float | None = None
    low: float | None = None
    high: float | None = None


def price_dots(prices: Sequence[Price], *, mode: str) -> go.Figure:
    """Draws errors on the left, speedups on the right where there are any; places one below the other."""
    lines = _list_lines(prices)
    timed = [price for price in prices if price.ratio]
    widths = [0.6, 0.4] if timed else [1.0]
    figure = make_subplots(cols=len(widths), shared_yaxes=True, column_widths=widths, horizontal_spacing=0.05)
    _draw_errors(figure, prices, lines)
    if timed:
        _draw_ratios(figure, timed, lines, mode=mode)
    figure.update_layout(**layout(height=120 + 30 * len(lines), state="price"))
    figure.update_yaxes(range=[len(lines) - 0.4, -0.6], zeroline=False, showgrid=False, automargin=True)
    named = [at for at, (_, precision) in enumerate(lines) if precision]
    figure.update_yaxes(tickvals=named, ticktext=[lines[at][1] for at in named], col=1)
    for at, (place, precision) in enumerate(lines):
        if not precision:
            figure.add_annotation(
                text=f"<b>{place}</b>", x=0, xref="paper", xanchor="left", y=at, yref="y", showarrow=False,
                font={"size": 12},
            )  # fmt: skip
    return figure


def _list_lines(prices: Sequence[Price]) -> list[tuple[str, str]]:
    """Returns (place, precision) from top to bottom; a line without precision is the place's heading."""
    return [
        line
        for place in dict.fromkeys(price.place for price in prices)
        for line in ((place, ""), *((place, price.precision) for price in prices if price.place == place))
    ]


def _draw_errors(figure: go.Figure, prices: Sequence[Price], lines: Sequence[tuple[str, str]]) -> None:
    sizes = [error for price in prices for error in price.errors.values() if error]
    low, high = math.floor(math.log10(min(sizes, default=1e-8))), math.ceil(math.log10(max(sizes, default=1)))
    ticks = range(low, high + 1, 2 if high - low > 4 else 1)
    for aside, (what, symbol) in zip((0.0, -0.17, 0.17), SYMBOLS.items(), strict=True):
        shown = [price for price in prices if price.errors.get(what) is not None]
        errors = [price.errors[what] or 0 for price in shown]
        figure.add_scatter(
            name=what,
            mode="markers",
            x=[error or 10.0**low for error in errors],  # an error of 0 stands at the left edge
            # Those of logits and gradients are often nearly alike.
            y=[lines.index((price.place, price.precision)) + aside for price in shown],
            marker={"symbol": symbol, "size": 9, "color": [color_of(price.precision) for price in shown]},
            **hover_cells(
                (price.cell_id, f"<b>{price.place} · {price.precision}</b><br>{what} off by {error:.2g}")
                for price, error in zip(shown, errors, strict=True)
            ),
            cliponaxis=False,
            row=1,
            col=1,
        )
    figure.update_xaxes(
        type="log", title="Relative error (log)", range=[low - 0.15, high + 0.15], tickvals=[10.0**at for at in ticks],
        ticktext=[format_power_of_ten(at) for at in ticks], showgrid=False, tickangle=0, row=1, col=1,
    )  # fmt: skip


def _draw_ratios(figure: go.Figure, timed: Sequence[Price], lines: Sequence[tuple[str, str]], *, mode: str) -> None:
    ratios = [(price.ratio or 1.0, price.low, price.high) for price in timed]
    figure.add_scatter(
        name="speedup",
        mode="markers+text",
        x=[ratio for ratio, _, _ in ratios],
        y=[lines.index((price.place, price.precision)) for price in timed],
        marker={"symbol": "line-ns", "size": 12, "line": {"width": 3, "color": [color_of(p.precision) for p in timed]}},
        error_x=error_bars(ratios, color=QUIET),
        text=[f"{format_number(ratio)}×" for ratio, _, _ in ratios],
        textposition="top center",
        textfont={"size": 12},
        **hover_cells((price.cell_id, f"<b>{price.place} · {price.precision}</b><br>"
             f"{format_number(price.ratio or 1)}× the speed of fp32<br>95% interval "
             f"{format_interval(price.low, price.high, unit='×')}") for price in timed),
        cliponaxis=False,
        showlegend=False,
        row=1,
        col=2,
    )  # fmt: skip
    ends = [math.log10(value) for ratio in ratios for value in ratio if value]
    low, high = min([*ends, 0.0]), max([*ends, 0.3])
    room = 0.18 * (high - low)
    ticks = [tick for tick in _RATIOS if low - room <= math.log10(tick) <= high + room]
    ticks = [tick for tick in ticks if tick == 1 or (ticks.index(tick) - ticks.index(1)) % (1 + len(ticks) // 4) == 0]
    figure.add_vline(x=1, line={"color": FAINT, "width": 2}, col=2)
    figure.update_xaxes(
        type="log", title=f"Speedup, {mode} (log)", range=[low - room, high + room], tickvals=ticks, showgrid=False,
        ticktext=[f"{tick:g}×" for tick in ticks], tickangle=0, zeroline=False, row=1, col=2,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SumDrift:
    """A running sum less the exact one, by number of addends. From addend `slips_at` on it grows wrongly."""

    line: str
    entity: str
    points: Sequence[tuple[int, float]]
    dash: Dash = "solid"
    slips_at: int | None = None


def drift_lines(drifts: Sequence[SumDrift], *, value: float) -> go.Figure:
    """Draws the drifts; 0 is the exact line."""
    figure = go.Figure()
    for drift in drifts:
        color = color_of(drift.entity)
        figure.add_scatter(
            name=drift.line,
            mode="lines",
            x=[addend for addend, _ in drift.points],
            y=[off for _, off in drift.points],
            line={"color": color, "width": 2, "dash": drift.dash},
            hovertemplate=f"<b>{drift.line}</b><br>after %{{x:,}}: off by %{{y:.3g}}<extra></extra>",
        )
        slip = [point for point in drift.points if point[0] == drift.slips_at]
        if slip:
            figure.add_annotation(
                x=slip[0][0], y=slip[0][1], text=f"slips from {drift.slips_at:,} on", showarrow=True,
                ax=18, ay=26, xanchor="left", arrowcolor=color, font={"color": color, "size": 12},
            )  # fmt: skip
    figure.add_hline(y=0, line={"color": FAINT, "width": 2})
    figure.update_layout(**layout(height=340, state="drift"))
    longest = max((drift.points[-1][0] for drift in drifts), default=1)
    figure.update_xaxes(title="Additions", range=[0, longest * 1.03], showgrid=False, automargin=True, tickformat=",")
    figure.update_yaxes(
        title=f"Sum − additions × {value:g}", tickformat="~g", automargin=True, gridcolor=FAINT, zeroline=False
    )
    return figure
