"""Keeps what readers zoomed into while new rows arrive, and in the address, so that links show it.

    keep_zoom()                        # once a page, after it has been drawn
    linked("timeline-left")            # what the address says of a card; None for nothing

    ?zoom=phases:x,0.5,3.25,y,-0.5,2   # a card, and the two ends of each axis that was zoomed, as Plotly counts

Streamlit builds a chart anew when its figure changes, and Plotly's `uirevision` only survives an update. `zoom.js`
remembers the axis ranges that a reader has set, for each card and `uirevision`, and sets them again on the new chart.
It writes them to the address itself, then tells the server, of which nothing but this fragment runs again. Drawings
that are no charts (the memory timeline) say in their own words where the reader is, by `window.__stepscopeViews`.
Limits: what is no range is ignored and leaves the address; at most `_MOST` cards.
"""

import re
from pathlib import Path

import streamlit as st

_PARAMETER, _KEY, _MOST = "zoom", "_zoom", 20
_ONE = re.compile(r"[\w-]{1,60}:[^\x00-\x1f]{1,300}")


@st.fragment
def keep_zoom() -> None:
    """Start watching; further calls change nothing."""
    script = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
    st.components.v2.component("stepscope_zoom", js=script)(key=_KEY, height=1, on_zoom_change=_heard)


def linked(card: str) -> str | None:
    """What the address says of where the reader is in this card: a stranger's text, unless the script wrote it."""
    start = f"{card}:"
    found = [text for text in st.query_params.get_all(_PARAMETER) if _ONE.fullmatch(text) and text.startswith(start)]
    return found[0].removeprefix(start) if found else None


def _heard() -> None:
    views = st.session_state[_KEY].zoom
    known = [view for view in views if isinstance(view, str) and _ONE.fullmatch(view)] if views else []
    if known:
        st.query_params[_PARAMETER] = known[:_MOST]
    else:
        st.query_params.pop(_PARAMETER, None)
