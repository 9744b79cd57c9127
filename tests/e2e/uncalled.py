"""The dashboard on a Streamlit that calls no callbacks, as may happen if a click arrives during the run of a fragment.

with served(database, script="tests/e2e/uncalled.py") as address: …
"""

from typing import Any

import streamlit as st
from streamlit.runtime.state.session_state import SessionState


def unnoticed(state: SessionState, **_: Any) -> None:
    """Treats values sent by the browser as if they had not changed, as a run in another thread does at the wrong
    moment."""
    state._compact_state()


SessionState._call_callbacks = unnoticed  # type: ignore[assignment]
app = st.App("../../pages/main.py")
