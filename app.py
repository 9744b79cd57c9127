"""The dashboard over a results file: `streamlit run app.py`. `STEPSCOPE_DB` names the file."""

import streamlit as st

from pages.api import ROUTES

app = st.App("pages/main.py", routes=ROUTES)
