"""What all figures share: colors, axes, notes, labels of rows, tooltips. A figure is a plain dict."""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from pages.plot.colors import FAINT, FAMILIES, ORANGE, PALETTE, PURPLE, QUIET, RED, STRONG, tint
from runner.answers.answer import Guide, Row, Value, View
from runner.formats import format_number
from runner.render.grid import Scale, scale_of, write_measured
from runner.results.cells import CLASS_WORDS

Figure = dict[str, Any]
#: The margins of a chart beside the labels of its axes.
BASE_MARGIN: Figure = {"l": 8, "r": 8, "t": 8, "b": 8}
#: Clicking a mark must not dim the others.
KEEP: Figure = {"selected": {"marker": {"opacity": 1}}, "unselected": {"marker": {"opacity": 1}}}
AXIS: Figure = {
    "automargin": False,
    "zeroline": False,
    "fixedrange": True,
    "gridcolor": FAINT,
    "gridwidth": 0.5,
    "linecolor": FAINT,
    "ticks": "",
    "tickangle": 0,
    "tickfont": {"size": 12},
}
_RAISED = str.maketrans("0123456789.-", "⁰¹²³⁴⁵⁶⁷⁸⁹·⁻")
_ALIASES = {
    "weights": "parameter",
    "gradients": "gradient",
    "activations": "activation",
    "inputs": "input",
    "whole step": "step",
    "bf16 copies": "autocast copy",
    "temporaries": "temporary",
    "rounding": "unknown",
    **{words: name for name, words in CLASS_WORDS.items()},
}


def color_of(value: Value, among: Sequence[Value]) -> str:
    """Returns the color of a series: its own everywhere, else by its place."""
    name = str(value).split(" · ")[-1]
    names = (name, _ALIASES.get(name, name))
    known = next((family[one] for one in names for family in FAMILIES.values() if one in family), None)
    return known or PALETTE[list(among).index(value) % len(PALETTE)]


def is_unsure(view: View, row: Row) -> bool:
    """Returns whether the interval of a ratio includes the center, or is not known."""
    draw = view.draw
    if draw.center is None or not view.of_role("low") or view.get(row, draw.value) is None:
        return False
    low, high = view.interval(row)
    return low is None or high is None or bool(low <= draw.center <= high)


def write_key(view: View, name: str, value: Value) -> str:
    return escape(scale_of(view, name).write(value)) if value is not None else "–"


def join_keys(view: View, row: Row, names: Sequence[str]) -> str:
    return " · ".join(write_key(view, name, view.get(row, name)) for name in names if view.get(row, name) is not None)


def write_beside(view: View, row: Row) -> str:
    """Returns what stands after the value: ` · 27% MFU`."""
    parts = []
    for name in view.draw.beside:
        if (value := view.get(row, name)) not in (None, ""):
            item = view.field(name)
            # A second number of the same unit says what it is; an abbreviation is short enough anyway.
            same = not isinstance(value, str) and item.unit == view.field(view.draw.value).unit
            label = item.label if item.label.isupper() else item.label.lower() if same else ""
            parts.append(" ".join(part for part in (scale_of(view, name).with_unit(value), label) if part))
    return "".join(f" · {escape(part)}" for part in parts)


def axis(title: str = "", **how: Any) -> Figure:
    return {**AXIS, "title": {"text": title}, **how}


def on_axis(value: float, *, log: bool) -> float:
    """Returns where a value stands on an axis, as ranges and notes say it."""
    return math.log10(value) if log else value


def title_of(view: View, name: str) -> str:
    unit = scale_of(view, name).unit
    return f"{view.field(name).label} ({unit})" if unit else view.field(name).label


def hover(view: View, row: Row) -> str:
    """Returns every value of a row in words."""
    lines = [f"<b>{escape(join_keys(view, row, view.places))}</b>"]
    value = view.get(row, view.draw.value)
    if value is None:
        lines.append(escape(view.ended(row)))
    else:
        label, scale = view.field(view.draw.value).label, scale_of(view, view.draw.value)
        number, shown = write_measured(view, row, scale)
        lines.append(f"{label}: {escape(scale.add_unit(number))}{f' ({shown})' if shown else ''}")
        lines += [
            f"{escape(item.label)}: {escape(scale_of(view, item.name).with_unit(note))}"
            for item in view.fields
            if item.role == "note" and item.name not in view.places and (note := view.get(row, item.name)) is not None
        ]
    return "<br>".join([*lines, f"<i>click for {'the command' if row.wanted else 'its samples'}</i>"])


def raise_powers(text: str) -> str:
    """Returns the text with its powers as Unicode has them, which are no smaller than the rest: `S¹·⁹⁶`."""
    return re.sub(r"\^(-?\d+(?:\.\d+)?)", lambda match: match[1].translate(_RAISED), text)


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("%{", "&#37;{")


