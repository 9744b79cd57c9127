"""By which names this server answers, and what it tells browsers about its pages.

    STEPSCOPE_HOSTS=stepscope.example.com,*.lab.example streamlit run app.py

A page of somebody else whose name is made to lead to this machine could otherwise read everything here. Known are
addresses (a name is needed for that), localhost, the machine's own name, `server.address`, `browser.serverAddress` and
what STEPSCOPE_HOSTS lists; `*` there stands for any. Limits: who sends no Host at all is no browser, and is answered.
"""

import ipaddress
import os
import socket
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

import streamlit as st
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Nothing is loaded from elsewhere, and no page of somebody else shows these in a frame.
HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'self'; frame-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'self'; img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' data: blob:",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "same-origin",
}


class KnownHosts:
    """Answers those who ask for a known name, pages and WebSocket alike, with `HEADERS`; others are told which."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._names = app, known_names()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        host = Headers(scope=scope).get("host")
        if host is not None and not is_known(host, self._names):
            await _refuse(host, scope, receive, send)
            return

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, told)


def known_names() -> tuple[str, ...]:
    """The names and patterns of names, in lower case."""
    options = [st.get_option("server.address"), st.get_option("browser.serverAddress")]
    asked = os.environ.get("STEPSCOPE_HOSTS", "").split(",")
    own = socket.gethostname()
    names = ("localhost", "*.localhost", own, own.partition(".")[0], f"{own.partition('.')[0]}.local", *options, *asked)
    return tuple(dict.fromkeys(str(name).strip().lower() for name in names if name and str(name).strip()))


def is_known(host: str, names: tuple[str, ...]) -> bool:
    """Whether the header `host`, a name or an address with or without a port, is one of this server's."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    return _is_address(name) or any(fnmatchcase(name, known) for known in names)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _refuse(host: str, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
        return
    error = {
        "got": f"The host {host[:100]}.",
        "expected": "a name of this server",
        "do": "Whoever runs it can add the name to STEPSCOPE_HOSTS in its environment.",
    }
    await JSONResponse({"error": error}, status_code=421, headers=HEADERS)(scope, receive, send)
