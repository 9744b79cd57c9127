"""The dashboard over a results file: `streamlit run app.py`. `STEPSCOPE_DB` names the file."""

import streamlit as st

app = st.App("pages/main.py")
