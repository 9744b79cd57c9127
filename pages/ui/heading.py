"""The head of a page: what it is about, and the question that it answers."""

import streamlit as st

from pages.ui.markdown import restrict


def draw_title(title: str, *, question: str) -> None:
    """Draws the title, which names the subject first, with the question below it."""
    st.title(restrict(title), anchor=False)
    st.caption(restrict(question))
