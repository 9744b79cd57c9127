"""How long a reader waits for each page, compared with a one-chart Streamlit page in the same browser.

    python -m tests.bench app
    python -m tests.bench app --only cold --seconds 120

Measures every page over the shipped rows, in turns with the one-chart page: the time from opening it as a new visitor
to its first chart, warm and beside two busy processes; with an empty cache, the time, the requests and the bytes; and
the time from changing a filter to the redrawn chart. Each part takes a minute, and at least one round of all pages;
what it has so far is printed after each round. Then, in two minutes more, one page over a million cells, compared with
itself over the shipped rows, and ten readers at once (`tests.bench.readers`). Ratios hold within one run alone.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, Page

from pages.list import PAGES
from runner.store.packing import find_file
from tests.bench import readers
from tests.bench.grid import fill
from tests.bench.result import Result
from tests.browser import ROOT, chromium, opened, served

PARTS = ("warm", "busy", "cold", "filters", "large", "readers")
MAX_ROUNDS = 7
#: A chart whose marks are drawn, or the table of a page that has none; another chart than before a change.
DRAWN = """(chart => chart ? chart.data && chart.data !== window.before && chart.querySelector('.point, .lines path')
    : document.querySelector('[data-testid=stDataFrame] canvas'))(document.querySelector('.js-plotly-plot'))"""
#: What has the page keep the chart that it shows, and the moment of the next click.
BEGIN = """() => { window.before = document.querySelector('.js-plotly-plot').data
    addEventListener('pointerdown', () => { window.since = performance.now() }, {capture: true}) }"""
PLAIN = "one chart"
#: Pages with a filter of which every option gives the first chart other numbers.
FILTERS = {"overview": "clock", "training-step": "clock", "mixed-precision": "clock", "torch-compile": "clock",
           "peak-memory": "mode", "attention": "clock", "kernels": "mode"}  # fmt: skip
CHANGES = 3
#: The page over a million cells.
LARGE, LARGE_CELLS = "training-step", 1_000_000
#: What is compared, and the highest ratios of the pages' median and of the worst page.
Goal = tuple[str, float, float | None]
WARM: Sequence[Goal] = [("first chart, warm", 1.2, 1.5)]
BUSY: Sequence[Goal] = [("first chart beside two busy processes", 2.0, None)]
COLD: Sequence[Goal] = [("cold, time", 1.5, None), ("cold, requests", 1.2, None), ("cold, bytes", 1.3, None)]
CHANGED: Sequence[Goal] = [("filter change", 1.2, 1.5)]
OF_LARGE: Sequence[Goal] = [(f"{LARGE_CELLS:,} cells against the shipped rows", 2.0, None)]


def run(only: Sequence[str] = PARTS, seconds: float = 60) -> list[Result]:
    """Measures the parts that are asked for, each in rounds for about so many seconds."""
    rows = find_file(ROOT / "data" / "reference" / "h200")
    results = []
    with served(rows) as app, served(rows, script="tests/bench/one_chart.py") as plain, chromium() as browser:
        pages = {PLAIN: plain, **{page.address: f"{app}/{page.address}" for page in PAGES}}
        pages[PAGES[0].address] = app

        def warm(name: str) -> tuple[float, ...]:
            return (first_chart(browser, pages[name]),)

        for name in pages if {*only} & {"warm", "busy", "cold", "filters"} else ():
            warm(name)
        if "warm" in only:
            results += _compare(warm, pages, seconds, WARM)
        if "busy" in only:
            with _busy(2):
                results += _compare(warm, pages, seconds, BUSY)
        if "cold" in only:
            results += _compare(lambda name: _visit_cold(browser, pages[name]), pages, seconds, COLD)
        if "filters" in only:
            names = [PLAIN, *FILTERS]
            results += _compare(lambda name: _change(browser, pages[name], FILTERS.get(name)), names, seconds, CHANGED)
    if not {*only} & {"large", "readers"}:
        return results
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.duckdb"
        fill(path, cells=LARGE_CELLS)
        if "large" in only:
            with served(rows) as app, served(path) as large, chromium() as browser:
                sides = {PLAIN: f"{app}/{LARGE}", LARGE: f"{large}/{LARGE}"}
                for address in sides.values():
                    first_chart(browser, address)
                results += _compare(lambda name: (first_chart(browser, sides[name]),), sides, seconds, OF_LARGE)
        if "readers" in only:
            results += readers.measure(path)
    return results


def first_chart(browser: Browser, address: str) -> float:
    """Returns the seconds from opening the page as a new visitor to its first chart."""
    with opened(browser, address) as visit:
        return _await_chart(visit.page)


def _await_chart(page: Page, since: str = "0") -> float:
    """Returns the seconds to the first chart, by default from when the page was opened, by the browser's clock."""
    drawn = page.wait_for_function(f"{DRAWN} ? performance.now() - {since} : 0", polling="raf")
    return float(drawn.json_value()) / 1e3


