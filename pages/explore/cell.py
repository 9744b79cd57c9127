"""The cell that the reader clicked on: its samples and its stored row.

draw_pinned(frame, "memory", rows)
"""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from pages.ui.chosen import rows_of
from pages.ui.frame import Frame
from pages.ui.markdown import literal, restrict
from pages.ui.samples import draw_attention_samples, draw_samples
from pages.ui.sections import draw_heading
from runner.results import ExploredCell
from runner.schema import TABLES
from runner.schema.titles import title
from runner.store.queries import explore
from runner.store.queries.attention import load_attention


def find_pinned(rows: Sequence[ExploredCell]) -> ExploredCell | None:
    """Returns the row of the cell in the URL."""
    asked = st.query_params.get("cell")
    return next((row for row in rows if str(row.cell_id) == asked), None)


def draw_pinned(frame: Frame, table: str, rows: Sequence[ExploredCell]) -> None:
    """Draws the samples and the stored row of the pinned cell, or a hint."""
    held = find_pinned(rows)
    if table == "steps":
        draw_samples(frame, frame.measured())
    elif table == "attention":
        draw_attention_samples(frame, frame.ask(load_attention, rows_of(frame)))
    elif held is None:
        st.caption("Click a mark to see everything that is stored of its cell.")
    if held is None:
        return
    draw_heading(frame, "Everything stored about the cell", anchor="stored")
    st.caption(restrict(f"{title(held.cell)} · {literal(held.machine)}"))
    st.dataframe(
        _list_columns(frame, table, held), hide_index=True, height=320, key="_stored", alt="The row, by column."
    )


def _list_columns(frame: Frame, table: str, held: ExploredCell) -> list[dict[str, Any]]:
    row = frame.ask(explore.load_row, table, held.cell_id)
    return [
        {"Column": column.label, "Value": _format_value(row[column.name]), "Unit": column.unit, "Meaning": column.doc}
        for column in TABLES[table].columns
        if row.get(column.name) is not None
    ]


def _format_value(value: Any) -> str:
    return f"{value:,}" if type(value) is int else f"{value:.6g}" if isinstance(value, float) else str(value)
