"""The dashboard over a results file: `streamlit run app.py`. `STEPSCOPE_DB` names the file."""

import gc

import streamlit as st
from starlette.middleware import Middleware

from pages.api.hosts import KnownHosts
from pages.api.routes import ROUTES

app = st.App("pages/main.py", routes=ROUTES, middleware=[Middleware(KnownHosts)])

# Rows have no cycles. To search them for cycles after every 700 objects, Python's default, and all of them after every
# drawn page, Streamlit's (`postScriptGC`), took most of the server's time.
gc.set_threshold(50_000, 5, 5)
