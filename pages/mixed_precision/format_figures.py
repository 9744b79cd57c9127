"""Number formats: which dtype each part of a pass has, and which statistics of normalization a dtype loses.

figure = dtype_grid({("logits", "fp16"): ["fp16"], …})
figure = sensitivity_lines([Sensitivity(computed_in="fp16", scale=1024.0, error=None, lost="overflow")], what="…")
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import plotly.graph_objects as go

from pages.figures.colors import BROWN, FAINT, RED, STRONG, color_of, tint
from pages.figures.frame import format_power_of_ten, layout
from pages.figures.marks import flat_colors

_FORMATS = ("fp64", "fp32", "bf16", "fp16")


def dtype_grid(read: Mapping[tuple[str, str], Sequence[str]]) -> go.Figure:
    """Draws a cell for each (part, precision) of `read`, with its formats; rows and columns keep their order."""
    parts = list(dict.fromkeys(part for part, _ in read))
    precisions = list(dict.fromkeys(precision for _, precision in read))
    found = [[read.get((part, precision), ()) for precision in precisions] for part in parts]
    figure = go.Figure(
        go.Heatmap(
            x=precisions,
            y=parts,
            z=[[_FORMATS.index(formats[0]) if len(formats) == 1 else None for formats in line] for line in found],
            text=[[" + ".join(formats) for formats in line] for line in found],
            texttemplate="%{text}",
            textfont={"size": 13, "color": STRONG},
            hovertemplate="%{y} under %{x}: %{text}<extra></extra>",
            **flat_colors([tint(BROWN if name == "fp64" else color_of(name), opacity=0.4) for name in _FORMATS]),
        )
    )
    for row, line in enumerate(found):
        for column, formats in enumerate(line):
            if len(formats) > 1:  # no color of its own
                figure.add_annotation(x=column, y=row, text=" + ".join(formats), showarrow=False, font={"size": 13})
    figure.update_layout(**layout(height=70 + 30 * len(parts), state="dtypes", legend=False))
    figure.update_xaxes(side="top", showgrid=False, type="category", ticks="")
    figure.update_yaxes(autorange="reversed", showgrid=False, automargin=True, type="category", ticks="")
    return figure


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """One dtype at one scale. `lost` says in words what became of values that overflowed or became 0."""

    computed_in: str
    scale: float
    error: float | None
    lost: str = ""


def sensitivity_lines(points: Sequence[Sensitivity], *, what: str) -> go.Figure:
    """Draws the error over the scale, a line a dtype; crosses where values are lost, at the top where there is no
    error."""
    errors = [point.error for point in points if point.error]
    top = 10.0 ** math.ceil(math.log10(max([*errors, 0.1])))
    figure = go.Figure()
    for name in sorted({point.computed_in for point in points}, key=_FORMATS.index):
        line = [point for point in points if point.computed_in == name]
        figure.add_scatter(
            name=name,
            mode="lines+markers",
            x=[point.scale for point in line],
            y=[point.error for point in line],
            line={"color": color_of(name), "width": 2},
            marker={"size": 7},
            customdata=[[point.lost and f"<br>{point.lost}"] for point in line],
            hovertemplate=f"<b>{name}</b><br>off by %{{y:.2g}}%{{customdata[0]}}<extra></extra>",
            cliponaxis=False,
        )
    lost = [point for point in points if point.lost]
    figure.add_scatter(
        name="lost",
        mode="markers",
        x=[point.scale for point in lost],
        y=[point.error or top for point in lost],
        marker={"symbol": "x", "size": 11, "color": [color_of(point.computed_in) for point in lost],
                "line": {"color": RED, "width": 1.5}},
        customdata=[[f"<b>{point.computed_in}</b><br>{point.lost}"] for point in lost],
        hovertemplate="%{customdata[0]}<extra></extra>",
        showlegend=bool(lost),
        cliponaxis=False,
    )  # fmt: skip
    scales = sorted({point.scale for point in points})
    figure.update_layout(**layout(height=340, state=f"sensitivity-{what}"))
    figure.update_xaxes(
        type="log", title="Residual stream times", tickvals=scales, ticktext=[format_scale(scale) for scale in scales],
        showgrid=False, tickangle=0, automargin=True,
    )  # fmt: skip
    lowest = math.floor(math.log10(min([*errors, top])))
    ticks = range(math.floor(math.log10(top)), lowest - 1, -2)
    figure.update_yaxes(
        type="log", title=f"Error of the {what}", tickvals=[10.0**at for at in ticks], automargin=True, gridcolor=FAINT,
        ticktext=[format_power_of_ten(at) for at in ticks], range=[lowest - 0.1, math.log10(top) + 0.5],
    )  # fmt: skip
    return figure


def format_scale(scale: float) -> str:
    """Formats a power of two: 1/16,384, 1,024."""
    whole = Fraction(scale)
    return f"{whole.numerator:,}" if whole.denominator == 1 else f"{whole.numerator:,}/{whole.denominator:,}"
