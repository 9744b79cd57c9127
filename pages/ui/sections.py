"""The sections of a page: headings that can be linked, a line of contents above them, and cards that are folded until a
reader opens them.

    draw_heading(frame, "How does the time grow with the length?", anchor="time")
    ...
    draw_contents(frame)                 # once, after the page has been drawn: fills the place that its title keeps
    if (box := fold("What fits", key="frontier")).open: ...

A folded card that a reader has opened is a parameter of the address, `show-frontier=true`.
"""

from html import escape
from typing import Any

import streamlit as st

from pages.ui.frame import Frame
from pages.ui.markdown import plain, restrict

#: A page of fewer sections needs no contents.
_MIN_HEADINGS = 3
#: What the key of a folded card begins with; a link has those that are open.
FOLDED = "show-"
_PLACE = "contents"


def draw_heading(frame: Frame, title: str, *, anchor: str, short: str = "") -> None:
    """Draws a heading with an address of its own, and remembers it for the contents, by its `short` name if any."""
    st.header(restrict(title), anchor=anchor)
    frame.headings.append((anchor, short or plain(title)))


def keep_contents(frame: Frame) -> None:
    """Keeps the place for the contents."""
    frame.places[_PLACE] = st.empty()


def draw_contents(frame: Frame) -> None:
    """Draws a link to each heading of the page, side by side; on a phone the line scrolls."""
    if _PLACE not in frame.places or len(frame.headings) < _MIN_HEADINGS:
        return
    links = "".join(f'<a href="#{escape(anchor)}">{escape(title)}</a>' for anchor, title in frame.headings)
    frame.places[_PLACE].html(f'<nav class="contents" aria-label="On this page">{links}</nav>')


def fold(title: str, *, key: str) -> Any:
    """Returns a box that is closed until a reader opens it or comes by a link to what is inside. Its `.open` says
    whether to draw: what nobody sees costs nothing."""
    name = f"{FOLDED}{key}"
    if name not in st.session_state and f"{key}-as" in st.query_params:
        st.session_state[name] = True
    return st.expander(restrict(f"{title}: chart and table"), key=name, bind="query-params")
