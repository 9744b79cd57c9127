"""Lines over a numeric axis with their numbers, fits and limits; and the strip of samples of one cell."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, pairwise
from typing import Any

from pages.plot import parts
from pages.plot.colors import PALETTE, PURPLE, QUIET, RED
from pages.plot.parts import Figure
from runner.answers.answer import Row, Value, View
from runner.formats import format_number
from runner.render.grid import Scale, scale_of

#: A line of more points has no numbers beside them.
MAX_NUMBERED = 12
#: Pixels of a usual chart's plot.
_WIDTH, _HEIGHT = 850, 270


def draw_lines(view: View, *, narrow: bool) -> tuple[list[Any], Figure]:
    """On a narrow screen names stand in a legend above, and only the last number of each line beside it."""
    draw, scale = view.draw, scale_of(view, view.draw.value)
    among = list(dict.fromkeys(view.column(draw.series))) if draw.series else [None]
    rows = [row for row in view.rows if view.get(row, draw.across)]
    known, lost = [row for row in rows if not view.ended(row)], [row for row in rows if view.ended(row)]
    is_log = "y" in draw.log
    spot, height = partial(parts.on_axis, log="x" in draw.log), partial(parts.on_axis, log=is_log)

    def value(row: Row) -> float:
        return float(view.get(row, draw.value) / scale.factor)

    def level(row: Row) -> float:
        return height(limit if view.ended(row) else value(row))

    limits = [guide.at / scale.factor for guide in draw.guides if guide.at and guide.is_limit]
    limit = next(iter(limits), max(map(value, known), default=1) * 1.6)
    bounds = [end / scale.factor for row in known for end in view.interval(row) if end]
    ys = [*map(value, known), *bounds, *([limit] if lost else [])] or [1]
    xs = sorted({view.get(row, draw.across) for row in rows}) or [1, 10]
    data: list[Figure] = [
        {
            "type": "scatter",
            "mode": "lines",
            "x": [power.start, power.end],
            "y": [power.at(x) / scale.factor for x in (power.start, power.end)],
            "hoverinfo": "skip",
            "showlegend": False,
            "line": {"color": parts.color_of(guide.series, among) if guide.series else QUIET, "width": 7},
            "opacity": 0.22,
        }
        for guide in draw.guides
        if (power := guide.power)
    ]
    notes: list[Figure] = []
    fits: dict[Any, str] = {guide.series: parts.raise_powers(f" {guide.words}") for guide in draw.guides if guide.power}
    low, high = height(min(ys)), height(max(ys))
    reach = max(high - low, 0.3 if is_log else 0.3 * abs(high))
    pad = 0.09 * reach
    left, right = spot(xs[0]), spot(xs[-1])
    side = 0.05 * max(right - left, 0.3 if "x" in draw.log else 0.3 * abs(right))
    # Of many points none has its number beside it: the line has its last.
    counts = Counter(view.get(row, draw.series) for row in known)
    few = [row for row in known if counts[view.get(row, draw.series)] <= MAX_NUMBERED]
    labels = (
        {}
        if narrow
        else _spread_labels(
            view,
            few,
            scale,
            x=lambda row: _WIDTH * (spot(view.get(row, draw.across)) - left) / (right - left or 1),
            y=lambda row: _HEIGHT * (level(row) - low) / (high - low or 1),
            lost=lost,
        )
    )
    ends: list[tuple[float, str, str]] = []
    for one in among:
        mine = [row for row in known if not draw.series or view.get(row, draw.series) == one]
        if not mine:
            continue
        color = PURPLE if one is None else parts.color_of(one, among)
        name = "" if one is None else parts.write_key(view, draw.series, one)
        trace = parts.scatter(view, mine, y=[*map(value, mine)], color=color)
        said = [labels.get(id(row), ("", "top center")) for row in mine]
        last = max(mine, key=lambda row: view.get(row, draw.across))
        data.append(
            trace
            | {
                "name": f"{name}{fits.get(one, '')}",
                "mode": "lines+markers+text" if len(mine) <= MAX_NUMBERED else "lines",
                "line": {"color": color, "width": 2},
                "text": [text for text, _ in said],
                "textposition": [where for _, where in said],
                "textfont": {"size": 12, "color": color},
                "error_y": parts.error_bars(view, mine, color),
            }
        )
        number = "" if id(last) in labels else format_number(value(last))
        words = number if narrow else " ".join(filter(None, (f"{name}</b>{fits.get(one, '')}<b>", number)))
        if narrow or one is not None or number:
            ends.append((height(value(last)), f"<b>{words}</b>", color))
    if lost:
        crosses = parts.scatter(view, lost, y=[limit] * len(lost), color=RED)
        data.append(crosses | {"marker": {"size": 9, "color": RED, "symbol": "x"}, "showlegend": False})
    ends.sort()
    heights = _push_apart([y for y, _, _ in ends], least=(0.1 if narrow else 0.062) * reach, most=high + 0.8 * pad)
    notes += [
        parts.note(text, x=1, xref="paper", y=y, xanchor="left", shift=8, color=color)
        for y, (_, text, color) in zip(heights, ends, strict=True)
    ]
    for guide in draw.guides:
        if guide.at:
            color, anchor = (RED, "top") if guide.is_limit else (QUIET, "bottom")
            y = height(guide.at / scale.factor)
            # Its words stand on the left, unless a point is near them there and the right is freer.
            at_ends = ([level(row) for row in rows if view.get(row, draw.across) == x] for x in (xs[0], xs[-1]))
            free = [min((abs(one - y) for one in there), default=reach) for there in at_ends]
            is_left = free[0] >= min(free[1], 0.1 * reach)
            notes.append(
                parts.note(
                    guide.words,
                    x=0 if is_left else 1,
                    xref="paper",
                    y=y,
                    xanchor="left" if is_left else "right",
                    yanchor=anchor,
                    shift=4 if is_left else -4,
                    color=color,
                    **({"yshift": -2} if guide.is_limit else {}),
                )
            )
        elif guide.power and not guide.series:
            rises = guide.power.at(guide.power.end) > guide.power.at(guide.power.start)
            at: dict[str, Any] = {"x": 0, "xanchor": "left"} if rises else {"x": 1, "xanchor": "right"}
            notes.append(parts.note(guide.words, **at, y=1, xref="paper", yref="paper", yanchor="top", color=QUIET))
    notes += _name_lost(view, lost, spot, height(limit), first_only=narrow)
    width = max((parts.count_letters(text) for _, text, _ in ends), default=0)
    shown = _thin([*map(spot, xs)]) if narrow else range(len(xs))
    across = {"tickvals": [xs[one] for one in shown], "ticktext": [parts.short_number(xs[one]) for one in shown]}
    across = across if len(xs) < 10 else parts.ticks(xs[0], xs[-1], log="x" in draw.log)
    named = [(one["name"], one["line"]["color"]) for one in data if one.get("name")]
    above, top = parts.legend(named if narrow and draw.series else [], narrow=narrow)
    layout = {
        "height": 300 + top if narrow else 400,
        "margin": {"r": 14 + 7 * width, "t": 14 + top},
        "xaxis": parts.axis(
            view.field(draw.across).title,
            range=[left - side, right + side * (1.6 if lost else 1)],
            **{"type": "log" if "x" in draw.log else "linear", **across},
        ),
        "yaxis": parts.axis(
            "" if narrow else parts.title_of(view, draw.value),
            range=[low - pad, high + pad * (2.2 if lost else 1)],
            **(parts.ticks(min(ys), max(ys), log=True) if is_log else parts.ticks(low - pad, high + pad, log=False)),
        ),
        "annotations": [*notes, *above],
        "shapes": [parts.rule("y", guide, scale) for guide in draw.guides if guide.at],
    }
    return data, layout


def _name_lost(
    view: View, lost: Sequence[Row], spot: Callable[[float], float], y: float, *, first_only: bool
) -> list[Figure]:
    """Returns the words above the crosses of what has no value: who, and what it would have needed or how it ended."""
    found = []
    for x in [*dict.fromkeys(view.get(row, view.draw.across) for row in lost)][: 1 if first_only else None]:
        rows = [row for row in lost if view.get(row, view.draw.across) == x]
        who = ", ".join(parts.join_keys(view, row, [view.draw.series]) for row in rows) if view.draw.series else ""
        needs = [
            why.partition(": needs ")[2].partition(",")[0] or ("OOM" if "out of memory" in why else parts.escape(why))
            for why in map(view.ended, rows)
        ]
        text = (f"<b>{who}</b><br>" if who else "") + " / ".join(dict.fromkeys(needs))  # in the order of the names
        found.append(parts.note(text, x=spot(x), y=y, yanchor="bottom", yshift=7, color=RED, align="center"))
    return found


def _thin(places: Sequence[float]) -> list[int]:
    """Returns which ticks are far enough apart for a phone, the last first to stay."""
    kept = [len(places) - 1]
    for place in reversed(range(len(places) - 1)):
        if places[kept[-1]] - places[place] > 0.17 * (places[-1] - places[0]):
            kept.append(place)
    return sorted(kept)


def _push_apart(places: Sequence[float], *, least: float, most: float) -> list[float]:
    """Returns ascending places, moved up where two are closer than `least`, and down again where one is above
    `most`: Plotly draws no note outside of its axes."""
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + least) if found else place)
    for at in reversed(range(len(found))):
        found[at] = min(found[at], most - least * (len(found) - 1 - at))
    return found


def _spread_labels(
    view: View,
    rows: Sequence[Row],
    scale: Scale,
    *,
    x: Callable[[Row], float],
    y: Callable[[Row], float],
    lost: Sequence[Row],
) -> dict[int, tuple[str, str]]:
    """Returns the number beside each dot and where it stands; none where it would cover another number, dot or line.
    `x` and `y` are a dot's pixels in a usual chart, those of what is `lost` too. Tooltip and table have all."""
    texts: dict[int, tuple[str, str]] = {}
    dots = [(x(row), y(row)) for row in (*rows, *lost)]
    lines: dict[Value, list[Row]] = {}
    for row in sorted(rows, key=x):
        lines.setdefault(view.get(row, view.draw.series), []).append(row)
    strokes = [(x(one), y(one), x(two), y(two)) for line in lines.values() for one, two in pairwise(line)]
    boxes: list[tuple[float, float, float]] = []
    for row in sorted(rows, key=lambda row: -view.get(row, view.draw.across)):
        number = scale.write(view.get(row, view.draw.value))
        width = 7.0 * len(number)
        has_bar = bool(view.interval(row)[1])
        for where, side, up in (*_BESIDE[:4], *(() if has_bar else _BESIDE[4:])):
            box = x(row) + side * (width / 2 + 4), y(row) + up, width / 2
            if (
                not any(abs(box[0] - one[0]) < box[2] + one[2] and abs(box[1] - one[1]) < 14 for one in boxes)
                and not any(abs(box[0] - at) < box[2] + 4 and abs(box[1] - high) < 10 for at, high in dots)
                and not any(_crosses(stroke, box) for stroke in strokes)
            ):
                texts[id(row)] = number, where
                boxes.append(box)
                break
    return texts


