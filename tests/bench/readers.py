"""What ten readers at once see and cost: each opens a different page of a large file that has just got new rows.

    python -m tests.bench app --only readers

Runs three times: with readers without a browser, who get over the server's WebSocket all that a browser would draw, and
stand for readers on machines of their own who wait only for the server; with the same readers again when nothing has
changed; and with ten browsers on this machine, which also draw the pages. Reports whether any of them saw an error, how
long the slowest waited, the server's processor time, and its highest memory use until all had their page and while all
kept it open.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
from playwright.sync_api import Browser, Page, TimeoutError
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect

from pages.list import PAGES as LIST
from tests.bench.grid import add_cell
from tests.bench.result import Result
from tests.browser import chromium, served

#: The addresses of all pages; the first has none.
PAGES = ("", *(page.address for page in LIST[1:]))
#: The element a page shows its rows in, or what it shows instead if the file has no rows for it.
SHOWN = "[data-testid=stPlotlyChart] .main-svg, [data-testid=stDataFrame] canvas, [data-testid=stCode]"
DONE = "!document.querySelector('[data-testid=stStatusWidget], [data-testid=stSkeleton]')"
MAX_BYTES, PATIENCE_S, GOAL_S = 2**30, 60, 5.0


def measure(path: Path) -> list[Result]:
    """Opens all pages at once, waits for all of them, and checks what they show and how much memory the server uses."""
    with served(path) as address:
        visit_all(address)  # the first visitor waits for the server's imports
        add_cell(path)
        results = [visit_all(address, "after new rows"), visit_all(address, "again")]
    with served(path) as address, chromium() as browser, _watched_bytes(find_server(address)) as held:
        started, worked = time.perf_counter(), _worked_s(find_server(address))
        visits = [_arrive(browser, f"{address}/{name}") for name in PAGES]
        wrong = [name or "overview" for name, page in zip(PAGES, visits, strict=True) if not _drawn(page)]
        waited, worked = time.perf_counter() - started, _worked_s(find_server(address)) - worked
        add_cell(path)
        time.sleep(5)
        wrong += [name or "overview" for name, page in zip(PAGES, visits, strict=True) if not _drawn(page)]
    count, said = len(PAGES), f" ({', '.join(wrong)})" if wrong else ""
    return [
        *results,
        Result(
            name=f"{count} browsers at once, on this machine",
            figure=f"{len(wrong)} errors{said}, the last page after {waited:.1f} s; the server worked {worked:.1f} s",
            goal="no error",
            met=not wrong,
        ),
        Result(
            name=f"the server's memory, {count} sessions",
            figure=f"{max(held) / 2**20:,.0f} MiB at most",
            goal="under 1 GiB",
            met=max(held) < MAX_BYTES,
        ),
    ]


def visit_all(address: str, when: str = "at first") -> Result:
    """Opens every page at once, each with its own reader without a browser."""
    server, started = find_server(address), time.perf_counter()
    worked = _worked_s(server)
    with ThreadPoolExecutor(len(PAGES)) as pool:
        visits = list(pool.map(lambda page: _visit(address, page), PAGES))
    waited, worked = time.perf_counter() - started, _worked_s(server) - worked
    errors = [f"{page or 'overview'}: {said}" for page, said in zip(PAGES, visits, strict=True) if said]
    return Result(
        name=f"{len(PAGES)} readers at once, {when}",
        figure=f"{len(errors)} errors{' '.join(errors)}, the last page after {waited:.1f} s; "
        f"the server worked {worked:.1f} s",
        goal=f"no error, {GOAL_S:g} s",
        met=not errors and waited <= GOAL_S,
    )


def _visit(address: str, page: str) -> str:
    """Waits until the page is drawn, and returns the errors on it."""
    request, errors = BackMsg(), list[str]()
    request.rerun_script.page_name = page
    stream = f"{address.replace('http', 'ws', 1)}/_stcore/stream"
    with connect(stream, subprotocols=["streamlit"], max_size=None) as socket:  # type: ignore[list-item]
        socket.send(request.SerializeToString())
        while True:
            data = socket.recv(timeout=2 * PATIENCE_S)
            assert isinstance(data, bytes)
            message = ForwardMsg.FromString(data)
            element = message.delta.new_element
            if element.HasField("exception"):
                errors.append(element.exception.message)
            if element.HasField("heading") and element.heading.body == "busy":
                errors.append("busy")
            if message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY and message.HasField("script_finished"):
                return "; ".join(errors)


def _arrive(browser: Browser, address: str) -> Page:
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.goto(address, wait_until="commit")
    return page


def _drawn(page: Page) -> bool:
    """Returns whether the page came to show its rows without an error."""
    try:
        page.wait_for_selector(SHOWN, timeout=PATIENCE_S * 1e3)
        page.wait_for_function(DONE, timeout=PATIENCE_S * 1e3)
    except TimeoutError:
        return False
    busy = page.get_by_role("heading", level=1, name="busy").count()
    return busy + page.get_by_test_id("stException").count() == 0


def find_server(address: str) -> psutil.Process:
    """Returns the process of the server at this address, which this process has started."""
    port = address.rsplit(":", 1)[1]
    return next(child for child in psutil.Process().children() if port in child.cmdline())


def _worked_s(process: psutil.Process) -> float:
    """Returns the processor time of the process so far, in seconds."""
    times = process.cpu_times()
    return times.user + times.system


@contextmanager
def _watched_bytes(process: psutil.Process) -> Iterator[list[int]]:
    """Yields a list of the resident bytes of the process, to which a sample is added ten times a second."""
    held, over = [process.memory_info().rss], threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            held.append(process.memory_info().rss)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield held
    finally:
        over.set()
        watcher.join()
