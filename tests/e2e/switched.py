"""The dashboard over one results file after the other, for tests that share a server: `tests.browser.Site`.

GET /show?file=PATH        from now on it reads this file; the answer is the one before
"""

import os

import streamlit as st
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pages.api.hosts import KnownHosts
from pages.api.routes import ROUTES


async def show(request: Request) -> Response:
    before, os.environ["STEPSCOPE_DB"] = os.environ["STEPSCOPE_DB"], request.query_params["file"]
    return PlainTextResponse(before)


app = st.App("../../pages/main.py", routes=[Route("/show", show), *ROUTES], middleware=[Middleware(KnownHosts)])
