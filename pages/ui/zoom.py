"""Keeps what readers zoomed into while new rows arrive, and in the address, so that links show it.

    keep_zoom()                        # once a page, after it has been drawn
    read_zoom()                        # for a link
    linked_zoom("timeline-left")         # what the address says of a card; None for nothing

    ?zoom=phases:x,0.5,3.25,y,-0.5,2   # a card, and the two ends of each axis that was zoomed, as Plotly counts

Streamlit builds a chart anew when its figure changes, and Plotly's `uirevision` only survives an update. `zoom.js`
remembers the axis ranges that a reader has set, for each card and `uirevision`, and sets them again on the new chart.
It writes them to the address itself and tells the server, of which nothing but this fragment runs again. Drawings
that are no charts (the memory timeline) say in their own words where the reader is, by `window.__stepscopeViews`.
Limits: what is no range is ignored and leaves the address; at most `_MOST` cards.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

PARAMETER, _KEY, _MOST = "zoom", "_zoom", 20
_ONE = re.compile(r"[\w-]{1,60}:[^\x00-\x1f]{1,300}")


@st.fragment
def keep_zoom() -> None:
    """Start watching; further calls change nothing."""
    script = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
    component = st.components.v2.component("stepscope_zoom", js=script)
    component(key=_KEY, height=1, default={PARAMETER: None}, on_zoom_change=lambda: None)


def read_zoom() -> list[str]:
    """What a link says of where the reader is: by the script, else by the address with which they came."""
    views = getattr(st.session_state.get(_KEY), PARAMETER, None)
    return _known(st.query_params.get_all(PARAMETER) if views is None else views)


def linked_zoom(card: str) -> str | None:
    """What the address says of where the reader is in this card: a stranger's text, unless the script wrote it."""
    start = f"{card}:"
    found = [text for text in _known(st.query_params.get_all(PARAMETER)) if text.startswith(start)]
    return found[0].removeprefix(start) if found else None


def _known(views: Sequence[Any]) -> list[str]:
    return [view for view in views if isinstance(view, str) and _ONE.fullmatch(view)][:_MOST]
