"""Pictures with one line a row: dots with intervals, stacked bars, waterfalls. The number stands beside the mark."""

import math
from collections import defaultdict
from collections.abc import Mapping
from itertools import groupby
from textwrap import wrap
from typing import Any

from pages.plot import parts
from pages.plot.colors import BLUE, GREEN, ORANGE, PURPLE, QUIET, RED, STRONG, tint
from pages.plot.parts import Figure
from runner.answers.answer import Row, Value, View
from runner.render.grid import scale_of, write_measured

Key = tuple[Value, ...]
_LINE, _CAPTIONED = 23, 40
#: The letters that a line of a chart has room for on a phone.
_PHONE_LETTERS = 44
#: The letters of a name that stands beside its bar on a phone.
_MAX_BESIDE = 16


def draw_dots(view: View, *, narrow: bool) -> tuple[list[Any], Figure]:
    """Beside a dot stand its number and, where there is room, its interval; faint where that includes the center."""
    draw, scale = view.draw, scale_of(view, view.draw.value)
    places, down, heads = _lines(view, narrow=narrow)
    among = list(dict.fromkeys(view.column(draw.series))) if draw.series else []
    known = [row for row in view.rows if not view.ended(row)]
    is_log = "x" in draw.log
    data, notes, letters = [], [*heads], 0
    for unsure in sorted({parts.is_unsure(view, row) for row in known}):
        rows = [row for row in known if parts.is_unsure(view, row) == unsure]
        colors = [parts.color_of(view.get(row, draw.series), among) if draw.series else PURPLE for row in rows]
        x = [view.get(row, draw.value) / scale.factor for row in rows]
        trace = parts.scatter(view, rows, x=x, y=[places[_key(view, row)] for row in rows], color=colors)
        data.append(trace | {"error_x": parts.error_bars(view, rows, QUIET), "opacity": 0.6 if unsure else 1})
        for row in rows:
            number, shown = write_measured(view, row, scale)
            words = scale.add_unit(number) if unsure else f"<b>{scale.add_unit(number)}</b>"
            end = view.interval(row)[1] or view.get(row, draw.value)
            x_end = parts.on_axis(end / scale.factor, log=is_log)
            at: dict[str, Any] = {"x": x_end, "y": places[_key(view, row)], "xanchor": "left", "shift": 7}
            shown = "" if narrow else f"{shown}{parts.write_beside(view, row)}"
            notes.append(parts.note(f"{words}  {shown}", color=QUIET if unsure else STRONG, **at))
            letters = max(letters, len(scale.add_unit(number)) + len(shown))
    lost = [row for row in view.rows if view.ended(row)]
    inks = [QUIET if row.wanted else RED for row in lost]
    lost_ys = [places[_key(view, row)] for row in lost]
    notes += [
        parts.note(parts.escape(view.ended(row)), x=0, y=y, xref="paper", xanchor="left", shift=9, color=ink)
        for row, y, ink in zip(lost, lost_ys, inks, strict=True)
    ]
    for guide in draw.guides:
        if guide.at:
            at = {"x": parts.on_axis(guide.at, log=is_log), "y": 1, "yref": "paper", "yanchor": "bottom"}
            notes.append(parts.note(guide.words, color=RED if guide.is_limit else QUIET, **at))
    ends = [end for row in known for end in (*view.interval(row), view.get(row, draw.value)) if end]
    ends += [guide.at for guide in draw.guides if guide.at]
    low, high = (pick(ends, default=1) / scale.factor for pick in (min, max))
    span = [math.log10(low) - 0.01, math.log10(high) + 0.01] if is_log else [min(low, 0), high * 1.02]
    if lost:
        left = 10 ** span[0] if is_log else span[0]
        crosses = parts.scatter(view, lost, x=[left] * len(lost), y=lost_ys, color=inks)
        data.append(crosses | {"marker": {"size": 7, "color": inks, "symbol": "x"}})
    # The line of a guide leaves out the names of groups, which stand in rows of their own.
    together = groupby(enumerate(sorted({*places.values()})), lambda one: one[1] - one[0])
    spans = [[y for _, y in rows] for _, rows in together]
    across = [{"yref": "y", "y0": ys[0] - 0.5, "y1": ys[-1] + 0.5} for ys in spans]
    line_px = max(_LINE, 17 * max((1 + text.count("<br>") for text in down["ticktext"]), default=1))
    layout = {
        "height": 60 + line_px * (max(places.values(), default=0) + 1),
        "margin": {"r": max(52 if narrow else 128, min(12 + 7 * letters, 300)), "t": 24},
        "xaxis": parts.axis(
            "" if narrow else parts.title_of(view, draw.value),
            range=span,
            **parts.ticks(*([10**end for end in span] if is_log else (low, high)), log=is_log, most=4 if narrow else 9),
        ),
        "yaxis": down,
        "shapes": [parts.rule("x", guide, scale) | span for guide in draw.guides if guide.at for span in across],
        "annotations": notes,
    }
    return data, layout


