"""What time is made of, by class of kernel: stacked bars of time or of share; and kernels by name.

    figure = class_bars([ClassBar(group="small", place="train", cell_id="…", parts={"matmul": 21.0})], view="share")
    figure = kernel_bars([NamedKernel(name="ampere_sgemm_128x64_tn", kernel_class="matmul", device_ms=20.1, calls=96)])

A failed cell keeps its place, with its reason instead of a bar. Names come from files of other people: they are shown,
never interpreted.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal

import plotly.graph_objects as go

from pages.charts.colors import FAINT, QUIET, RED, color_of
from pages.charts.frame import layout, number
from runner.schema import KernelClass

View = Literal["time", "share"]

#: Words for the classes, in the order of stacking.
CLASS_WORDS: Mapping[KernelClass, str] = {
    "matmul": "matrix products",
    "attention": "fused attention",
    "softmax": "softmax",
    "normalisation": "normalization",
    "elementwise": "elementwise",
    "reduction": "reductions",
    "optimizer": "optimizer",
    "copy or cast": "copies and casts",
    "other": "other",
}

_NAMES_LENGTH = 46
#: On a narrow screen the entries stand one below the other; half of the chart's height would not hold them.
_LEGEND_PIXELS = 200
#: What a PyTorch kernel is made for stands in its template's arguments, not in its name.
_PURPOSE = re.compile(r"(\w+?)(?:Functor|Ops|_kernel_cuda|_kernel_impl)\b")


@dataclass(frozen=True, kw_only=True)
class ClassBar:
    """One phase or one cell. `parts` are ms by class. `group` is text of our own and may hold `<br>`."""

    place: str
    cell_id: str
    group: str = ""
    parts: Mapping[KernelClass, float] = field(default_factory=dict)
    failure: str | None = None

    @property
    def whole(self) -> float:
        return sum(self.parts.values())


@dataclass(frozen=True, kw_only=True)
class NamedKernel:
    """One kernel: its own time and calls, and its share of the phase."""

    name: str
    kernel_class: KernelClass
    device_ms: float
    calls: float
    share: float


def class_bars(bars: Sequence[ClassBar], *, view: View, state: str) -> go.Figure:
    """The chart. At the end of a bar: its time; of a share, that of the matrix products stands inside."""
    scale = [1.0 if view == "time" else 100 / (bar.whole or 1.0) for bar in bars]
    figure = go.Figure()
    for name, words in CLASS_WORDS.items():
        if not any(bar.parts.get(name) for bar in bars):
            continue
        # Every bar is in every trace, so that the places keep their order.
        shown = [bar.parts.get(name, 0.0) * factor for bar, factor in zip(bars, scale, strict=True)]
        is_share = view == "share" and name == "matmul"
        figure.add_bar(
            name=words,
            orientation="h",
            y=_axis(bars),
            x=shown,
            marker={"color": color_of(name), "line": {"width": 0}},
            text=[f"{share:.0f} %" if share >= 5 else "" for share in shown] if is_share else None,
            textposition="inside",
            insidetextanchor="start",
            textfont={"color": "#FFFFFF"},
            customdata=[[bar.cell_id, _hover(bar, name)] for bar in bars],
            hovertemplate="%{customdata[1]}<extra></extra>",
        )
    _ends(figure, bars, view=view)
    most = max((bar.whole for bar in bars), default=0.0) or 1.0
    figure.update_layout(**layout(height=170 + 27 * len(bars), state=f"{state}-{view}"), barmode="stack")
    figure.update_layout(legend_maxheight=_LEGEND_PIXELS)
    figure.update_xaxes(
        title="Time (ms)" if view == "time" else "Share (%)",
        range=[0, most * 1.2] if view == "time" else [0, 102],
        tickvals=None if view == "time" else [0, 25, 50, 75, 100],
        automargin=True,
    )
    figure.update_yaxes(
        autorange="reversed", automargin=True, title="", ticks="", showgrid=False, dividercolor=FAINT,
        type="multicategory" if any(bar.group for bar in bars) else "category",
    )  # fmt: skip
    return figure


def _ends(figure: go.Figure, bars: Sequence[ClassBar], *, view: View) -> None:
    """The time of every bar; for a failed cell, how it ended."""
    shown = [bar for bar in bars if view == "time" or bar.failure]
    figure.add_scatter(
        mode="text",
        y=_axis(shown),
        x=[bar.whole if view == "time" else 0 for bar in shown],
        text=[f" ✕ {bar.failure}" if bar.failure else f"  {number(bar.whole)} ms" for bar in shown],
        textposition="middle right",
        textfont={"size": 12, "color": [RED if bar.failure else QUIET for bar in shown]},
        showlegend=False,
        hoverinfo="skip",
        cliponaxis=False,
    )


def _axis(bars: Sequence[ClassBar]) -> list[list[str]] | list[str]:
    if any(bar.group for bar in bars):
        return [[bar.group for bar in bars], [_plain(bar.place) for bar in bars]]
    return [_plain(bar.place) for bar in bars]


def _hover(bar: ClassBar, name: KernelClass) -> str:
    where = " · ".join(part for part in (bar.group.replace("<br>", " · "), _plain(bar.place)) if part)
    took = bar.parts.get(name, 0.0)
    share = f"{took / (bar.whole or 1):.1%} of {number(bar.whole)} ms"
    return f"<b>{where}</b><br>{CLASS_WORDS[name]}: {number(took)} ms<br>{share}"


def kernel_bars(kernels: Sequence[NamedKernel]) -> go.Figure:
    """One bar a kernel in the color of its class, with its calls and its share at the end."""
    labels = short_names([kernel.name for kernel in kernels])
    places = list(range(len(kernels)))
    figure = go.Figure()
    for name, words in CLASS_WORDS.items():
        chosen = [place for place in places if kernels[place].kernel_class == name]
        if not chosen:
            continue
        figure.add_bar(
            name=words,
            orientation="h",
            y=chosen,
            width=0.72,  # Plotly would make the bars of a class as wide as the gap between them
            x=[kernels[place].device_ms for place in chosen],
            marker={"color": color_of(name), "line": {"width": 0}},
            text=[f"{kernels[place].share:.0%} · {calls(kernels[place].calls)}×" for place in chosen],
            textposition="auto",
            insidetextanchor="end",
            textangle=0,
            cliponaxis=False,
            customdata=[_broken(kernels[place].name) for place in chosen],
            hovertemplate="%{customdata}<br>%{x:.4g} ms<extra></extra>",
        )
    most = max((kernel.device_ms for kernel in kernels), default=0.0) or 1.0
    figure.update_layout(**layout(height=140 + 29 * len(kernels), state="kernels"), barmode="overlay")
    figure.update_layout(legend_maxheight=_LEGEND_PIXELS)
    figure.update_xaxes(title="Time (ms)", range=[0, most * 1.25], automargin=True)
    figure.update_yaxes(
        autorange="reversed", automargin=True, title="", showgrid=False, tickvals=places,
        ticktext=[_plain(label) for label in labels],
    )  # fmt: skip
    return figure


def calls(count: float) -> str:
    """A number of calls; a mean over steps need not be whole."""
    return f"{count:,.0f}" if abs(count - round(count)) < 0.05 else f"{count:,.1f}"


def short_names(names: Sequence[str]) -> list[str]:
    """Names that fit beside a bar, each another."""
    found: dict[str, int] = {}
    short = []
    for name in names:
        text = short_name(name)
        found[text] = found.get(text, 0) + 1
        short.append(text if found[text] == 1 else f"{text} ({found[text]})")
    return short


def short_name(name: str) -> str:
    """`elementwise_kernel · Mul` for the 200 letters that a PyTorch kernel is called; what fits of any other."""
    bare, _, arguments = re.sub(r"\(anonymous namespace\)::|\(unsigned int\)|\((?:int|bool)\)", "", name).partition("<")
    base = bare.partition("(")[0].removeprefix("void ").strip()
    base = base.split("::")[-1] if not name.startswith(("aten::", "[")) else name
    made_for = dict.fromkeys(_PURPOSE.findall(arguments))
    text = " · ".join([base or name, *list(made_for)[:2]])
    return text if len(text) <= _NAMES_LENGTH else f"{text[: _NAMES_LENGTH - 1]}…"


def _broken(name: str) -> str:
    """The whole name in lines that fit a tooltip."""
    lines = [name[start : start + 90] for start in range(0, min(len(name), 540), 90)]
    return "<br>".join(_plain(line) for line in lines) + ("…" if len(name) > 540 else "")


def _plain(text: str) -> str:
    """Text that Plotly shows as it is."""
    return escape(text, quote=False)
