"""A real server and a real browser for tests: `streamlit run app.py` in its own process, and headless Chromium.

    with served(database) as address, chromium() as browser: ...
    with site.showing(database) as address: ...      # the server that the tests of a process share

The browser is the system's Chromium or Chrome (Debian's headless shell does a fifth less work), else Playwright's own
download. `python -m tests.install_chromium` installs one if there is none.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from weakref import WeakKeyDictionary

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    Request,
    WebSocket,
    expect,
    sync_playwright,
)
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

ROOT = Path(__file__).parent.parent
#: How long to wait for what a page is about to show, which takes a second on an idle machine, and over a minute where
#: the page has all charts of the report and four busy processes share each core.
PATIENCE_S = 180.0
#: A page's scripts run for a second, in which optimizing them takes a tenth more time than it saves.
QUICK = "--js-flags=--no-turbofan --no-maglev"
#: On a deep link Streamlit looks for its own server below the page's path before it looks at the root. Both answers are
#: right, but the browser reports the first as an error.
OWN_NOISE = ("_stcore/health", "_stcore/host-config")
#: An error of Plotly's if the pointer is over a chart at the moment when new rows replace it. Nothing is lost by it.
PLOTLYS_NOISE = "reading '_hoverlayer'"
#: Returns whether the script has ended, everything is drawn, no animation but an endless one is running, and nothing
#: has changed for ten frames (they take longer on a busy machine). Called once a frame.
AT_REST = """() => {
    const rest = window.atRest ??= {frames: 0}
    if (!rest.watch) {
        rest.watch = new MutationObserver(() => { rest.frames = 0 })
        rest.watch.observe(document, {childList: true, characterData: true, subtree: true})
    }
    const still = document.querySelector("[data-testid=stApp]")?.dataset.testScriptState === "notRunning"
        && document.querySelector("h1") && !document.querySelector("[data-testid=stSkeleton]")
        && document.getAnimations().every(one =>
            one.playState !== "running" || one.effect.getComputedTiming().endTime === Infinity)
    rest.frames = still ? rest.frames + 1 : 0
    if (rest.frames <= 10) return false
    rest.watch.disconnect()
    delete window.atRest
    return true
}"""


@dataclass
class Runs:
    """What a page and its server tell each other about runs of the script."""

    owed: bool = False

    def listen(self, socket: WebSocket) -> None:
        socket.on("framesent", self.sent)
        socket.on("framereceived", self.received)

    def sent(self, frame: bytes | str) -> None:
        if isinstance(frame, bytes) and BackMsg.FromString(frame).HasField("rerun_script"):
            self.owed = True

    def received(self, frame: bytes | str) -> None:
        if isinstance(frame, bytes) and (message := ForwardMsg.FromString(frame)).HasField("script_finished"):
            self.owed &= message.script_finished == ForwardMsg.FINISHED_EARLY_FOR_RERUN


#: The runs of every page that a test has opened.
RUNS: WeakKeyDictionary[Page, Runs] = WeakKeyDictionary()
#: The context of every browser in which its pages are opened.
VISITORS: WeakKeyDictionary[Browser, BrowserContext] = WeakKeyDictionary()


@contextlib.contextmanager
def served(
    database: Path, *, script: str = "app.py", below: str = "", root: Path = ROOT, env: Mapping[str, str | None] = {}
) -> Iterator[str]:
    """Yields the address of a fresh server that reads this file. `below` is a base path such as /team, `root` the
    checkout, and `env` changes environment variables; None removes one. Only its health has been asked for."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", script, "--server.port", str(port)]
    command += ["--server.baseUrlPath", below] if below else []
    log = database.with_suffix(".log").open("wb")
    variables = {**os.environ, "STEPSCOPE_DB": str(database), **env}
    known = {name: value for name, value in variables.items() if value is not None}
    server = subprocess.Popen(command, cwd=root, env=known, stdout=log, stderr=log)
    address = f"http://localhost:{port}{below}"
    try:
        _await_health(address, server)
        yield address
    finally:
        server.terminate()
        server.wait(timeout=PATIENCE_S)
        log.close()


@dataclass(frozen=True, kw_only=True)
class Site:
    """A server that the tests of a process share, because its first page takes seconds."""

    address: str
    #: Where it looks for results unless it is given another file.
    file: Path

    @contextlib.contextmanager
    def showing(self, database: Path) -> Iterator[str]:
        """Yields the server's address while the server reads this file."""
        before = self._show(str(database))
        try:
            yield self.address
        finally:
            self._show(before)

    def _show(self, file: str) -> str:
        with urllib.request.urlopen(f"{self.address}/show?{urlencode({'file': file})}", timeout=PATIENCE_S) as answer:
            before: str = answer.read().decode()
        return before