def draw_bars(view: View, *, narrow: bool) -> tuple[list[Any], Figure]:
    """Stacks of a series, or plain bars; at the end the total, or the value with what stands beside."""
    draw, scale = view.draw, scale_of(view, view.draw.value)
    names = [len(parts.join_keys(view, row, draw.down[1:] or draw.down)) for row in view.rows]
    # On a phone long names beside short bars would leave no room for these.
    is_above = bool(draw.caption) or (narrow and max(names, default=0) > _MAX_BESIDE)
    places, down, heads = _lines(view, narrow=narrow, above=is_above)
    among: list[Value] = [None]
    if draw.series:
        among = [one for one in dict.fromkeys(view.column(draw.series)) if one not in (None, draw.total)]
    sums: dict[Key, float] = defaultdict(int)  # whole numbers stay so
    ends: dict[Key, Row] = {}
    for row in view.rows:
        is_total = bool(draw.series) and view.get(row, draw.series) == draw.total
        sums[_key(view, row)] += 0 if is_total else view.get(row, draw.value) or 0
        if is_total or not draw.series:
            ends[_key(view, row)] = row
    limits = [guide.at / scale.factor for guide in draw.guides if guide.at]
    most = max([*(one / scale.factor for one in sums.values()), *limits], default=1) or 1
    data, notes = [], [*heads]
    reached: dict[Key, float] = defaultdict(float)
    for one in among:
        rows = [row for row in view.rows if not draw.series or view.get(row, draw.series) == one]
        sizes = [(view.get(row, draw.value) or 0) / scale.factor for row in rows]
        ys = [places[_key(view, row)] for row in rows]
        for row, size, line in zip(rows, sizes, ys, strict=True):
            if draw.series and size > (0.16 if narrow else 0.07) * most:
                number = scale.write(view.get(row, draw.value))
                notes.append(parts.note(number, x=reached[_key(view, row)] + size / 2, y=line, color="#FFFFFF"))
            reached[_key(view, row)] += size
        color, width = BLUE if one is None else parts.color_of(one, among), 0.42 if is_above else 0.74
        trace = parts.bars(x=sizes, y=[y + (0.2 if is_above else 0) for y in ys], width=width, color=color)
        name = "" if one is None else parts.write_key(view, draw.series, one)
        data.append(trace | {"name": name, **parts.marks(view, rows)})
    lost = {_key(view, row): view.ended(row) for row in view.rows if view.ended(row)}
    for key, total in sums.items():
        y = places[key] + (0.2 if is_above else 0)
        if key in lost:
            # What ran out of the device's memory stands at its limit.
            at: dict[str, Any] = {"x": limits[0], "xanchor": "right"} if limits else {"x": 0, "xanchor": "left"}
            why = lost[key].rpartition(": ")[2] if narrow else lost[key]
            text = f"{parts.escape(why)} ✕" if limits else f"✕ {parts.escape(why)}"
            notes.append(parts.note(text, **at, y=y, shift=6 if limits else 5, color=RED))
            continue
        end = ends.get(key)
        number = scale.write(total if end is None else view.get(end, draw.value))
        unit = "%" if scale.unit == "%" else f" {scale.unit}" if draw.beside else ""
        text = f"<b>{number}{unit}</b>{parts.write_beside(view, end) if end else ''}"
        notes.append(parts.note(text, x=total / scale.factor, y=y, xanchor="left", shift=5))
    above: dict[str, Any] = {"y": 1, "yref": "paper", "yanchor": "bottom", "xanchor": "right", "shift": 24}
    notes += [
        parts.note(guide.words, x=guide.at / scale.factor, **above, color=RED) for guide in draw.guides if guide.at
    ]
    beside = [one for one in notes if one["xref"] == "x" and one["yref"] == "y" and one["xanchor"] == "left"]
    room = max((parts.count_letters(one["text"]) for one in beside if one["x"]), default=0)
    colors = [(one["name"], one["marker"]["color"]) for one in data] if draw.series else []
    head, top = parts.legend(colors, narrow=narrow)
    head = [one | {"yshift": 4 + 18 * bool(limits)} for one in head]
    top += 24 if limits else 8
    is_long = narrow and any(_is_long(view, row) for row in view.rows)
    line_px = _CAPTIONED + 18 * is_long if is_above else _LINE
    layout = {
        "height": top + (26 if draw.beside else 46) + line_px * (max(places.values(), default=0) + 1),
        "margin": {"r": min(16 + 7 * room, 190), "t": top},
        "xaxis": parts.axis(
            "" if draw.beside else parts.title_of(view, draw.value),
            range=[0, most * 1.01],
            nticks=5,
            tickformat=".0%" if scale.unit == "%" else ",~s" if most > 9999 else ",",
        ),
        "yaxis": down,
        "annotations": [*notes, *head],
        "shapes": [parts.rule("x", guide, scale) for guide in draw.guides if guide.at],
    }
    return data, layout


