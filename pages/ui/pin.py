"""The cell that the reader looks into: kept in the URL as `?cell=<id>`, so that new rows and reloads do not lose it.

draw(frame, card, figure, on_click=pin)
cell = choose(cells, elsewhere=lambda cell_id: frame.ask(find, cell_id))
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar
from uuid import UUID

import streamlit as st

from pages.ui.chosen import mark_chosen, report_missing
from runner.results import AttentionResult, Peak, StepResult
from runner.schema import Cell
from runner.schema.titles import title

Pinned = TypeVar("Pinned", StepResult, AttentionResult, Peak)
_PARAMETER = "cell"
#: The key of the box, to which its number is added, and where that number is kept.
BOX, _NUMBER = "_cell", "_cell-box"


def pin(cell_id: str) -> None:
    st.query_params[_PARAMETER] = cell_id


def choose(cells: Sequence[Pinned], *, elsewhere: Callable[[UUID], Pinned | None]) -> Pinned | None:
    """Returns the pinned cell, from a box to choose another; None if none is. `elsewhere` finds cells not on the
    page."""
    known = {str(cell.cell_id): cell for cell in cells}
    pinned = st.query_params.get(_PARAMETER)
    if pinned and pinned not in known:
        loaded = elsewhere(UUID(pinned)) if _is_id(pinned) else None
        if loaded is not None:
            known[pinned] = loaded
    report_missing(_PARAMETER, "Cell", known)
    if pinned and pinned not in known:
        del st.query_params[_PARAMETER]
        pinned = None
    box = _find_box(pinned)
    chosen = st.selectbox(
        "Cell",
        list(known),
        index=list(known).index(pinned) if pinned else None,
        key=box,
        format_func=lambda key: _describe(known[key].cell, known[key].status),
        on_change=_store_choice,
        args=(box,),
        placeholder="Click a mark above, or choose a cell",
    )
    return known[chosen] if chosen else None


def _find_box(pinned: str | None) -> str:
    """Returns the key of the box: a new one where the cell was pinned elsewhere, as by a click in a chart.

    Setting the value of the old box instead would lose the cell on a busy server: a rerun that the browser asks for
    before it has drawn the new value still says that nothing is chosen, as if the reader had emptied the box."""
    number = st.session_state.get(_NUMBER, 0)
    if st.session_state.get(f"{BOX}{number}", pinned) != pinned:
        number += 1
    st.session_state[_NUMBER] = number
    return f"{BOX}{number}"


def _store_choice(box: str) -> None:
    mark_chosen(_PARAMETER)
    if st.session_state[box]:
        pin(st.session_state[box])
    else:
        st.query_params.pop(_PARAMETER, None)


@lru_cache(maxsize=10_000)
def _describe(cell: Cell, status: str) -> str:
    return title(cell) + ("" if status == "ok" else f" — {status}")


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
