"""The dashboard over a results file: `streamlit run app.py`. `STEPSCOPE_DB` names the file."""

import gc

import streamlit as st
from starlette.middleware import Middleware

from pages.api.hosts import KnownHosts
from pages.api.routes import ROUTES

app = st.App("pages/main.py", routes=ROUTES, middleware=[Middleware(KnownHosts)])

# Rows live as long as the state of their file. To look for cycles among them after every 700 objects, as Python does by
# default, took a fifth of the server's time.
gc.set_threshold(100_000, 20, 100)
