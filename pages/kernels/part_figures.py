"""Parts of a time: the busy share of a step, ranges inside attention, and what separates one time from another.

    figure = busy_bars([BusyBar(group="small", place="512 · train", cell_id="…", busy=0.93, label="+4%")], names=…)
    figure = range_bars([RangeBar(name="softmax", entity="softmax", device_ms=1.2, flops=5_000_000)])
    figure = waterfall([("matrix products", "matmul", -11.0)], ends=(("fp32", 24.0), ("bf16", 13.0)), state="x")

The parts of a waterfall must add up to the difference of the two ends, else it raises an AssertionError.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.figures.colors import FAINT, SLATE, STRONG, color_of
from pages.figures.frame import escape_text, layout
from pages.figures.ink import ink_on
from pages.figures.marks import write_ends
from pages.figures.rows import BAR, STACKED, chart_pixels, under_headings, wrap_label
from runner.formats import format_ms, format_number, format_quantity

#: If the smaller end is more than this share of the larger, the axis does not begin at 0, where nothing differs.
_CLOSE = 0.8
End = tuple[str, float]


@dataclass(frozen=True, kw_only=True)
class BusyBar:
    """One cell. `busy` is a share of its step; `label` stands beside the bar."""

    group: str
    place: str
    cell_id: str
    busy: float
    label: str


def busy_bars(bars: Sequence[BusyBar], *, names: tuple[str, str]) -> go.Figure:
    """Draws the bars; `names` are words for busy time and for the rest."""
    rows = under_headings([bar.group for bar in bars], [wrap_label(bar.place) for bar in bars])
    figure = go.Figure()
    for name, color, shares in (
        (names[0], color_of("step"), [min(bar.busy, 1.0) for bar in bars]),
        (names[1], FAINT, [max(0.0, 1 - bar.busy) for bar in bars]),
    ):
        figure.add_bar(
            name=name, orientation="h", y=rows.at, x=[share * 100 for share in shares], width=BAR,
            marker={"color": color, "line": {"width": 0}}, textposition="inside", insidetextanchor="start",
            textfont={"color": STRONG if color == FAINT else ink_on(color)},
            text=[f"{share:.0%}" if share >= 0.1 else "" for share in shares], textangle=0,
            customdata=[[bar.cell_id] for bar in bars], hovertemplate=f"{name}: %{{x:.1f}} %<extra></extra>",
        )  # fmt: skip
    write_ends(figure, x=[100] * len(bars), y=rows.at, text=[f"  {bar.label}" for bar in bars])
    height = chart_pixels(rows.count, row=28, entries=2)
    figure.update_layout(**layout(height=height, state="busy"), **STACKED, margin_r=56)
    figure.update_xaxes(title="Share of the step (%)", range=[0, 100], tickvals=[0, 25, 50, 75, 100], tickangle=0)
    rows.draw(figure)
    return figure


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


def waterfall(changes: Sequence[tuple[str, str, float]], *, ends: tuple[End, End], state: str) -> go.Figure:
    """Draws `changes`, (words, entity that gives the color or nothing, ms), between `ends`, the two totals in ms."""
    (first, before), (last, after) = ends
    steps = [before]
    for _, _, change in changes:
        steps.append(steps[-1] + change)
    assert math.isclose(steps[-1], after, rel_tol=1e-9, abs_tol=1e-9), f"{steps[-1]} is not {after}"
    begins = _find_beginning([*steps, after])
    places = list(range(len(changes) + 2))
    texts = [format_ms(before), *(_format_signed(change) for _, _, change in changes), format_ms(after)]
    figure = go.Figure()
    figure.add_bar(
        orientation="h",
        y=places,
        base=[begins, *steps[:-1], begins],
        x=[before - begins, *(change for _, _, change in changes), after - begins],
        marker={"color": [SLATE, *(color_of(entity) if entity else FAINT for _, entity, _ in changes), SLATE]},
        customdata=texts,
        hovertemplate="%{customdata}<extra></extra>",
        showlegend=False,
    )
    high = [max(before, begins), *(max(pair) for pair in itertools.pairwise(steps)), after]
    write_ends(figure, x=high, y=places, text=[f" {text}" for text in texts])
    names = [escape_text(name) for name in (first, *(words for words, _, _ in changes), last)]
    labels = [f"<b>{names[0]}</b>", *names[1:-1], f"<b>{names[-1]}</b>"]
    figure.update_layout(**layout(height=90 + 30 * len(places), state=state, legend=False), margin_r=76)
    cut = "; the axis does not begin at 0" if begins else ""
    low = min(begins, *steps)
    figure.update_xaxes(
        title=f"Time of a step (ms{cut})", range=[low, low + (max(high) - low) * 1.02], nticks=6, tickangle=0
    )
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False, tickvals=places, ticktext=labels)
    return figure


def _find_beginning(steps: Sequence[float]) -> float:
    """Returns where the axis begins: at 0, unless everything happens far from it."""
    low, high = min(steps), max(steps)
    return 0.0 if low < _CLOSE * high else max(0.0, low - 1.5 * (high - low) - 0.02 * high)


def _format_signed(value: float) -> str:
    return f"{'+' if value > 0 else '−' if value < 0 else '±'}{format_number(abs(value))} ms"
