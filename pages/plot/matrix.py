"""A matrix: numbers in colored cells, with how a cell ended where it has none, hollow where nothing was measured."""

import re
from dataclasses import replace
from typing import Any

from pages.plot import parts
from pages.plot.colors import FAINT, RED, STRONG, tint
from pages.plot.parts import Figure
from runner.answers.answer import Row, View
from runner.render.grid import scale_of, write_measured

_NONE = "rgba(0, 0, 0, 0)"
#: Letters for which a phone has room beside each other in all columns.
NARROW_LETTERS = 36


def draw_matrix(view: View, *, narrow: bool) -> tuple[list[Any], Figure]:
    """Each cell is a bar of a whole column, so that a click anywhere in it is one on its row: Streamlit reports none on
    a heatmap. Where a narrow screen has no room for the longest interval, they are left to the panel."""
    draw, tone = view.draw, parts.tone_of(view)
    lines = list(view.rows)
    if len(draw.down) == 1 and all(isinstance(one, int) for one in view.column(draw.down[0])):
        lines.sort(key=lambda row: view.get(row, draw.down[0]))
    downs = list(dict.fromkeys(parts.join_keys(view, row, draw.down) for row in lines))
    numbers = all(isinstance(one, int) for one in view.column(draw.across) if one is not None)
    acrosses = list(dict.fromkeys(view.column(draw.across)))
    acrosses = sorted(acrosses, key=lambda one: (one is None, one)) if numbers else acrosses
    texts = [_write(view, row) for row in view.rows]
    if is_tight := narrow and len(acrosses) * max(map(parts.count_letters, texts), default=0) > NARROW_LETTERS:
        is_full = len(acrosses) > 6
        texts = [_write(view, row, digits=2 if is_full else 3).partition("<br>")[0] for row in view.rows]
        texts = [text.replace("OOM", "✕") for text in texts] if is_full else texts
    colors = [_NONE if row.wanted else tint(RED, opacity=0.10) if view.ended(row) else tone(row) for row in view.rows]
    places = [
        (acrosses.index(view.get(row, draw.across)), downs.index(parts.join_keys(view, row, draw.down)))
        for row in view.rows
    ]
    # An empty place of the product of both sides, for which the answer has no row, is hollow and says nothing.
    empty = [(x, y) for y in range(len(downs)) for x in range(len(acrosses)) if (x, y) not in places]
    filled = _cells(places, color=colors, edge=[FAINT if row.wanted else _NONE for row in view.rows])
    filled |= parts.marks(view, view.rows)
    inks = [RED if view.ended(row) else STRONG for row in view.rows]
    notes = [
        parts.note(
            text, x=x, y=y, color=ink, size=(12 if len(acrosses) < 8 else 10) if is_tight else 13 if narrow else 14
        )
        for text, (x, y), ink in zip(texts, places, inks, strict=True)
        if text
    ]
    hollow = {**_cells(empty, color=_NONE, edge=FAINT), "hoverinfo": "skip"}
    columns = [parts.write_key(view, draw.across, one) for one in acrosses]
    longest = max((len(word) for one in columns for word in re.split(r"[ ·-]+", one)), default=0)
    letters = sum(map(len, columns)) + 10 if numbers else longest * len(columns) - 5
    is_slanted = narrow and letters > NARROW_LETTERS
    # Names say by themselves what they are; numbers do not. Beside names a phone has no room for it.
    is_number = any(isinstance(one, int) for name in draw.down for one in view.column(name))
    side = " · ".join(view.field(name).title for name in draw.down) if is_number else ""
    has_room = 7 * len(side) < 42 * len(downs) + 40 and not (narrow and len(draw.down) > 1)
    layout = {
        **({"margin": {"r": 20}} if is_slanted else {}),
        "height": 62 + (36 if is_tight else 42) * len(downs),
        "bargap": 0,
        "barmode": "overlay",
        "xaxis": parts.axis(
            side="top",
            tickvals=list(range(len(acrosses))),
            ticktext=[re.sub(" · |[ -]", "<br>", one) for one in columns] if narrow and not is_slanted else columns,
            tickangle=-60 if is_slanted else 0,
            range=[-0.5, len(acrosses) - 0.5],
            showgrid=False,
        )
        | {"title": {"text": view.field(draw.across).title, "standoff": 4}},
        "yaxis": parts.axis(
            side if has_room else "",
            tickvals=list(range(len(downs))),
            ticktext=[f"{parts.break_label(one, most=16) if narrow else one} " for one in downs],
            range=[len(downs) - 0.5, -0.5],
            showgrid=False,
        ),
        "annotations": notes,
    }
    return [filled, *([hollow] if empty else [])], layout


def _cells(places: list[tuple[int, int]], *, color: Any, edge: Any) -> Figure:
    drawn = parts.bars(x=[0.96] * len(places), y=[y for _, y in places], width=0.93, color=color, edge=edge)
    drawn["marker"]["cornerradius"] = 4
    return {**drawn, "base": [x - 0.48 for x, _ in places]}


def _write(view: View, row: Row, *, digits: int | None = None) -> str:
    """Returns the number of a cell, of at most so many digits without its interval; or how it ended in short."""
    if row.wanted:
        return ""
    scale = scale_of(view, view.draw.value)
    scale = replace(scale, digits=min(scale.digits, digits or 3))
    if why := view.ended(row):
        words, _, needs = why.partition(": ")
        first, _, where = words.partition(", ")[0].replace("out of memory", "OOM").partition(" in ")
        more = needs.partition(",")[0] or (f"in {where}" if where else "")
        return f"<b>{parts.escape(first)}</b>" + (f"<br>{_small(parts.escape(more))}" if more else "")
    value = view.get(row, view.draw.value)
    number, shown = (scale.write(value), "") if digits else write_measured(view, row, scale)
    return f"<b>{parts.escape(number)}</b>" + (f"<br>{_small(shown)}" if shown else "")


def _small(text: str) -> str:
    return f'<span style="font-size: 12px">{text}</span>'