def draw_waterfall(view: View, *, narrow: bool) -> tuple[list[Any], Figure]:
    """Each row reaches from the value before to its own; the first and the last stand on the axis. Hollow bars are not
    one change alone."""
    draw, scale = view.draw, scale_of(view, view.draw.value)
    values = [(view.get(row, draw.value) or 0) / scale.factor for row in view.rows]
    befores = [0.0, *values[:-1]]
    edges = [GREEN if value <= before else ORANGE for before, value in zip(befores, values, strict=True)]
    edges[0] = QUIET
    hollow = [bool(view.get(row, draw.hollow)) for row in view.rows]
    notes = []
    for place, (row, before, value) in enumerate(zip(view.rows, befores, values, strict=True)):
        words = parts.escape(parts.join_keys(view, row, draw.down))
        notes.append(parts.note(words, x=0, xref="paper", y=place - 0.22, xanchor="left", shift=2))
        text = f"<b>{scale.with_unit(view.get(row, draw.value))}</b>{parts.write_beside(view, row)}"
        notes.append(parts.note(text, x=max(before, value), y=place + 0.2, xanchor="left", shift=5))
    steps = parts.bars(
        x=[abs(value - before) for before, value in zip(befores, values, strict=True)],
        y=[place + 0.2 for place in range(len(values))],
        width=0.42,
        color=[tint(one, opacity=0.12) if is_hollow else one for one, is_hollow in zip(edges, hollow, strict=True)],
        edge=edges,
    )
    steps |= {"base": [*map(min, befores, values)], **parts.marks(view, view.rows)}
    rest = parts.bars(x=values[-1:], y=[len(values) - 0.8], width=0.42, color=PURPLE) | {"base": [0]}
    rest |= parts.marks(view, view.rows[-1:])
    layout = {
        "height": 32 + _CAPTIONED * len(values),
        "barmode": "overlay",
        "margin": {"r": 118, "t": 6},
        "xaxis": parts.axis(range=[0, max(values) * 1.01], nticks=5),
        "yaxis": parts.axis(showticklabels=False, range=[len(values) - 0.4, -0.6], showgrid=False),
        "annotations": notes,
    }
    return [steps, rest], layout


def _key(view: View, row: Row) -> Key:
    return tuple(view.get(row, name) for name in view.draw.down)


def _is_long(view: View, row: Row) -> bool:
    """Returns whether the name of a row and its caption need two lines on a phone."""
    return (
        len(parts.join_keys(view, row, view.draw.down)) + len(str(view.get(row, view.draw.caption) or ""))
        > _PHONE_LETTERS
    )


def _lines(view: View, *, narrow: bool, above: bool = False) -> tuple[Mapping[Key, int], Figure, list[Figure]]:
    """Returns the place of each row, the axis with their labels, and what is written in the picture: the heading of
    each group, or `above` its bar the name of each row with its caption."""
    draw = view.draw
    firsts = {_key(view, row): row for row in reversed(view.rows)}
    two = narrow and any(_is_long(view, row) for row in view.rows)
    places: dict[Key, int] = {}
    notes, labels, line = list[Figure](), list[str](), 0
    for key in dict.fromkeys(_key(view, row) for row in view.rows):
        label = parts.join_keys(view, firsts[key], draw.down if above else draw.down[1:] or draw.down)
        if above:
            pieces = wrap(label, _PHONE_LETTERS, break_on_hyphens=False) if two else [label]
            gap = "<br>" if two and len(pieces) == 1 else "  "  # the caption of a name in two lines ends the second
            words = f"<b>{'<br>'.join(pieces)}</b>{gap}{parts.escape(str(view.get(firsts[key], draw.caption) or ''))}"
            notes.append(parts.note(words, x=0, xref="paper", y=line - (0.31 if two else 0.22), xanchor="left"))
        elif len(draw.down) > 1 and all(key[0] != known[0] for known in places):
            words = f"<b>{parts.write_key(view, draw.down[0], key[0])}</b>"
            notes.append(parts.note(words, x=0, xref="paper", y=line, xanchor="left", shift=2))
            line += 1
        labels.append(f"{parts.break_label(label) if narrow else label} ")
        places[key] = line
        line += 1
    ticks = {"showticklabels": False} if above else {"ticktext": labels}
    return places, parts.axis(tickvals=[*places.values()], range=[line - 0.4, -0.6], showgrid=False, **ticks), notes
