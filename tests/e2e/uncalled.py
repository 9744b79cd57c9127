"""The dashboard on a Streamlit that calls nobody back: what a click that meets the run of a fragment may find.

with served(database, script="tests/e2e/uncalled.py") as address: …
"""

from typing import Any

import streamlit as st
from streamlit.runtime.state.session_state import SessionState


def unnoticed(state: SessionState, **_: Any) -> None:
    """Take what the browser sent for what was there before, as a run in another thread does at the wrong moment."""
    state._compact_state()


SessionState._call_callbacks = unnoticed  # type: ignore[assignment]
app = st.App("../../pages/main.py")