def _await_health(address: str, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/_stcore/health", timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.1)
    raise TimeoutError(f"the server at {address} did not come up")


def installed() -> str | None:
    """Returns the path of the system's Chromium or Chrome."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if (path := shutil.which(name))), None)


@contextlib.contextmanager
def chromium(*, for_tests: bool = False) -> Iterator[Browser]:
    """Yields a headless browser, and makes `expect` wait as long as pages may take. Tests open many pages for a moment
    each: theirs share a process and with it compiled scripts, so that they open in 1.4 s instead of 2.2, and scripts
    are not optimized. A bench has the browser of a reader."""
    expect.set_options(timeout=1e3 * PATIENCE_S)
    with sync_playwright() as playwright:
        flags = [QUICK, "--process-per-site"] if for_tests else []
        browser = playwright.chromium.launch(executable_path=installed(), args=flags)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watched:
    """A page together with everything that happened on it and should not have."""

    page: Page
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@contextlib.contextmanager
def opened(browser: Browser, address: str, *, width: int = 1440, whole: bool = False) -> Iterator[Watched]:
    """Opens `address` as a new visitor, waits for the `whole` page, and checks it at the end. The browser has the
    dashboard's scripts in its cache, because loading them is a fifth of a page's time, but no cookies."""
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(address))
    if browser not in VISITORS:  # the process ends with its last page, so one page stays open
        VISITORS[browser] = browser.new_context(locale="en-US")
        VISITORS[browser].new_page().goto(f"{origin}/_stcore/health")
    context = VISITORS[browser]
    page = context.new_page()
    page.set_viewport_size({"width": width, "height": 900})
    forget = {"origin": origin, "storageTypes": "cookies,local_storage"}
    context.new_cdp_session(page).send("Storage.clearDataForOrigin", forget)
    page.set_default_timeout(1e3 * PATIENCE_S)
    watched = Watched(page=page)

    def asked(request: Request) -> None:
        if not request.url.startswith(("http://localhost:", "ws://localhost:", "data:", "blob:")):
            watched.outside.append(request.url)

    def said(message: ConsoleMessage) -> None:
        if message.type == "error" and not any(path in message.location.get("url", "") for path in OWN_NOISE):
            watched.errors.append(f"{message.text} {message.location.get('url', '')}")

    def failed(error: Error) -> None:
        if PLOTLYS_NOISE not in str(error):
            watched.errors.append(str(error))

    RUNS[page] = Runs()
    page.on("websocket", RUNS[page].listen)
    page.on("request", asked)
    page.on("console", said)
    page.on("pageerror", failed)
    try:
        page.goto(address)
        if whole:
            settled(page)
        yield watched
        assert not watched.outside, f"requests to the outside: {watched.outside}"
        assert not watched.errors, f"errors in the browser's console: {watched.errors}"
    finally:
        page.close()


def settled(page: Page) -> None:
    """Waits until the page is complete: no run of the script is pending and nothing has moved for ten frames."""
    deadline = time.monotonic() + PATIENCE_S
    page.wait_for_function(AT_REST)
    while RUNS[page].owed:
        assert time.monotonic() < deadline, "a run of the script that the page requested has not ended"
        page.wait_for_function(AT_REST)


def drawn(page: Page, card: str) -> list[list[Any]]:
    """Returns the places of each trace in the Plotly chart of a card. Opens the line into which a card is folded."""
    page.wait_for_selector(f".st-key-show-{card}, .st-key-card-{card}")
    box = page.locator(f".st-key-show-{card} details:not([open]) > summary")
    if box.count():
        box.click()
    chart = page.locator(f".st-key-card-{card} .js-plotly-plot:has(.main-svg)").first
    found: list[list[Any]] = chart.evaluate("chart => chart._fullData.map(trace => [...(trace.x || [])])")
    return found


def said(page: Page) -> str:
    """Returns all words of the page after it has been drawn completely."""
    settled(page)
    return re.sub(r"\s+", " ", page.get_by_test_id("stMain").inner_text())


def at_widths(page: Page, *widths: int) -> Iterator[int]:
    """Sets the page to one width after the other, and yields each width when the page is complete."""
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        settled(page)
        yield width


def fits_sideways(page: Page) -> bool:
    """Returns whether nothing is beyond the page's right edge, so that a phone need not scroll sideways."""
    fits: bool = page.get_by_test_id("stMain").evaluate("main => main.scrollWidth <= main.clientWidth")
    return fits
