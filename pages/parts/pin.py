"""The cell that the reader looks into: kept in the URL as `?cell=<id>`, so that new rows and reloads do not lose it.

draw(frame, card, figure, on_click=pin)
cell = choose(frame, cells)
"""

from collections.abc import Sequence
from functools import lru_cache
from uuid import UUID

import streamlit as st

from pages.parts.frame import Frame
from runner.schema import StepCell
from runner.store.queries.steps import Measured, find
from runner.words import title

_PARAMETER, _WIDGET = "cell", "cell-chosen"


def pin(cell_id: str) -> None:
    """Look into this cell from now on."""
    st.query_params[_PARAMETER] = cell_id


def choose(frame: Frame, cells: Sequence[Measured]) -> Measured | None:
    """The pinned cell, with a box to choose another; None if none is pinned."""
    known = {str(cell.cell_id): cell for cell in cells}
    asked = st.query_params.get(_PARAMETER)
    if asked and asked not in known:
        elsewhere = frame.ask(find, UUID(asked)) if _is_id(asked) else None
        if elsewhere is None:
            st.warning(f"The link asks for the cell `{asked}`, which is not in this file.", icon=":material/link_off:")
        else:
            known[asked] = elsewhere
    st.session_state[_WIDGET] = asked if asked in known else None
    chosen = st.selectbox(
        "Cell",
        list(known),
        index=None,
        key=_WIDGET,
        format_func=lambda key: _words(known[key]),
        on_change=_chosen,
        placeholder="Click a mark above, or choose a cell",
    )
    return known[chosen] if chosen else None


def _chosen() -> None:
    if st.session_state[_WIDGET]:
        pin(st.session_state[_WIDGET])
    else:
        st.query_params.pop(_PARAMETER, None)


def _words(cell: Measured) -> str:
    return _title(cell.cell) + ("" if cell.status == "ok" else f" — {cell.status}")


@lru_cache(maxsize=10_000)
def _title(cell: StepCell) -> str:
    return title(cell)


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
