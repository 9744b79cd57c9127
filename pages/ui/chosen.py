"""Choosers whose value lives in the URL. A value of the link that does not exist is reported, not dropped.

    mode = chosen("peak-mode", "Mode", ["train", "inference"], default="train")      # buttons
    cell = select_one("parts-of", "Cell", names)                                     # a box

A widget of another kind calls `report_missing` before it is drawn and has `on_change=mark_chosen, args=(key,)`. The
values are reported above the page (`missing_choices`) until the reader chooses another or leaves the page.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Literal, TypeVar

import streamlit as st

from pages.ui.frame import Frame
from pages.ui.markdown import is_plain
from runner.store.queries.selection import Selection

T = TypeVar("T", bound=Hashable)
_NOTES = "_gone"
#: Letters that fit on a line of buttons, and those that the frame of each takes.
_LINE, _FRAME = 120, 5


def chosen(key: str, label: str, options: Sequence[str], *, default: str | None = None) -> str:
    """Returns one of `options`, which must not be empty, from buttons. It is a box where the buttons need more than a
    line or where Markdown, which buttons show and boxes do not, would change an option."""
    if sum(map(len, options)) + _FRAME * len(options) > _LINE or not all(map(is_plain, options)):
        return select_one(key, label, options, default=default)
    start = _find_start(key, label, options, default)
    value = st.segmented_control(
        label, options, default=start, required=True, key=key, bind="query-params", wrap=True, on_change=mark_chosen,
        args=(key,),
    )  # fmt: skip
    return value or start


def select_one(
    key: str,
    label: str,
    options: Sequence[str],
    *,
    default: str | None = None,
    width: Literal["stretch"] | int = "stretch",
    known: Sequence[str] = (),
) -> str:
    """Returns one of `options`, which must not be empty, from a box. Missing values that are `known` are not
    reported."""
    start = _find_start(key, label, options, default, known)
    value = st.selectbox(
        label,
        options,
        index=list(options).index(start),
        key=key,
        bind="query-params",
        width=width,
        on_change=mark_chosen,
        args=(key,),
    )
    return value or start


def _find_start(key: str, label: str, options: Sequence[str], default: str | None, known: Sequence[str] = ()) -> str:
    """Returns the choice where neither reader nor link made one, and forgets a choice that is no longer an option."""
    report_missing(key, label, (*options, *known))
    start = default if default is not None and default in options else options[0]
    if st.session_state.get(key, start) not in options:
        del st.session_state[key]
    return start


def most_common(values: Iterable[T]) -> T:
    """Returns the most frequent value; of equally frequent ones the first."""
    return Counter(values).most_common(1)[0][0]


def rows_of(frame: Frame) -> Selection:
    """Returns the machine and the run of the sidebar: the filters of tables other than `steps`."""
    return Selection(machine=frame.selection.machine, run=frame.selection.run, hidden=frame.selection.hidden)


# ---------------------------------------------------------------------------- what a link asks for and the file lacks


def report_missing(key: str, label: str, options: Collection[str]) -> None:
    """Remembers which values of the URL are not among `options`: Streamlit drops them from it."""
    notes = _load_notes()
    if wanted := [value for value in st.query_params.get_all(key) if value]:
        notes[key] = (label, wanted)
    label, wanted = notes.get(key, (label, []))
    notes[key] = (label, [value for value in wanted if value not in options])


def mark_chosen(key: str) -> None:
    """Forgets the missing values of a chooser, once the reader has chosen."""
    _load_notes().pop(key, None)


def missing_choices() -> list[tuple[str, list[str]]]:
    """Returns the label of each chooser whose values in the link are missing, and those values."""
    return [(label, values) for label, values in _load_notes().values() if values]


def forget_missing() -> None:
    """Forgets all missing values."""
    st.session_state.pop(_NOTES, None)


def _load_notes() -> dict[str, tuple[str, list[str]]]:
    notes: dict[str, tuple[str, list[str]]] = st.session_state.setdefault(_NOTES, {})
    return notes
