"""The dashboard over a results file: `streamlit run app.py`. `STEPSCOPE_DB` names the file."""

import streamlit as st
from starlette.middleware import Middleware

from pages.api import ROUTES
from pages.hosts import KnownHosts

app = st.App("pages/main.py", routes=ROUTES, middleware=[Middleware(KnownHosts)])
