"""The mark of reference rows, on every page that shows them, and what becomes of them where they cannot be opened.

mark_page(frame)
"""

import streamlit as st

from pages.ui.frame import Frame
from pages.ui.markdown import literal, quoted, restrict
from runner.errors import StoreError
from runner.store.reference import MEASURE, describe_reference, find_stand_in, is_reference


def mark_page(frame: Frame) -> None:
    """Says above a page whose rows these are, and what brings the reader's own; nothing above their own."""
    if is_reference(frame.path):
        words = literal(describe_reference([run.device_name for run in frame.contents.runs]))
        with st.container(border=True, key="_reference"):
            st.markdown(restrict(f":material/bookmark: **Reference** {words} Measure your own: {quoted(MEASURE)}"))


def explain_missing() -> None:
    """Says on a page without rows why there are no reference rows either, where they cannot be opened."""
    try:
        find_stand_in()
    except StoreError as error:
        words = f"The reference rows that come with Stepscope cannot be opened: {literal(str(error))}"
        st.warning(restrict(words), icon=":material/broken_image:")
