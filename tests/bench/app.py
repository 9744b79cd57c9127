"""How long a reader waits for each page, compared with a one-chart Streamlit page in the same browser.

    python -m tests.bench app

Measures every page over the shipped rows, in turns with the one-chart page: the time from opening it as a new visitor
to its first chart, warm and beside two busy processes; from changing a filter to the redrawn chart; and, with an empty
cache, the time, the requests and the bytes. Then one page over a million cells, compared with itself over the shipped
rows. `tests.bench.readers` measures ten readers at once.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TypeVar

from playwright.sync_api import Browser, Page

from pages.list import PAGES
from runner.store.packing import find_file
from tests.bench import readers
from tests.bench.grid import fill
from tests.bench.result import Result
from tests.browser import ROOT, chromium, opened, served

REPEATS, COLD_REPEATS, CHANGES = 7, 3, 5
CHART = "document.querySelector('.js-plotly-plot')"
#: A chart whose marks are drawn, or the table of a page that has none; another one than before a change.
DRAWN = f"""(chart => chart ? chart.data && chart.data !== window.__before && chart.querySelector('.point, .lines path')
    : document.querySelector('[data-testid=stDataFrame] canvas'))({CHART})"""
PLAIN = "one chart"
#: The page over a million cells.
LARGE, LARGE_CELLS = "training-step", 1_000_000
Times = dict[str, list[float]]
T = TypeVar("T")


def first_chart(browser: Browser, address: str) -> float:
    """Returns the seconds from opening the page as a new visitor to its first chart."""
    started = time.perf_counter()
    with opened(browser, address) as visit:
        visit.page.wait_for_function(DRAWN, polling="raf")
        return time.perf_counter() - started


def cold_visit(browser: Browser, address: str) -> tuple[float, int, int]:
    """Returns the seconds to the first chart with an empty cache, the requests, and the bytes until a second later."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(180_000)
    requests, sizes = list[str](), list[int]()
    network = context.new_cdp_session(page)
    network.send("Network.enable")
    network.on("Network.requestWillBeSent", lambda sent: requests.append(sent["requestId"]))
    network.on("Network.loadingFinished", lambda done: sizes.append(int(done["encodedDataLength"])))
    started = time.perf_counter()
    page.goto(address)
    page.wait_for_function(DRAWN, polling="raf")
    took = time.perf_counter() - started
    page.wait_for_timeout(1_000)
    context.close()
    return took, len(requests), sum(sizes)


def change_filter(page: Page, place: int) -> float:
    """Returns the seconds from choosing another option of the page's last filter with several to the redrawn chart."""
    page.wait_for_timeout(1_500)
    pills = page.get_by_test_id("stPills").get_by_role("button")
    if pills.count():
        target = pills.nth(place % pills.count())
    else:
        boxes = page.locator(".st-key-filters [data-testid=stSelectbox]")
        boxes.nth(place % boxes.count()).get_by_role("combobox").click()
        options = page.get_by_role("option")
        options.first.wait_for()
        free = [n for n in range(options.count()) if options.nth(n).get_attribute("aria-selected") != "true"]
        target = options.nth(free[place % len(free)])
    page.evaluate(f"window.__before = {CHART}?.data")
    started = time.perf_counter()
    target.click()
    page.wait_for_function(DRAWN, polling="raf")
    return time.perf_counter() - started


def run() -> list[Result]:
    """Measures every page in turns with the one-chart page, a large file, and then ten readers of it."""
    rows = find_file(ROOT / "data" / "reference" / "h200")
    results = []
    with served(rows) as app, served(rows, script="tests/bench/one_chart.py") as plain, chromium() as browser:
        pages = {page.address: f"{app}/{page.address if page is not PAGES[0] else ''}" for page in PAGES}
        pages |= {PLAIN: plain}
        for address in pages.values():
            first_chart(browser, address)
        warm = _in_turns(pages, lambda address: first_chart(browser, address), REPEATS)
        results += _compare("first chart, warm", warm, most=(1.2, 1.5))
        with _busy(2):
            busy = _in_turns(pages, lambda address: first_chart(browser, address), COLD_REPEATS)
        results += _compare("first chart beside two busy processes", busy, most=(2.0, None))
        cold = _in_turns(pages, lambda address: cold_visit(browser, address), COLD_REPEATS)
        for place, (what, most) in enumerate((("time", 1.5), ("requests", 1.2), ("bytes", 1.3))):
            part = {name: [float(visit[place]) for visit in visits] for name, visits in cold.items()}
            results += _compare(f"cold, {what}", part, most=(most, None))
        changes: Times = {}
        for name in (PLAIN, "training-step", "mixed-precision", "torch-compile", "peak-memory", "attention", "kernels"):
            with opened(browser, pages[name]) as visit:
                visit.page.wait_for_function(DRAWN, polling="raf")
                changes[name] = [change_filter(visit.page, place) for place in range(CHANGES)]
        results += _compare("filter change", changes, most=(1.2, 1.5))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.duckdb"
        fill(path, cells=LARGE_CELLS)
        with served(rows) as app, served(path) as large, chromium() as browser:
            sides = {PLAIN: f"{app}/{LARGE}", LARGE: f"{large}/{LARGE}"}
            for address in sides.values():
                first_chart(browser, address)
            times = _in_turns(sides, lambda address: first_chart(browser, address), REPEATS)
        results += _compare(f"{LARGE_CELLS:,} cells against the shipped rows", times, most=(2.0, None))
        results += readers.measure(path)
    return results


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Keeps processors busy."""
    others = [multiprocessing.get_context("spawn").Process(target=_spin, daemon=True) for _ in range(count)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.kill()


def _spin() -> None:
    while True:
        pass


def _in_turns(pages: dict[str, str], act: Callable[[str], T], repeats: int) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {name: [] for name in pages}
    for _ in range(repeats):
        for name, address in pages.items():
            found[name].append(act(address))
    return found


def _compare(what: str, times: Times, *, most: tuple[float, float | None]) -> list[Result]:
    """Returns the ratios of all pages to the one-chart page: their median and the worst, by name."""
    plain = median(times[PLAIN])
    ratios = {name: median(values) / plain for name, values in times.items() if name != PLAIN}
    worst = max(ratios, key=lambda name: ratios[name])
    middle, highest = most
    goal = f"median at most {middle}" + (f", worst at most {highest}" if highest else "")
    met = median(ratios.values()) <= middle and (highest is None or ratios[worst] <= highest)
    figure = f"median {median(ratios.values()):.2f}, worst {ratios[worst]:.2f} ({worst}); one chart {plain:,.3g}"
    return [Result(name=what, figure=figure, goal=goal, met=met)]
