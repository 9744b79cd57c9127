"""The answer as a chart. What is drawn is chosen beside it and kept in the URL.

draw_chart(frame, columns, query)
"""

from typing import Any, get_args

import streamlit as st

from pages.figures.headings import format_heading
from pages.sql.examples import EXAMPLES
from pages.sql.figures import (
    OTHERS,
    ChartChoice,
    Kind,
    figure,
    group_by_color,
    is_known,
    is_named,
    is_number,
    logarithmic,
    most_places,
    places_of,
)
from pages.ui.card import Card, draw
from pages.ui.chosen import mark_chosen, report_missing
from pages.ui.frame import Frame
from pages.ui.markdown import literal

NO_COLOR = "none"
#: Width of a box in pixels: two fit side by side on a phone.
_WIDTH = 168
_WORDS = {"bar": "Bars", "stacked": "Stacked bars", "line": "Lines", "scatter": "Points"}


def draw_chart(frame: Frame, columns: dict[str, list[Any]], query: str) -> None:
    """Draws the choosers and the card; a sentence where nothing can be drawn."""
    numbers = [name for name, values in columns.items() if is_number(values)]
    if not numbers or len(columns) < 2:
        st.caption("A chart needs two columns, one of them of numbers.")
        return
    choice = _choose(columns, numbers, start=_choose_start(columns, numbers, query))
    headings = [format_heading(name) for name in columns]
    if len(set(headings)) < len(headings):
        headings = list(columns)
    rows = [dict(zip(headings, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    by = f", a color for each {literal(choice.color)}" if choice.color else ""
    over = f"{literal(choice.y)} over {literal(choice.x)}"
    card = Card(
        key="sql-chart",
        title=f"{literal(format_heading(choice.y))} over {literal(format_heading(choice.x))}",
        note=_describe_gaps(columns, choice),
        alt=f"{_WORDS[choice.kind]} of {over}{by}, {len(rows)} rows of the answer.",
        rows=rows,
    )
    draw(frame, card, lambda: figure(columns, choice))


def _choose_start(columns: dict[str, list[Any]], numbers: list[str], query: str) -> ChartChoice:
    """Returns an example's own chart; else the last number over the first column that can be its x."""
    for example in EXAMPLES:
        if example.query == query.strip():
            return example.choice
    x = next(iter(columns))
    y = next((name for name in reversed(numbers) if name != x), numbers[0])
    few = [
        name
        for name, values in columns.items()
        if name not in (x, y) and not is_number(values) and 1 < len(set(map(str, values))) <= 10
    ]
    kind: Kind = "line" if x in numbers and len(set(columns[x])) > 2 else "bar"
    return ChartChoice(kind=kind, x=x, y=y, color=few[0] if few else None)


def _choose(columns: dict[str, list[Any]], numbers: list[str], *, start: ChartChoice) -> ChartChoice:
    names = list(columns)
    with st.container(horizontal=True, vertical_alignment="bottom", key="sql-choices"):
        kind = _choose_one("kind", "Chart", list(get_args(Kind)), start=start.kind)
        x = _choose_one("x", "x", names, start=start.x)
        y = _choose_one("y", "y", numbers, start=start.y)
        color = _choose_one("color", "Color", [NO_COLOR, *names], start=start.color or NO_COLOR)
        report_missing("sql-log", "Logarithmic", ("x", "y"))
        scales = st.pills(
            "Logarithmic", ("x", "y"), selection_mode="multi", default=start.logarithmic, key="sql-log",
            bind="query-params", width="content", on_change=mark_chosen, args=("sql-log",),
        )  # fmt: skip
    return ChartChoice(
        kind=next(known for known in get_args(Kind) if known == kind),
        x=x,
        y=y,
        color=None if color == NO_COLOR else color,
        logarithmic=tuple(scales),
    )


def _choose_one(name: str, label: str, options: list[str], *, start: str) -> str:
    key = f"sql-{name}"
    report_missing(key, label, options)
    if st.session_state.get(key, start) not in options:
        st.session_state.pop(key, None)
    default = options.index(start) if start in options else 0
    chosen: str = st.selectbox(
        label, options, index=default, key=key, bind="query-params", width=_WIDTH, on_change=mark_chosen, args=(key,),
        format_func=lambda value: _WORDS.get(value, value) if name == "kind" else value,
    )  # fmt: skip
    return chosen


def _describe_gaps(columns: dict[str, list[Any]], choice: ChartChoice) -> str:
    """Says what a reader could not know from the chart."""
    groups = group_by_color(columns, choice)
    notes = []
    if OTHERS in groups:
        notes.append(f"The colors of the first ten values of {literal(choice.color or '')}; the rest share gray.")
    names, most = len(places_of(columns, choice)), most_places(choice)
    if is_named(columns, choice) and names > most:
        notes.append(
            f"The first {most} of {names:,} values of {literal(format_heading(choice.x))} are drawn: choose them with "
            "ORDER BY and LIMIT, or GROUP BY something coarser."
        )
    pairs = zip(columns[choice.x], columns[choice.y], strict=True)
    hidden = sum(not (is_known(x) and is_known(y)) for x, y in pairs)
    if hidden:
        notes.append(f"{hidden:,} rows without a finite {literal(choice.x)} or {literal(choice.y)} are not drawn.")
    places = [(name, columns[choice.x][row]) for name, rows in groups.items() for row in rows]
    if choice.kind in ("bar", "stacked") and len(set(places)) < len(places):
        notes.append("Several rows share a bar's place: GROUP BY makes one bar of them.")
    axes = {"x": choice.x, "y": choice.y}
    linear = {axes[axis] for axis in choice.logarithmic} - set(logarithmic(columns, choice))
    notes += [f"{literal(name)} is not all above zero, so that its axis stays linear." for name in sorted(linear)]
    return " ".join(notes)
