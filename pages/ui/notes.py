"""What people said of runs and cells, where these appear. All of it is text of others: it is shown letter by letter.

draw_run_notes(frame, [run_id]); draw_cell_notes(frame, cells)
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import streamlit as st

from pages.ui.frame import Frame
from pages.ui.markdown import literal, restrict
from runner.schema.titles import title

#: More notes than these stand in the table `notes` of the page Data.
_MAX_SHOWN = 5


def draw_run_notes(frame: Frame, runs: Sequence[UUID]) -> None:
    """Draws what was said of these runs."""
    names = {run.run_id: run.name for run in frame.contents.runs}
    said = frame.contents.notes.of_runs
    _draw([f"**{literal(names[run])}:** {literal(text)}" for run in runs if run in names for text in said.get(run, ())])


def draw_cell_notes(frame: Frame, cells: Sequence[Any]) -> None:
    """Draws what was said of these cells, which are rows of any query."""
    said = frame.contents.notes.of_cells
    if said:
        lines = [(title(one.cell), text) for one in cells for text in said.get(one.cell_id, ())]
        _draw([f"**{literal(name)}:** {literal(text)}" for name, text in lines])


def _draw(lines: Sequence[str]) -> None:
    if not lines:
        return
    more = f"  \n{len(lines) - _MAX_SHOWN:,} more are in the table `notes` of the page Data."
    words = "  \n".join(lines[:_MAX_SHOWN]) + (more if len(lines) > _MAX_SHOWN else "")
    st.info(restrict(words), icon=":material/sticky_note_2:")
