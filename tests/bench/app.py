"""How long a reader waits for a page over a thousand and a million cells, compared with a one-chart Streamlit page.

    python -m tests.bench.app

Measures, as medians of 10 in headless Chromium, the time from opening the page to its first chart and from changing a
filter to the redrawn chart, for both pages, and their ratios. The first is measured three times more, each time after a
new cell has arrived, when nothing cached is valid. The two pages are measured alternately. Every opening is a new
visitor; every filter change selects something that has not been selected before. `tests.bench.readers` measures ten
readers at once.
"""

import tempfile
import time
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, Page

from tests.bench import readers
from tests.bench.grid import add_cell, fill
from tests.bench.result import Result
from tests.browser import chromium, opened, served

REPEATS, COLD_REPEATS = 10, 3
FIRST, CHANGE, COLD = "page to first chart", "filter change to redraw", "first chart after new rows"
#: Number of cells in the file -> the largest allowed ratios to the one-chart page's times.
GOALS = {1_000: {FIRST: 1.5, CHANGE: 1.5}, 1_000_000: {FIRST: 2.5, CHANGE: 3.0}}
CHART = "document.querySelector('.js-plotly-plot')"
DRAWN = f"{CHART} && {CHART}.data && {CHART}.data !== window.__before && {CHART}.querySelector('.bars .point path')"
OURS, PLAIN = "Stepscope", "one chart"
Times = dict[str, dict[str, list[float]]]


def first_chart(browser: Browser, address: str) -> float:
    """Returns the seconds from opening the page as a new visitor to its first chart."""
    started = time.perf_counter()
    with opened(browser, address) as visit:
        visit.page.wait_for_function(DRAWN, polling="raf")
        return time.perf_counter() - started


def filter_changes(page: Page, names: list[str]) -> list[float]:
    """Returns the seconds from each click on one of `names` to the redrawn chart. Every selection is a new one."""
    found = []
    for name in names:
        page.wait_for_timeout(2_000)
        page.evaluate(f"window.__before = {CHART}.data")
        started = time.perf_counter()
        page.get_by_role("button", name=name, exact=True).first.click()
        page.wait_for_function(DRAWN, polling="raf")
        found.append(time.perf_counter() - started)
    return found


def gray_code(labels: list[str], count: int) -> list[str]:
    """Returns the pill to toggle at each step so that no selection is repeated."""
    return [labels[((step & -step).bit_length()) - 1] for step in range(1, count + 1)]


def run() -> list[Result]:
    """Measures both pages over both files, alternately, and then ten readers of the larger file."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for cells, goals in GOALS.items():
            path = Path(folder) / f"{cells}.duckdb"
            print(f"{cells:,} cells, {fill(path, cells=cells):,} samples")
            results += _report(cells, _measured(path), goals)
        results += readers.measure(path)
    return results


def _measured(path: Path) -> Times:
    times: Times = {what: {OURS: [], PLAIN: []} for what in (FIRST, CHANGE, COLD)}
    with served(path) as app, served(path, script="tests/bench/one_chart.py") as plain, chromium() as browser:
        pages = {OURS: f"{app}/training-step?way=fp32+%C2%B7+eager", PLAIN: plain}
        for address in pages.values():
            first_chart(browser, address)
        for _ in range(REPEATS):
            for name, address in pages.items():
                times[FIRST][name].append(first_chart(browser, address))
        for name, address in pages.items():
            with opened(browser, address) as visit:
                visit.page.wait_for_function(DRAWN, polling="raf")
                times[CHANGE][name] = filter_changes(visit.page, gray_code(_labels(name), REPEATS))
        for _ in range(COLD_REPEATS):
            for name, address in pages.items():
                add_cell(path)
                times[COLD][name].append(first_chart(browser, address))
    return times


def _labels(page: str) -> list[str]:
    widths = (256, 384, 512, 640)
    return [f"{width}×{width // 64}" if page == OURS else str(width) for width in widths]


def _report(cells: int, measured: Times, goals: dict[str, float]) -> list[Result]:
    results = []
    for what, times in measured.items():
        ours, theirs = median(times[OURS]), median(times[PLAIN])
        results.append(
            Result(
                name=f"{what}, {cells:,} cells",
                figure=f"{ours / theirs:.2f} ({ours * 1e3:.0f} ms, one chart {theirs * 1e3:.0f} ms)",
                goal=f"at most {goals[what]}" if what in goals else "",
                met=ours / theirs <= goals[what] if what in goals else None,
            )
        )
    return results


if __name__ == "__main__":
    for result in run():
        print(result)
