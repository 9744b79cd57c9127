"""The host names to which this server answers, and the security headers of its pages.

    STEPSCOPE_HOSTS=stepscope.example.com,*.lab.example streamlit run app.py

Without this check, a foreign website could point its own name at this machine and read everything here. The server
answers to addresses (such an attack needs a name), localhost, the machine's own name, `server.address`,
`browser.serverAddress` and the names of STEPSCOPE_HOSTS, in which `*` stands for any text. Limits: a request without
Host is answered, because no browser sends one.
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

#: The pages load nothing from elsewhere, and no other site shows them in a frame.
HEADERS = {
    "Content-Security-Policy": "frame-ancestors 'self'; frame-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'self'; img-src 'self' data: blob:; media-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self' data: blob:",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "same-origin",
}


class KnownHosts:
    """Answers requests for a known host with `HEADERS`, and refuses others, for pages and WebSocket alike."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._names = app, list_known_names()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        host = Headers(scope=scope).get("host")
        if host is not None and not is_known(host, self._names):
            await _refuse(host, scope, receive, send)
            return

        async def send_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, send_headers)


def list_known_names() -> tuple[str, ...]:
    """Returns the known names and patterns of names, in lower case."""
    options = (st.get_option("server.address"), st.get_option("browser.serverAddress"))
    listed = os.environ.get("STEPSCOPE_HOSTS", "").split(",")
    own = socket.gethostname()
    short = own.partition(".")[0]
    names = ("localhost", "*.localhost", own, short, f"{short}.local", *options, *listed)
    return tuple(dict.fromkeys(clean for name in names if (clean := str(name or "").strip().lower())))


def is_known(host: str, names: tuple[str, ...]) -> bool:
    """Returns whether the header `host`, a name or an address with or without a port, names this server."""
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
