"""The head of a page: what it is about, the question that it answers, and the filters in force, which a click takes
off."""

from functools import partial

import streamlit as st

from pages.ui.filters import list_filters_in_force, remove_filter
from pages.ui.frame import Frame
from pages.ui.markdown import literal, restrict
from pages.ui.notes import draw_run_notes
from pages.ui.sections import keep_contents


def draw_title(frame: Frame, title: str, *, question: str) -> None:
    """Draws the title, which names the subject first, with the question below it, the filters and the contents."""
    st.title(restrict(title), anchor=False)
    st.caption(restrict(question))
    in_force = list_filters_in_force(frame.filters)
    if in_force:
        with st.container(horizontal=True, gap="xxsmall", key="_chips"):
            for number, (name, label, value) in enumerate(in_force):
                st.button(
                    restrict(f"{literal(label)}: {literal(value)}"),
                    key=f"_chip-{number}",
                    icon=":material/close:",
                    icon_position="right",
                    help="Take this filter off",
                    on_click=partial(remove_filter, name, value),
                )
    if frame.selection.run is not None and "run" in frame.filters:
        draw_run_notes(frame, [frame.selection.run])
    keep_contents(frame)
