"""The host names to which this server answers, the websites from which it is asked, and its pages' security headers.

    STEPSCOPE_HOSTS=stepscope.example.com,*.lab.example streamlit run app.py

Without this check, a foreign website could point its own name at this machine and read everything here. The server
answers to addresses (such an attack needs a name), localhost, the machine's own name, `server.address`,
`browser.serverAddress` and the names of STEPSCOPE_HOSTS, in which `*` stands for any text. A website that asks from
elsewhere (`Origin`) must have such a name, too, or the host that it asks. Limits: a request without Host is answered,
because no browser sends one, and so is one without Origin, which a browser sends with all that could change something.
"""

import ipaddress
import os
import socket
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

import streamlit as st
import streamlit.net_util
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

# Streamlit asks the web for this machine's address when it meets an origin that it does not know. Nothing here does.
streamlit.net_util.get_external_ip = lambda: None


class KnownHosts:
    """Answers requests for a known host by a known website with `HEADERS`, and refuses others, for pages and WebSocket
    alike, before Streamlit sees them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._names = app, list_known_names()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = headers.get("host")
        if host is not None and not is_known(host, self._names):
            await _refuse(421, f"The host {host[:100]}.", scope, receive, send)
            return
        for origin in headers.getlist("origin"):
            if not is_known_origin(origin, host or "", self._names):
                await _refuse(403, f"A request of the website {origin[:100]}.", scope, receive, send)
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
    name = _parse_name(f"//{host}")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return _is_listed(name, names)
    return True


def is_known_origin(origin: str, host: str, names: tuple[str, ...]) -> bool:
    """Returns whether a website may ask: by a listed name, or as one of the very host that it asks. Any website can
    have an address, so that another than that of the host is foreign."""
    name = _parse_name(origin)
    return name != "" and (name == _parse_name(f"//{host}") or _is_listed(name, names))


def _parse_name(url: str) -> str:
    """Returns the name or the address in a URL; empty for anything else."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_listed(name: str, names: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, known) for known in names)


async def _refuse(status: int, got: str, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
        return
    error = {
        "got": got,
        "expected": "a name of this server",
        "do": "Whoever runs it can add the name to STEPSCOPE_HOSTS in its environment.",
    }
    await JSONResponse({"error": error}, status_code=status, headers=HEADERS)(scope, receive, send)
