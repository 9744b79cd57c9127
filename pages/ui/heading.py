"""The head of a page: what it is about, and the question that it answers."""

import streamlit as st


def draw_title(title: str, *, question: str) -> None:
    """Draws the title, which names the subject first, with the question below it."""
    st.title(title, anchor=False)
    st.caption(question)
