"""The link to the whole page, below the filters: every page has it, also where there is no card.

share.page_link(frame)        # after the page has been drawn
"""

import streamlit as st

from pages.ui.frame import Frame
from pages.ui.permalink import link


def page_link(frame: Frame) -> None:
    """A button that opens the link, with a way to copy it."""
    with st.sidebar:
        shown = st.popover("Copy link", icon=":material/link:", key="_page-link", on_change="rerun", width="stretch")
        if shown.open:
            with shown:
                st.caption(
                    "Shows a teammate this page as it is now: every filter and choice written out. When the file has "
                    "changed by then, it also says what changed."
                )
                st.code(link(frame, ""), language=None, wrap_lines=True)