def count_letters(text: str) -> int:
    """Returns the letters of the longest line of a text with tags."""
    return max(len(re.sub("<[^>]*>", "", line)) for line in text.split("<br>"))


def short_number(value: Value) -> str:
    if isinstance(value, int | float) and value >= 1e6:
        return f"{value / 1e9:.2g}B" if value >= 1e9 else f"{value / 1e6:.3g}M"
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return f"{value:,.0f}" if is_whole else format_number(value) if isinstance(value, float) else str(value)


def legend(names: Sequence[tuple[str, str]], *, narrow: bool) -> tuple[list[Figure], int]:
    """Returns a legend of names with their colors above a plot, and its height. Plotly's own wraps at the width of the
    plot, which is narrow where rows have long labels, and its height is not known before it is drawn."""
    if not names:
        return [], 0
    lines, room = [""], 42 if narrow else 120
    for name, color in names:
        if lines[-1] and count_letters(lines[-1]) + len(name) + 2 > room:
            lines.append("")
        lines[-1] += f'<span style="color:{color}">■</span> {name}   '
    top = note("<br>".join(lines), x=0, xref="paper", y=1, yref="paper", yanchor="bottom", xanchor="left", yshift=4)
    return [top], 8 + 17 * len(lines)


def marks(view: View, rows: Sequence[Row]) -> Figure:
    """Returns what every trace has: the number of each row, for a click on its mark, and its tooltip."""
    numbers = {id(row): place for place, row in enumerate(view.rows)}
    return {
        "customdata": [[numbers[id(row)]] for row in rows],
        "hovertext": [hover(view, row) for row in rows],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "cliponaxis": False,
        **KEEP,
    }


