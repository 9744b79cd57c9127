"""From one time to another: a bar a part, each beginning where the one above ends.

    figure = waterfall([("matrix products", "matmul", -11.0)], ends=(("fp32", 24.0), ("bf16", 13.0)), state="x")

The parts must add up to the difference of the two ends, else it raises an AssertionError.
"""

import itertools
import math
from collections.abc import Sequence

import plotly.graph_objects as go

from pages.figures.colors import FAINT, SLATE, color_of
from pages.figures.frame import escape_text, layout
from pages.figures.marks import write_ends
from runner.formats import format_number

#: If the smaller end is more than this share of the larger, the axis does not begin at 0, where nothing differs.
_CLOSE = 0.8
End = tuple[str, float]


def waterfall(changes: Sequence[tuple[str, str, float]], *, ends: tuple[End, End], state: str) -> go.Figure:
    """Draws `changes`, (words, entity that gives the color or nothing, ms), between `ends`, the two totals in ms."""
    (first, before), (last, after) = ends
    steps = [before]
    for _, _, change in changes:
        steps.append(steps[-1] + change)
    assert math.isclose(steps[-1], after, rel_tol=1e-9, abs_tol=1e-9), f"{steps[-1]} is not {after}"
    begins = _find_beginning([*steps, after])
    places = list(range(len(changes) + 2))
    texts = [_format_ms(before), *(_format_signed(change) for _, _, change in changes), _format_ms(after)]
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


def _format_ms(value: float) -> str:
    return f"{format_number(value)} ms"


def _format_signed(value: float) -> str:
    return f"{'+' if value > 0 else '−' if value < 0 else '±'}{format_number(abs(value))} ms"
