"""Any rows as a picture: bars, lines or points over any two columns, one color for each value of a third.

    figure({"context": [128, 256], "median_ms": [1.2, 2.3]}, Choice(kind="line", x="context", y="median_ms"))

Rows keep their order on an axis of names; lines go from left to right. Colors are those of the entities everywhere
else, where the values are such. Limits: `MOST_COLORS` values get a color of their own, the others share one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go

from pages.charts.colors import FAMILIES, PALETTE, QUIET, color_of
from pages.charts.frame import layout
from pages.charts.rows import folded, row_pixels
from runner.schema import TABLES

Kind = Literal["bar", "stacked", "line", "scatter"]
MOST_COLORS = len(PALETTE)
OTHERS = "others"

#: What the names of columns end with, and the unit that this says; the longer ending counts.
_ENDINGS = {
    "_flops_per_s": "FLOP/s",
    "_bytes_per_s": "bytes/s",
    "tokens_per_s": "tokens/s",
    "_ms": "ms",
    "_bytes": "bytes",
    "_seconds": "s",
}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What is drawn as what. `color` is None for a single color; `logarithmic` holds the names of such axes."""

    kind: Kind
    x: str
    y: str
    color: str | None = None
    logarithmic: tuple[str, ...] = ()


def heading(name: str) -> str:
    """A column of an answer as a heading: the schema's label and unit if the name means one thing in it, else the name
    with the unit that its ending says."""
    titles = {column.title for table in TABLES.values() for column in table.columns if column.name == name}
    if len(titles) == 1:
        return titles.pop()
    unit = next((unit for ending, unit in _ENDINGS.items() if name.endswith(ending)), "")
    return f"{name} ({unit})" if unit else name


def figure(columns: Mapping[str, Sequence[Any]], choice: Choice) -> go.Figure:
    """The rows of `columns`, all of one length, as chosen. Bars over names lie, so that long names can be read."""
    drawn = go.Figure()
    groups, lying = grouped(columns, choice), _lies(columns, choice)
    for index, (name, rows) in enumerate(groups.items()):
        x, y = ([columns[column][row] for row in rows] for column in (choice.x, choice.y))
        drawn.add_trace(_trace(choice, name or heading(choice.y), x, y, _color(name, index)))
        if lying:
            drawn.data[-1].update(x=y, y=x, orientation="h", hovertemplate=_hover(choice, name, x="y", y="x"))
    bars = len(set(map(str, columns[choice.x]))) * (len(groups) if choice.kind == "bar" else 1)
    places = list(dict.fromkeys(columns[choice.x]))
    labels = [folded(_text(place)) for place in places] if lying else []
    height = min(max(260, 110 + row_pixels(labels, least=30) * bars), 1600) if lying else 420
    drawn.update_layout(**layout(height=height, state=repr(choice), legend=len(groups) > 1))
    drawn.update_layout(barmode="stack" if choice.kind == "stacked" else "group")
    across, up = (choice.y, choice.x) if lying else (choice.x, choice.y)
    for update, name in ((drawn.update_xaxes, across), (drawn.update_yaxes, up)):
        update(title=heading(name), automargin=True)
        if not is_number(columns[name]):
            if _is_time(columns[name]):
                update(type="date")
            else:
                update(type="category", categoryorder="array", categoryarray=list(dict.fromkeys(columns[name])))
            if lying:
                update(autorange="reversed", title=None, tickvals=places, ticktext=labels)
        elif name in logarithmic(columns, choice):
            update(type="log", dtick=_log_ticks(columns[name]))
        else:
            update(tickformat="~s" if _is_large(columns[name]) else ",~g")
    return drawn


def grouped(columns: Mapping[str, Sequence[Any]], choice: Choice) -> dict[str, list[int]]:
    """The numbers of the rows of each color, in the order in which they are drawn; rows without a y are left out."""
    names = ["" if choice.color is None else _text(value) for value in columns[choice.color or choice.y]]
    kept = list(dict.fromkeys(names))[:MOST_COLORS]
    groups: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        if columns[choice.x][row] is not None and columns[choice.y][row] is not None:
            groups.setdefault(name if name in kept else OTHERS, []).append(row)
    if choice.kind == "line":
        return {name: sorted(rows, key=lambda row: columns[choice.x][row]) for name, rows in groups.items()}
    return groups


def logarithmic(columns: Mapping[str, Sequence[Any]], choice: Choice) -> tuple[str, ...]:
    """The chosen logarithmic axes that can be so: numbers, and none of them 0 or less."""
    asked = {"x": choice.x, "y": choice.y}
    names = (asked[axis] for axis in choice.logarithmic)
    return tuple(name for name in names if is_number(columns[name]) and min(_known(columns[name]), default=0) > 0)


def is_number(values: Sequence[Any]) -> bool:
    """Whether a column is one of numbers; what is unknown does not count."""
    known = _known(values)
    return bool(known) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)


def _trace(choice: Choice, name: str, x: list[Any], y: list[Any], color: str) -> Any:
    hover = _hover(choice, name, x="x", y="y")
    if choice.kind in ("bar", "stacked"):
        return go.Bar(name=name, x=x, y=y, marker_color=color, hovertemplate=hover)
    return go.Scatter(
        name=name,
        x=x,
        y=y,
        mode="lines+markers" if choice.kind == "line" and len(x) <= 200 else choice.kind.replace("scatter", "markers"),
        line={"color": color, "width": 2},
        marker={"color": color, "size": 7, "opacity": 0.85},
        hovertemplate=hover,
    )


def _hover(choice: Choice, name: str, *, x: str, y: str) -> str:
    return f"{heading(choice.x)} %{{{x}}}<br>{heading(choice.y)} %{{{y}:.4~g}}<extra>{name}</extra>"


def _lies(columns: Mapping[str, Sequence[Any]], choice: Choice) -> bool:
    values = columns[choice.x]
    return choice.kind in ("bar", "stacked") and not is_number(values) and not _is_time(values)


def _color(name: str, index: int) -> str:
    if name == OTHERS:
        return QUIET
    known = any(name in family for family in FAMILIES.values())
    return color_of(name) if known else PALETTE[index % MOST_COLORS]


def _known(values: Sequence[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def _text(value: Any) -> str:
    return "unknown" if value is None else f"{value}"


def _is_time(values: Sequence[Any]) -> bool:
    return bool(_known(values)) and all(hasattr(value, "isoformat") for value in _known(values))


def _is_large(values: Sequence[Any]) -> bool:
    return max(map(abs, _known(values)), default=0) >= 10_000


def _log_ticks(values: Sequence[Any]) -> int | None:
    """Whole decades only, where there are many."""
    known = _known(values)
    return 1 if max(known) / min(known) > 300 else None