def scatter(
    view: View, rows: Sequence[Row], *, y: Sequence[Any], color: str | Sequence[str], x: Sequence[Any] | None = None
) -> Figure:
    """Returns a dot a row, of one color or each of its own; without `x` they stand by the field `across`."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [view.get(row, view.draw.across) for row in rows] if x is None else list(x),
        "y": list(y),
        "marker": {
            "size": 9,
            "color": [color] * len(rows) if isinstance(color, str) else list(color),
            "symbol": "circle",
        },
        **marks(view, rows),
    }


def bars(*, x: Sequence[float], y: Sequence[float], width: float, color: Any, edge: Any = None) -> Figure:
    """Returns horizontal bars; with an `edge`, of one color or each of its own, they have one."""
    line = {"width": 0} if edge is None else {"color": edge, "width": 1}
    return {"type": "bar", "orientation": "h", "x": x, "y": y, "width": width, "marker": {"color": color, "line": line}}


def error_bars(view: View, rows: Sequence[Row], color: str) -> Figure:
    """Returns the intervals of rows; nothing where no row has one."""
    scale, value = scale_of(view, view.draw.value), view.draw.value
    ends = [view.interval(row) for row in rows]
    if all(low is None for low, _ in ends):
        return {}
    values = [view.get(row, value) for row in rows]
    return {
        "type": "data",
        "symmetric": False,
        "thickness": 1.5,
        "width": 3,
        "color": color,
        "array": [((high or one) - one) / scale.factor for one, (_, high) in zip(values, ends, strict=True)],
        "arrayminus": [(one - (low or one)) / scale.factor for one, (low, _) in zip(values, ends, strict=True)],
    }


def note(text: str, *, x: float, y: float, color: str = STRONG, size: int = 12, shift: int = 0, **where: Any) -> Figure:
    return {
        "text": text,
        "x": x,
        "y": y,
        "xref": "x",
        "yref": "y",
        "xanchor": "center",
        "yanchor": "middle",
        "showarrow": False,
        "xshift": shift,
        "font": {"color": color, "size": size},
        "align": "left",
        **where,
    }


def write_notes(notes: Sequence[Figure], layout: Figure) -> tuple[list[Figure], list[Figure]]:
    """Returns the notes as a trace of texts, which a browser draws in a tenth of the time of Plotly's annotations; and
    those that only annotations can place. On a log axis a note stands at a logarithm."""
    free = [one for one in notes if one["yref"] == "paper" or "yshift" in one]
    texts = [one for one in notes if one not in free]
    start, end = layout["xaxis"].get("range", (0, 0))
    inside = 1e-9 * (end - start)  # what is at the very end of an axis is not drawn
    powers = {axis: layout[axis].get("type") == "log" for axis in ("xaxis", "yaxis")}
    xs = [one["x"] if one["xref"] == "x" else end - inside if one["x"] else start + inside for one in texts]
    gaps = ["\u00a0" * round(abs(one["xshift"]) / 2.5) for one in texts]
    ups = {"top": "bottom", "middle": "middle", "bottom": "top"}
    sides = {"left": "right", "center": "center", "right": "left"}
    trace = {
        "type": "scatter",
        "mode": "text",
        "x": [10**x if powers["xaxis"] else x for x in xs],
        "y": [10 ** one["y"] if powers["yaxis"] else one["y"] for one in texts],
        "text": [
            f"{one['text']}{gap}" if one["xshift"] < 0 else f"{gap}{one['text']}".replace("<br>", f"<br>{gap}")
            for one, gap in zip(texts, gaps, strict=True)
        ],
        "textposition": [f"{ups[one['yanchor']]} {sides[one['xanchor']]}" for one in texts],
        "textfont": {name: [one["font"][name] for one in texts] for name in ("color", "size")},
        "selected": {"textfont": {"color": STRONG}},  # with it the others keep theirs
        "hoverinfo": "skip",
        "cliponaxis": False,
    }
    return [trace] if texts else [], free


def write_margins(layout: Figure) -> Figure:
    """Returns the margins with the room of the axes' labels. Plotly's own `automargin` draws a new chart twice."""
    margin, x, y = {**BASE_MARGIN, **layout.get("margin", {})}, layout["xaxis"], layout["yaxis"]
    labels = x.get("ticktext", ())
    if angle := -x.get("tickangle", 0):
        rise = round(7 * max(map(len, labels)) * math.sin(math.radians(angle)))
    else:
        rise = 15 * max((1 + text.count("<br>") for text in labels), default=1)
    margin["t" if x.get("side") == "top" else "b"] += 4 + rise + 20 * bool(x["title"]["text"])
    if y.get("showticklabels", True):
        margin["l"] += 8 + round(6.3 * max(map(count_letters, y["ticktext"]), default=0))
    margin["l"] += 20 * bool(y["title"]["text"])
    return margin


def rule(axis: str, guide: Guide, scale: Scale) -> Figure:
    """Returns the line of a guide that stands at one value."""
    at = (guide.at or 0) / scale.factor
    across = {"x0": at, "x1": at, "y0": 0, "y1": 1, "xref": "x", "yref": "paper"}
    along = {"y0": at, "y1": at, "x0": 0, "x1": 1, "xref": "paper", "yref": "y"}
    line = {"color": RED if guide.is_limit else QUIET, "width": 1.4, "dash": "dash"}
    return {"type": "line", **(across if axis == "x" else along), "line": line, "layer": "below"}


def ticks(low: float, high: float, *, log: bool, most: int = 9) -> Figure:
    """Returns an axis with few round ticks; those of a narrow logarithmic one are as far apart as a linear one's."""
    kind = {"type": "log"} if log else {}
    if not log or high < 1.3 * low:
        most = min(most, 6)
        size = 10.0 ** math.floor(math.log10((high - low) / most or 1))
        step = next(size * one for one in (1, 2, 5, 10, 20) if (high - low) / size / one <= most)
        found = [step * one for one in range(math.ceil(low / step), math.floor(high / step) + 1)]
    else:
        powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
        fine = (1, 1.1, 1.2, 1.3, 1.4, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
        for steps in (fine, (1, 1.2, 1.5, 2, 3, 5, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
            found = [step * 10.0**power for power in powers for step in steps]
            found = [tick for tick in found if 0.97 * low <= tick <= 1.03 * high]
            if len(found) <= most:
                break
    return {**kind, "tickvals": found, "ticktext": [f"{tick:,.6g}" for tick in found]}


def tone_of(view: View) -> Callable[[Row], str]:
    """Returns the color of a number: around the center of a ratio in two hues, gray where its interval holds the
    center or is not known; else from little to much of one hue. A word has its own."""
    draw = view.draw
    logs = {value: math.log(value) for value in view.column(draw.value) if isinstance(value, int | float) and value > 0}
    center = math.log(draw.center) if draw.center else min(logs.values(), default=0.0)
    reach = max((abs(one - center) for one in logs.values()), default=1.0) or 1.0

    def tone(row: Row) -> str:
        if isinstance(value := view.get(row, draw.value), str):
            return tint(color_of(value, view.column(draw.value)), opacity=0.2)
        apart = (logs.get(value, center) - center) / reach
        if is_unsure(view, row):
            return tint(QUIET, opacity=0.10)
        return tint(PURPLE if apart >= 0 else ORANGE, opacity=0.06 + 0.56 * abs(apart))

    return tone


def break_label(label: str, *, most: int = 30) -> str:
    """Returns a label in lines of at most so many letters where it can be broken, for a phone."""
    lines = [""]
    for part in label.split(" · "):
        joined = f"{lines[-1]} · {part}" if lines[-1] else part
        lines = [*lines, part] if lines[-1] and len(joined) > most else [*lines[:-1], joined]
    return "<br>".join(lines)
