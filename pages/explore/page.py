"""How does a measured number depend on the settings? Any measure over any setting, with lines and panels by others."""

from typing import Any

import streamlit as st

from pages.explore.answers import answer, is_line, name_of, unit_of
from pages.explore.axes import label_of, order_values, title_of, value_of
from pages.explore.cell import draw_pinned, find_pinned
from pages.explore.choose import Plotted, choose_axes, choose_measure
from pages.explore.figures import Axes, PlotMark, explore_chart
from pages.figures.frame import escape_text
from pages.ui.card import Card, draw
from pages.ui.evidence import Among, of_cells, say
from pages.ui.frame import Frame, Page
from pages.ui.heading import draw_title
from pages.ui.pin import pin
from pages.ui.states import no_rows
from runner.results import ExploredCell
from runner.schema.titles import describe_status, title
from runner.store.queries.explore import Measure, WantedMeasure, load_explored


def page(frame: Frame) -> None:
    draw_title(
        frame, "Explore: any measure against any setting", question="How does a measured number depend on the settings?"
    )
    lead = st.empty()
    found = choose_measure(frame)
    if found is None:
        no_rows("No cell in this file has a result.", "Measure some: `python -m runner sweep`.")
        return
    wanted, measure, boxes = found
    rows = frame.ask(load_explored, wanted)
    asked = choose_axes(frame, wanted.table, rows, boxes=boxes)
    if asked is None:
        no_rows("No cell of this machine matches these filters.", "Clear some of them, or measure what is missing.")
        return
    words = answer(frame, asked, measure)
    own = all(row.machine == frame.selection.machine for row in asked.rows)
    among: Among = "own" if own else "all" if frame.selection.run else "latest"
    say(frame, words, of_cells(frame, asked.rows, among=among), at=lead)
    _draw(frame, asked, measure, wanted, words)
    draw_pinned(frame, wanted.table, asked.rows)


def _draw(frame: Frame, asked: Plotted, measure: Measure, wanted: WantedMeasure, words: str) -> None:
    choice, table = asked.choice, wanted.table
    fixed = " · ".join(f"{label_of(table, name).lower()} {value}" for name, value in asked.fixed.items())
    draw(
        frame,
        Card(
            key="explored",
            title=f"{name_of(measure)} over {label_of(table, choice.x).lower()}",
            note=(f"Of {fixed}. " if fixed else "") + "Click a mark to pin it.",
            alt=words,
            rows=[_make_row(frame, asked, measure, row) for row in asked.rows],
            cells=[row.cell for row in asked.rows],
        ),
        lambda: explore_chart([_make_mark(frame, asked, row) for row in asked.rows], _make_axes(frame, asked, measure)),
        on_click=pin,
    )


def _make_axes(frame: Frame, asked: Plotted, measure: Measure) -> Axes:
    choice = asked.choice

    def values(name: str | None) -> tuple[str, ...]:
        ordered = order_values(frame, choice.table, name, asked.rows) if name else ("",)
        return tuple(escape_text(str(value)) for value in ordered)

    return Axes(
        x=title_of(choice.table, choice.x),
        y=name_of(measure),
        unit=unit_of(measure),
        places=() if is_line(frame, asked) else values(choice.x),
        colors=values(choice.color),
        panels=values(choice.panel),
        scale=asked.scale,
        state=f"{choice} {measure.name} {measure.phase}",
    )


def _make_mark(frame: Frame, asked: Plotted, row: ExploredCell) -> PlotMark:
    choice = asked.choice
    own = row.machine == frame.selection.machine or "machine" in choice.used

    def text(name: str | None) -> str:
        return escape_text(str(value_of(frame, row, name))) if name else ""

    return PlotMark(
        x=text(choice.x) if isinstance(x := value_of(frame, row, choice.x), str) else x,
        y=row.value,
        cell_id=str(row.cell_id),
        color=text(choice.color),
        panel=text(choice.panel),
        machine="" if own else escape_text(row.machine),
        low=row.low,
        high=row.high,
        failure="" if row.status == "ok" else escape_text(describe_status(row)),
        words=title(row.cell),
        pinned=find_pinned([row]) is not None,
    )


def _make_row(frame: Frame, asked: Plotted, measure: Measure, row: ExploredCell) -> dict[str, Any]:
    table = asked.choice.table
    unit = f" ({measure.unit})" if measure.unit else ""
    interval = {"Low (ms)": row.low, "High (ms)": row.high} if measure.phase else {}
    return {
        **{title_of(table, name): value_of(frame, row, name) for name in asked.choice.axes},
        "Machine": row.machine,
        f"{name_of(measure)}{unit}": row.value,
        **interval,
        "Ended": "ok" if row.status == "ok" else describe_status(row),
        "Cell": title(row.cell),
    }


PAGE = Page(
    title="Explore",
    address="explore",
    icon=":material/query_stats:",
    draw=page,
    filters=("machine", "run", "size", "context", "precision", "backend"),
)
