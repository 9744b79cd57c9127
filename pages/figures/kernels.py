"""What time is made of: stacked bars by class of kernel, of time or of share; and kernels by name.

    figure = class_bars([ClassBar(group="small", place="train", cell_id="…", parts={"matmul": 21.0})], view="share")
    figure = kernel_bars([NamedKernel(name="ampere_sgemm_128x64_tn", kernel_class="matmul", device_ms=20.1, calls=96)])

A failed cell keeps its row, with its reason instead of a bar. Names come from files of others and are escaped.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import plotly.graph_objects as go

from pages.figures.colors import QUIET, color_of
from pages.figures.frame import escape_text, layout
from pages.figures.ink import ink_on
from pages.figures.marks import color_failures, hover_cells, write_ends
from pages.figures.rows import BAR, STACKED, ChartRows, chart_pixels, under_headings, wrap_label
from runner.formats import cut_text, format_calls, format_number
from runner.results.kernels import CLASS_WORDS
from runner.schema import KernelClass

View = Literal["time", "share"]

#: Letters that fit on a phone: a kernel's name stands above its bar.
_NAMES_LENGTH = 52
#: Names that all kernels of a library share; the template's first argument tells them apart.
_GENERIC = ("Kernel", "Kernel2", "device_kernel")
#: The purpose of a PyTorch kernel is in its template's arguments, not in its name.
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
    """Draws the bars. A bar's time stands at its end; in shares, that of matrix products stands inside."""
    scale = [1.0 if view == "time" else 100 / (bar.whole or 1.0) for bar in bars]
    rows = under_headings([bar.group for bar in bars], [wrap_label(escape_text(bar.place)) for bar in bars])
    figure = go.Figure()
    for name, words in CLASS_WORDS.items():
        if not any(bar.parts.get(name) for bar in bars):
            continue
        shown = [bar.parts.get(name, 0.0) * factor for bar, factor in zip(bars, scale, strict=True)]
        is_share = view == "share" and name == "matmul"
        figure.add_bar(
            name=words,
            orientation="h",
            y=rows.at,
            x=shown,
            width=BAR,
            marker={"color": color_of(name), "line": {"width": 0}},
            text=[f"{share:.0f}%" if share >= 5 else "" for share in shown] if is_share else None,
            textangle=0,
            textposition="inside",
            insidetextanchor="start",
            textfont={"color": ink_on(color_of(name))},
            **hover_cells((bar.cell_id, _describe(bar, name)) for bar in bars),
        )
    _write_times(figure, bars, rows, view=view)
    most = max((bar.whole for bar in bars), default=0.0) or 1.0
    height = chart_pixels(rows.count, row=28, entries=len(figure.data) - 1)
    figure.update_layout(**layout(height=height, state=f"{state}-{view}"), **STACKED)
    figure.update_layout(margin_r=62 if view == "time" else 16)
    figure.update_xaxes(
        title="Time (ms)" if view == "time" else "Share (%)",
        range=[0, most * 1.02] if view == "time" else [0, 100],
        tickvals=None if view == "time" else [0, 25, 50, 75, 100],
        nticks=6,
        tickangle=0,
        automargin=True,
    )
    rows.draw(figure)
    return figure


def _write_times(figure: go.Figure, bars: Sequence[ClassBar], rows: ChartRows, *, view: View) -> None:
    """Writes the time of every bar; for a failed cell, how it ended."""
    shown = [(at, bar) for at, bar in zip(rows.at, bars, strict=True) if view == "time" or bar.failure]
    write_ends(
        figure,
        x=[bar.whole if view == "time" else 0 for _, bar in shown],
        y=[at for at, _ in shown],
        text=[f" ✕ {bar.failure}" if bar.failure else f"  {format_number(bar.whole)} ms" for _, bar in shown],
        textfont=color_failures(bar.failure for _, bar in shown),
    )


def _describe(bar: ClassBar, name: KernelClass) -> str:
    where = " · ".join(part for part in (bar.group.replace("<br>", " · "), escape_text(bar.place)) if part)
    took = bar.parts.get(name, 0.0)
    share = f"{took / (bar.whole or 1):.1%} of {format_number(bar.whole)} ms"
    return f"<b>{where}</b><br>{CLASS_WORDS[name]}: {format_number(took)} ms<br>{share}"


def kernel_bars(kernels: Sequence[NamedKernel]) -> go.Figure:
    """Draws one bar a kernel in the color of its class, below its name, with its share and calls at the end."""
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
            y=[place + 0.2 for place in chosen],
            width=0.42,  # Plotly would make the bars of a class as wide as the gap between them
            x=[kernels[place].device_ms for place in chosen],
            marker={"color": color_of(name), "line": {"width": 0}},
            text=[f"{kernels[place].share:.0%} · {format_calls(kernels[place].calls)}×" for place in chosen],
            textposition="outside",
            textfont={"size": 12, "color": QUIET},
            cliponaxis=False,
            customdata=[_break_name(kernels[place].name) for place in chosen],
            hovertemplate="%{customdata}<br>%{x:.4g} ms<extra></extra>",
        )
    most = max((kernel.device_ms for kernel in kernels), default=0.0) or 1.0
    height = chart_pixels(len(kernels), row=42, entries=len(figure.data), squeezed=36)
    for place, label in enumerate(labels):
        figure.add_annotation(
            text=escape_text(label), x=0, xref="paper", xanchor="left", y=place - 0.2, showarrow=False,
            font={"size": 12},
        )  # fmt: skip
    figure.update_layout(**layout(height=height, state="kernels"), barmode="overlay", margin_r=84)
    figure.update_xaxes(title="Time (ms)", range=[0, most * 1.02], nticks=6, tickangle=0, automargin=True)
    figure.update_yaxes(range=[len(kernels) - 0.5, -0.5], showticklabels=False, showgrid=False, zeroline=False)
    return figure


def short_names(names: Sequence[str]) -> list[str]:
    """Returns different names that fit beside a bar."""
    found: dict[str, int] = {}
    short = []
    for name in names:
        text = short_name(name)
        found[text] = found.get(text, 0) + 1
        short.append(text if found[text] == 1 else f"{text} ({found[text]})")
    return short


def short_name(name: str) -> str:
    """Returns `elementwise_kernel · Mul` for the 200 letters of a PyTorch kernel's name; the beginning of any other."""
    bare, _, arguments = re.sub(r"\(anonymous namespace\)::|\(unsigned int\)|\((?:int|bool)\)", "", name).partition("<")
    base = bare.partition("(")[0].removeprefix("void ").strip()
    base = base.split("::")[-1] if not name.startswith(("aten::", "[")) else name
    if base in _GENERIC:
        base = re.split("[<>,(]", arguments)[0].strip() or base
    made_for = dict.fromkeys(_PURPOSE.findall(arguments))
    text = " · ".join([base or name, *list(made_for)[:2]])
    return cut_text(text, longest=_NAMES_LENGTH)


def _break_name(name: str) -> str:
    """Returns the whole name in lines that fit a tooltip."""
    lines = [name[start : start + 90] for start in range(0, min(len(name), 540), 90)]
    return "<br>".join(escape_text(line) for line in lines) + ("…" if len(name) > 540 else "")
