"""The dashboard over a results file: `streamlit run app.py`. `STEPSCOPE_DB` names the file."""

import streamlit as st
from starlette.middleware import Middleware

from pages.api.hosts import KnownHosts
from pages.api.routes import ROUTES

app = st.App("pages/main.py", routes=ROUTES, middleware=[Middleware(KnownHosts)])
