"""Any rows as a chart: bars, lines or points over any two columns, a color for each value of a third.

    figure({"context": [128, 256], "median_ms": [1.2, 2.3]}, ChartChoice(kind="line", x="context", y="median_ms"))

Rows keep their order on an axis of names; lines go from left to right. Known entities keep their colors. Limits:
`MAX_COLORS` values get a color of their own, the others share one; an axis has at most `MAX_BARS` or `MAX_NAMES` names,
cut to a length; infinity and NaN are not drawn.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go

from pages.figures.colors import FAMILIES, PALETTE, QUIET, color_of
from pages.figures.frame import escape_text, layout
from pages.figures.headings import format_heading
from pages.figures.rows import row_pixels, wrap_label
from runner.formats import cut_text

Kind = Literal["bar", "stacked", "line", "scatter"]
MAX_COLORS = len(PALETTE)
OTHERS = "others"
#: The most names on an axis: beside bars, and below lines and points.
MAX_BARS, MAX_NAMES = 50, 500
#: A line with more points than these has no markers.
_MARKED = 200


@dataclass(frozen=True, kw_only=True)
class ChartChoice:
    """What is drawn as what. `color` is None for a single color; `logarithmic` holds the names of such axes."""

    kind: Kind
    x: str
    y: str
    color: str | None = None
    logarithmic: tuple[str, ...] = ()


def figure(columns: Mapping[str, Sequence[Any]], choice: ChartChoice) -> go.Figure:
    """Draws the rows of `columns`, all of one length, as chosen. Bars over names are horizontal, so that long names can
    be read."""
    drawn = go.Figure()
    groups, horizontal = group_by_color(columns, choice), _is_horizontal(columns, choice)
    names = _name_values([columns[choice.x][row] for rows in groups.values() for row in rows])
    named = is_named(columns, choice)
    for index, (group, rows) in enumerate(groups.items()):
        x, y = ([columns[column][row] for row in rows] for column in (choice.x, choice.y))
        x = [names[value] for value in x] if named else x
        label = escape_text(cut_text(group)) or escape_text(format_heading(choice.y))
        drawn.add_trace(_make_trace(choice, label, x, y, _choose_color(group, index)))
        if horizontal:
            hover = _describe_point(choice, label, x="y", y="x")
            drawn.data[-1].update(x=y, y=x, orientation="h", hovertemplate=hover)
    places = list(dict.fromkeys(names.values()))
    labels = [wrap_label(place) for place in places] if horizontal else []
    bars = len(places) * (len(groups) if choice.kind == "bar" else 1)
    height = min(max(260, 110 + row_pixels(labels, least=30) * bars), 1600) if horizontal else 420
    drawn.update_layout(**layout(height=height, state=repr(choice), legend=len(groups) > 1))
    drawn.update_layout(barmode="stack" if choice.kind == "stacked" else "group")
    across, up = (choice.y, choice.x) if horizontal else (choice.x, choice.y)
    for update, name in ((drawn.update_xaxes, across), (drawn.update_yaxes, up)):
        update(title=escape_text(format_heading(name)), automargin=True, **_axis_of(columns, choice, name, places))
    if horizontal:
        drawn.update_yaxes(autorange="reversed", title=None, tickvals=places, ticktext=labels)
    return drawn


def _axis_of(columns: Mapping[str, Sequence[Any]], choice: ChartChoice, name: str, places: list[str]) -> dict[str, Any]:
    """Returns the kind of an axis, and how its numbers are written."""
    if _is_time(columns[name]):
        return {"type": "date"}
    if not is_number(columns[name]):
        return {"type": "category", "categoryorder": "array", "categoryarray": places}
    if name in logarithmic(columns, choice):
        return {"type": "log", "dtick": _choose_ticks(columns[name])}
    return {"tickformat": "~s" if _is_large(columns[name]) else ",~g"}


def group_by_color(columns: Mapping[str, Sequence[Any]], choice: ChartChoice) -> dict[str, list[int]]:
    """Returns the numbers of the rows of each color, in drawing order. Rows without x or y are left out, and names
    beyond the most that an axis can have (`places_of`)."""
    names = ["" if choice.color is None else _format_value(value) for value in columns[choice.color or choice.y]]
    kept = list(dict.fromkeys(names))[:MAX_COLORS]
    places = set(places_of(columns, choice)[: most_places(choice)]) if is_named(columns, choice) else None
    groups: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        x, y = columns[choice.x][row], columns[choice.y][row]
        if is_known(x) and is_known(y) and (places is None or x in places):
            groups.setdefault(name if name in kept else OTHERS, []).append(row)
    if choice.kind == "line" and not is_named(columns, choice):
        return {name: sorted(rows, key=lambda row: columns[choice.x][row]) for name, rows in groups.items()}
    return groups


def places_of(columns: Mapping[str, Sequence[Any]], choice: ChartChoice) -> list[Hashable]:
    """Returns the different values of x that have a y, in the order of the rows."""
    pairs = zip(columns[choice.x], columns[choice.y], strict=True)
    return list(dict.fromkeys(x for x, y in pairs if is_known(x) and is_known(y)))


def most_places(choice: ChartChoice) -> int:
    return MAX_BARS if choice.kind in ("bar", "stacked") else MAX_NAMES


def is_named(columns: Mapping[str, Sequence[Any]], choice: ChartChoice) -> bool:
    """Returns whether x is an axis of names, neither of numbers nor of times."""
    return not is_number(columns[choice.x]) and not _is_time(columns[choice.x])


def logarithmic(columns: Mapping[str, Sequence[Any]], choice: ChartChoice) -> tuple[str, ...]:
    """Returns the chosen logarithmic axes that can be so: numbers, all above 0."""
    axes = {"x": choice.x, "y": choice.y}
    names = (axes[axis] for axis in choice.logarithmic)
    return tuple(name for name in names if is_number(columns[name]) and min(_keep_known(columns[name]), default=0) > 0)


def is_number(values: Sequence[Any]) -> bool:
    """Returns whether a column holds numbers; unknown values do not count."""
    known = _keep_known(values)
    return bool(known) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)


def _make_trace(choice: ChartChoice, name: str, x: list[Any], y: list[Any], color: str) -> Any:
    hover = _describe_point(choice, name, x="x", y="y")
    if choice.kind in ("bar", "stacked"):
        return go.Bar(name=name, x=x, y=y, marker_color=color, hovertemplate=hover)
    return go.Scatter(
        name=name,
        x=x,
        y=y,
        mode=_choose_mode(choice, len(x)),
        line={"color": color, "width": 2},
        marker={"color": color, "size": 7, "opacity": 0.85},
        hovertemplate=hover,
    )


def _choose_mode(choice: ChartChoice, points: int) -> str:
    if choice.kind == "scatter":
        return "markers"
    return "lines+markers" if points <= _MARKED else "lines"


def _describe_point(choice: ChartChoice, name: str, *, x: str, y: str) -> str:
    across, up = (escape_text(format_heading(column)) for column in (choice.x, choice.y))
    return f"{across} %{{{x}}}<br>{up} %{{{y}:.4~g}}<extra>{name}</extra>"


def _is_horizontal(columns: Mapping[str, Sequence[Any]], choice: ChartChoice) -> bool:
    return choice.kind in ("bar", "stacked") and is_named(columns, choice)


def _name_values(values: Sequence[Hashable]) -> dict[Hashable, str]:
    """Returns a short, different name for each value."""
    found: dict[Hashable, str] = {}
    taken: dict[str, int] = {}
    for value in dict.fromkeys(values):
        name = escape_text(cut_text(_format_value(value)))
        taken[name] = taken.get(name, 0) + 1
        found[value] = name if taken[name] == 1 else f"{name} ({taken[name]})"
    return found


def is_known(value: Any) -> bool:
    """Returns whether a value can be drawn: infinity and NaN cannot."""
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


def _choose_color(name: str, index: int) -> str:
    if name == OTHERS:
        return QUIET
    known = any(name in family for family in FAMILIES.values())
    return color_of(name) if known else PALETTE[index % MAX_COLORS]


def _keep_known(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if is_known(value)]


def _format_value(value: Any) -> str:
    return "unknown" if value is None else f"{value}"


def _is_time(values: Sequence[Any]) -> bool:
    return bool(_keep_known(values)) and all(hasattr(value, "isoformat") for value in _keep_known(values))


def _is_large(values: Sequence[Any]) -> bool:
    return max(map(abs, _keep_known(values)), default=0) >= 10_000


def _choose_ticks(values: Sequence[Any]) -> int | None:
    """Returns the steps of ticks: whole decades only, where there are many."""
    known = _keep_known(values)
    return 1 if max(known) / min(known) > 300 else None
