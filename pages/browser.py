"""What the browser does beside Streamlit: it says whether the window is narrow, which the server does not know, and
takes a reader through the marks of a chart by keys.

A phone says so in its first request. Any other window reports it once it is narrower than 700 px, and again when that
changes: then the page is drawn another time. A wide window reports nothing.
"""

from pathlib import Path

import streamlit as st

_KEY = "window"


def is_narrow() -> bool:
    told = st.session_state.get(_KEY, {}).get("narrow")
    return "Mobi" in (st.context.headers.get("User-Agent") or "") if told is None else bool(told)


def watch() -> None:
    """Draws what takes no room on the page: the script."""
    script = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
    component = st.components.v2.component("stepscope_browser", js=script)
    with st.container(key="width"):
        component(data={"narrow": is_narrow()}, key=_KEY, on_narrow_change=lambda: None)
