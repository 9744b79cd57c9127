"""A view as a plain Plotly figure (dict): one function a kind of picture, for every view of every answer.

st.plotly_chart(Spec(figure(view)), …)

`plotly.graph_objects` is not used: building and validating a figure takes 14 to 24 ms of CPU, the dict 0.2 ms.
Streamlit hands a BaseFigure's `to_dict` on unchecked, so `Spec` is one that has nothing else. Row numbers are
`customdata`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from plotly.basedatatypes import BaseFigure

from pages.plot.lines import draw_lines, draw_strip
from pages.plot.matrix import draw_matrix
from pages.plot.parts import BASE_MARGIN, Figure, write_margins, write_notes
from pages.plot.rows import draw_bars, draw_dots, draw_waterfall
from runner.answers.answer import View

_KINDS: dict[str, Callable[..., tuple[list[Any], Figure]]] = {
    "matrix": draw_matrix,
    "dots": draw_dots,
    "bars": draw_bars,
    "waterfall": draw_waterfall,
    "lines": draw_lines,
    "strip": draw_strip,
}
BASE: Figure = {
    "template": {"layout": {}},
    "showlegend": False,
    "dragmode": False,
    "clickmode": "event+select",
    "hovermode": "closest",
    "margin": BASE_MARGIN,
    "hoverlabel": {"align": "left"},
    "barmode": "stack",
    "bargap": 0.25,
}


class Spec(BaseFigure):  # type: ignore[misc]
    """A finished figure, for `st.plotly_chart`."""

    def __init__(self, spec: Figure) -> None:
        self.__dict__["spec"] = spec

    def to_dict(self) -> Figure:
        spec: Figure = self.__dict__["spec"]
        return spec


def figure(view: View, *, narrow: bool = False) -> Figure:
    """Returns the figure of a view. On a `narrow` screen a matrix with more columns than rows is turned."""
    if narrow and view.draw.kind == "matrix" and len(view.draw.down) == 1:
        down, across = view.draw.down[0], view.draw.across
        if len({*view.column(across)}) > max(4, len({*view.column(down)})):
            view = replace(view, draw=replace(view.draw, across=down, down=(across,)))
    data, layout = _KINDS[view.draw.kind](view, narrow=narrow)
    texts, notes = write_notes(layout.get("annotations", ()), layout)
    layout |= {"annotations": notes, "margin": write_margins(layout), "uirevision": view.name}
    return {"data": [*data, *texts], "layout": {**BASE, **layout}}
