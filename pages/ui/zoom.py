"""Keeps what readers zoomed into while new rows arrive, and in the address, so that links show it.

    keep_zoom()                        # once a page, after it has been drawn
    read_zoom()                        # for a link
    linked_zoom("timeline-left")       # the address's view of a card; None for nothing

    ?zoom=phases:x,0.5,3.25,y,-0.5,2   # a card, and the two ends of each axis that was zoomed, as Plotly counts

Streamlit builds a chart anew when its figure changes, and Plotly's `uirevision` only survives an update. `zoom.js`
remembers the axis ranges that a reader has set, for each card and `uirevision`, and sets them on the new chart. It
writes them to the address and tells the server, where only this fragment runs again. Drawings that are no charts (the
memory timeline) report their view in their own format, by `window.__stepscopeViews`. Limits: what is no range is
ignored and leaves the address; at most `_MAX_VIEWS` cards.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

PARAMETER, _KEY, _MAX_VIEWS = "zoom", "_zoom", 20
_VIEW = re.compile(r"[\w-]{1,60}:[^\x00-\x1f]{1,300}")


@st.fragment
def keep_zoom() -> None:
    """Starts watching; further calls change nothing."""
    script = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
    component = st.components.v2.component("stepscope_zoom", js=script)
    component(key=_KEY, height=1, default={PARAMETER: None}, on_zoom_change=lambda: None)


def read_zoom() -> list[str]:
    """Returns the views for a link: those of the script, else those of the address."""
    views = getattr(st.session_state.get(_KEY), PARAMETER, None)
    return _filter(st.query_params.get_all(PARAMETER) if views is None else views)


def linked_zoom(card: str) -> str | None:
    """Returns the address's view of this card; untrusted text, unless the script wrote it."""
    start = f"{card}:"
    found = [text for text in _filter(st.query_params.get_all(PARAMETER)) if text.startswith(start)]
    return found[0].removeprefix(start) if found else None


def _filter(views: Sequence[Any]) -> list[str]:
    return [view for view in views if isinstance(view, str) and _VIEW.fullmatch(view)][:_MAX_VIEWS]
