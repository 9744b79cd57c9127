"""Links that say everything: every filter with its value, defaults included, and which state of the data they meant.

    http://localhost:8501/training-step?machine=…&mode=train&data=1f2e3d4c#phases

A link whose `data` is not this file's edition is reported: its numbers may have been other ones.
"""

from urllib.parse import urlencode

import streamlit as st

from pages.parts.filters import FILTERS
from pages.parts.frame import Frame


def link(frame: Frame, anchor: str) -> str:
    """The address of the card `anchor` on the page being drawn, by the host by which the reader came."""
    asked = dict(st.query_params.to_dict())
    parameters: dict[str, list[str]] = {name: st.query_params.get_all(name) for name in asked}
    for name in FILTERS:
        value = st.session_state.get(name)
        parameters[name] = [value] if isinstance(value, str) else list(value or ())
    parameters["data"] = [frame.contents.edition]
    return f"{st.context.url or ''}?{urlencode(parameters, doseq=True)}#{anchor}"


def report_other_data(frame: Frame) -> None:
    """Say so when the link was made from another state of the data."""
    meant = st.query_params.get("data")
    if meant and meant != frame.contents.edition:
        st.info(
            "This link was made when the file held other rows; the numbers below may differ from those it meant.",
            icon=":material/history:",
        )
