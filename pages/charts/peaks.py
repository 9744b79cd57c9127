"""Peaks two by two: fp32 beside bf16, and what was predicted beside what was measured.

figure = peak_pairs([PeakPair(place="toy-64 · 128", base=28.5e6, other=24.3e6)], names=("fp32", "bf16"))
figure = predicted_dots([PredictedDot(…)])
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.charts.bytes import binary_axis, in_unit
from pages.charts.colors import FAINT, QUIET, color_of
from pages.charts.frame import layout, number


@dataclass(frozen=True, kw_only=True)
class PeakPair:
    """One place and two peaks in bytes."""

    place: str
    base: int
    other: int

    @property
    def ratio(self) -> float:
        return self.other / self.base


@dataclass(frozen=True, kw_only=True)
class PredictedDot:
    """One cell: predicted and measured peak in bytes."""

    place: str
    cell_id: str
    precision: str
    predicted: int
    measured: int

    @property
    def ratio(self) -> float:
        return self.measured / self.predicted


def peak_pairs(pairs: Sequence[PeakPair], *, names: tuple[str, str]) -> go.Figure:
    """Two dots a place, joined; the ratio beside the larger."""
    places = [pair.place for pair in pairs]
    sizes = [value for pair in pairs for value in (pair.base, pair.other)]
    figure = go.Figure()
    figure.add_scatter(
        mode="lines", showlegend=False, hoverinfo="skip", line={"color": FAINT, "width": 3},
        x=[value for pair in pairs for value in (pair.base, pair.other, None)],
        y=[value for pair in pairs for value in (pair.place, pair.place, None)],
    )  # fmt: skip
    for name, values in zip(names, ([p.base for p in pairs], [p.other for p in pairs]), strict=True):
        figure.add_scatter(
            name=name, mode="markers", x=values, y=places, marker={"color": color_of(name), "size": 11},
            customdata=[[in_unit(value)] for value in values],
            hovertemplate=f"<b>%{{y}}</b><br>{name}: %{{customdata[0]}}<extra></extra>", cliponaxis=False,
        )  # fmt: skip
    figure.add_scatter(
        mode="text", showlegend=False, hoverinfo="skip", x=[max(pair.base, pair.other) for pair in pairs], y=places,
        text=[f"    {number(pair.ratio)}×" for pair in pairs], textposition="middle right", cliponaxis=False,
        textfont={"size": 12, "color": [color_of(names[1]) if pair.ratio > 1 else QUIET for pair in pairs]},
    )  # fmt: skip
    figure.update_layout(**layout(height=max(200, 110 + 27 * len(pairs)), state="peak-pairs"))
    figure.update_layout(margin_r=56)  # for the ratios
    ends = [math.log10(min(sizes)), math.log10(max(sizes))]
    room = max(ends[1] - ends[0], 0.3)
    figure.update_xaxes(**binary_axis(sizes, most=4), title="Peak allocated (log)", automargin=True, tickangle=0,
                        range=[ends[0] - 0.05 * room, ends[1] + 0.05 * room])  # fmt: skip
    figure.update_yaxes(autorange="reversed", automargin=True, title="")
    return figure


def predicted_dots(dots: Sequence[PredictedDot]) -> go.Figure:
    """Measured over predicted, log-log, with the line of agreement."""
    sizes = [value for dot in dots for value in (dot.predicted, dot.measured)]
    figure = go.Figure()
    ends = [min(sizes) / 1.2, max(sizes) * 1.2]
    figure.add_scatter(
        name="as predicted", mode="lines", x=ends, y=ends, hoverinfo="skip", line={"color": FAINT, "width": 2}
    )
    for precision in dict.fromkeys(dot.precision for dot in dots):
        chosen = [dot for dot in dots if dot.precision == precision]
        figure.add_scatter(
            name=precision, mode="markers", x=[dot.predicted for dot in chosen], y=[dot.measured for dot in chosen],
            marker={"color": color_of(precision), "size": 9, "opacity": 0.8},
            customdata=[[dot.cell_id, _hover(dot)] for dot in chosen],
            hovertemplate="%{customdata[1]}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(**layout(height=400, state="predicted"))
    figure.update_xaxes(**binary_axis(sizes, most=4), title="Predicted peak", automargin=True, tickangle=0)
    figure.update_yaxes(**binary_axis(sizes), title="Measured peak", automargin=True)
    return figure


def _hover(dot: PredictedDot) -> str:
    return (
        f"<b>{dot.place}</b><br>measured {in_unit(dot.measured)}<br>predicted {in_unit(dot.predicted)}"
        f"<br>{number(dot.ratio)}× as predicted"
    )
