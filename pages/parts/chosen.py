"""A chooser whose value lives in the URL; a value of the link that is not there is reported instead of dropped.

mode = chosen("peak-mode", "Mode", ["train", "inference"], default="train")
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import streamlit as st

from pages.parts.frame import Frame
from runner.store.queries.latest import Rows

T = TypeVar("T", bound=Hashable)


def chosen(key: str, label: str, options: Sequence[str], *, default: str | None = None) -> str:
    """One of `options`, which must not be empty."""
    gone = [value for value in st.query_params.get_all(key) if value and value not in options]
    if gone:
        words = f"The link asks for {label.lower()} “{'”, “'.join(gone)}”, which is not in this file."
        st.warning(words, icon=":material/link_off:")
    start = default if default and default in options else options[0]
    if st.session_state.get(key, start) not in options:
        del st.session_state[key]
    value = st.segmented_control(label, options, default=start, required=True, key=key, bind="query-params", wrap=True)
    return value or start


def most_common(values: Iterable[T]) -> T:
    """The most frequent value; of equally frequent ones the first."""
    return Counter(values).most_common(1)[0][0]


def rows_of(frame: Frame) -> Rows:
    """The machine and the run of the sidebar: what narrows rows that are not of `steps`."""
    return Rows(machine=frame.selection.machine, run=frame.selection.run)
