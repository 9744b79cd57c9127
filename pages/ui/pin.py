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
_PARAMETER, _WIDGET = "cell", "_cell"


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
    st.session_state[_WIDGET] = pinned if pinned in known else None
    chosen = st.selectbox(
        "Cell",
        list(known),
        index=None,
        key=_WIDGET,
        format_func=lambda key: _describe(known[key].cell, known[key].status),
        on_change=_store_choice,
        placeholder="Click a mark above, or choose a cell",
    )
    return known[chosen] if chosen else None


def _store_choice() -> None:
    mark_chosen(_PARAMETER)
    if st.session_state[_WIDGET]:
        pin(st.session_state[_WIDGET])
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
