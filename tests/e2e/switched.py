"""The dashboard over a results file that can be exchanged, for tests that share a server: `tests.browser.Site`.

GET /show?file=PATH        reads this file from now on; the answer is the previous one
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