def _visit_cold(browser: Browser, address: str) -> tuple[float, int, int]:
    """Returns the seconds to the first chart with an empty cache, the requests, and the bytes until a second later."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(180_000)
    requests, sizes = list[str](), list[int]()
    network = context.new_cdp_session(page)
    network.send("Network.enable")
    # Addresses of `data:` and `blob:` are asked of nobody.
    network.on("Network.requestWillBeSent", lambda sent: requests.append(sent["request"]["url"]))
    network.on("Network.loadingFinished", lambda done: sizes.append(int(done["encodedDataLength"])))
    page.goto(address)
    took = _await_chart(page)
    page.wait_for_timeout(1_000)
    context.close()
    return took, sum(url.startswith("http") for url in requests), sum(sizes)


def _change(browser: Browser, address: str, choice: str | None) -> tuple[float]:
    """Returns the median of the seconds from a click on another option of a filter to the redrawn chart."""
    times = []
    with opened(browser, address) as visit:
        page = visit.page
        _await_chart(page)
        for place in range(CHANGES):
            page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
            page.wait_for_timeout(1_000)
            options = page.get_by_test_id("stButtonGroup").get_by_role("button")
            if choice:
                menu = page.locator(f".st-key-choice-{choice} button:visible").first
                menu.click()
                options = page.get_by_role("menuitem").filter(has_not_text=menu.locator("p").inner_text())
                options.first.wait_for()
            page.evaluate(BEGIN)
            options.nth(place % options.count()).click()
            times.append(_await_chart(page, "window.since"))
    return (median(times),)


@contextmanager
def _busy(count: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _compare(
    measure: Callable[[str], tuple[float, ...]], names: Iterable[str], seconds: float, goals: Sequence[Goal]
) -> list[Result]:
    """Returns the ratios of the pages to the one-chart page, after as many rounds as fit into the seconds."""
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    started = time.monotonic()
    for count in range(1, MAX_ROUNDS + 1):
        for name, visits in found.items():
            visits.append(measure(name))
            if count == 1:
                print(f"    {name}: {', '.join(f'{part:,.3g}' for part in visits[0])}", file=sys.stderr, flush=True)
        results = [_judge(found, place, goal, f"{count} rounds") for place, goal in enumerate(goals)]
        for one in results:
            print(f"  {one.name}: {one.figure}", file=sys.stderr, flush=True)
        if (time.monotonic() - started) * (count + 1) / count > seconds:
            break
    return results


def _judge(found: dict[str, list[tuple[float, ...]]], place: int, goal: Goal, rounds: str) -> Result:
    name, middle, highest = goal
    times = {page: median(visit[place] for visit in visits) for page, visits in found.items()}
    ratios = {page: value / times[PLAIN] for page, value in times.items() if page != PLAIN}
    worst = max(ratios, key=ratios.__getitem__)
    figure = f"median {median(ratios.values()):.2f}, worst {ratios[worst]:.2f} ({worst}); one chart {times[PLAIN]:,.3g}"
    return Result(
        name=name,
        figure=f"{figure}; {rounds}",
        goal=f"median at most {middle}" + (f", worst at most {highest}" if highest else ""),
        met=median(ratios.values()) <= middle and (highest is None or ratios[worst] <= highest),
    )
