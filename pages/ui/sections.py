"""The sections of a page: headings that can be linked, and a table of contents above them.

draw_heading(frame, "How does the time grow?", anchor="time")
"""

import streamlit as st

from pages.ui.frame import Frame
from pages.ui.markdown import restrict


def draw_heading(frame: Frame, title: str, *, anchor: str) -> None:
    """Draws a heading with an address of its own."""
    st.header(restrict(title), anchor=anchor)
