"""Rows of a table of the file, as the Data page shows them and gives them away.

show(frame, TABLES["steps"], Window(limit=200))
"""

from typing import Any

import pandas as pd
import streamlit as st

from pages.ui.frame import Frame
from runner.schema import Column, Table
from runner.store.queries import rows as stored
from runner.store.queries.tables import Window


def frame_of(frame: Frame, table: Table, window: Window) -> pd.DataFrame:
    """The rows in the schema's columns, under their own names; whole numbers stay whole where some are unknown."""
    rows = frame.ask(stored.page, table.name, frame.selection, window).rows
    found = pd.DataFrame(rows, columns=[column.name for column in table.columns])
    return found.astype({column.name: "Int64" for column in table.columns if column.type is int})


def show(frame: Frame, table: Table, window: Window) -> None:
    """The rows under the schema's labels; hovering a heading shows what it means. Empty columns come last."""
    rows = frame_of(frame, table, window)
    rows = rows.astype({column.name: str for column in table.columns if column.sql_type == "UUID"})
    ids = {column.name for column in table.columns if column.sql_type == "UUID" or column.name.endswith("_key")}
    order = sorted(rows.columns, key=lambda name: 2 * bool(len(rows) and rows[name].isna().all()) + (name in ids))
    config = {c.name: _heading(c) for c in table.columns}
    st.dataframe(
        rows,
        hide_index=True,
        column_config=config,
        column_order=order,
        key=f"rows-{table.name}",
        height=520,
        placeholder="",
        alt=f"Rows of {table.name}.",
    )


def _heading(column: Column) -> Any:
    """Whole numbers have separators."""
    words = f"`{column.name}`: {column.doc}"
    if column.type is int:
        return st.column_config.NumberColumn(column.title, help=words, format="localized")
    return st.column_config.Column(column.title, help=words)