#: Where a number may stand: in Plotly's words, and which way from its dot; above and below the dot itself last.
_BESIDE = (
    ("top left", -1, 13),
    ("bottom right", 1, -13),
    ("top right", 1, 13),
    ("bottom left", -1, -13),
    ("top center", 0, 13),
    ("bottom center", 0, -13),
)


def _crosses(stroke: tuple[float, float, float, float], box: tuple[float, float, float]) -> bool:
    """Returns whether a stroke from left to right passes through a box, given by its middle and half its width."""
    start, low, end, high = stroke
    left, right = max(start, box[0] - box[2]), min(end, box[0] + box[2])
    if left >= right:
        return False
    first, second = (low + (at - start) / (end - start) * (high - low) for at in (left, right))
    return min(first, second) < box[1] + 7 and max(first, second) > box[1] - 7


def draw_strip(view: View, *, narrow: bool) -> tuple[list[Any], Figure]:
    """Every sample of a cell, a color a series; hollow ones count in no number, and may lie outside the picture."""
    draw = view.draw
    colors = dict(zip(dict.fromkeys(view.column(draw.series)), cycle(PALETTE), strict=False))
    data = []
    for one, color in colors.items():
        rows = [row for row in view.rows if view.get(row, draw.series) == one]
        trace = parts.scatter(view, rows, y=[view.get(row, draw.value) for row in rows], color=color)
        symbols = ["circle-open" if view.get(row, draw.hollow) else "circle" for row in rows]
        data.append(trace | {"marker": trace["marker"] | {"size": 5, "symbol": symbols}})
    measured = [view.get(row, draw.value) for row in view.rows if not view.get(row, draw.hollow)]
    low, high = min(measured), max(measured)
    named = [(f"{view.field(draw.series).label} {one}", color) for one, color in colors.items()]
    head, top = parts.legend(named if len(colors) > 1 else [], narrow=narrow)
    layout = {
        "height": 240 + top,
        "margin": {"t": 14 + top},
        "annotations": head,
        "xaxis": parts.axis(view.field(draw.across).title),
        "yaxis": parts.axis(
            parts.title_of(view, draw.value),
            range=[low - 0.15 * (high - low), high + 0.3 * (high - low)],
            **parts.ticks(low, high, log=False),
        ),
    }
    return data, layout
