"""How long a reader waits, over 200,000 timing rows, against a one-chart Streamlit page on the same rows.

    python -m tests.bench.app

Gives, as medians of 10 in headless Chromium, the time from opening the page to its first chart and from changing a
filter to the redrawn chart, for both pages, and their ratios (goal: at most 1.5). The two pages take turns. Every
opening is a new visitor; every filter change asks for a selection that nobody asked for before.
"""

import tempfile
import time
from pathlib import Path
from statistics import median

import duckdb
from playwright.sync_api import Browser, Page

from tests import rows
from tests.bench.result import Result
from tests.browser import chromium, opened, served

REPEATS, GOAL, TIMINGS = 10, 1.5, 200_000
CHART = "document.querySelector('.js-plotly-plot')"
DRAWN = f"{CHART} && {CHART}.data && {CHART}.data !== window.__before && {CHART}.querySelector('.bars .point path')"

_GRID = """
    CREATE TEMP TABLE grid AS
    SELECT r.run_id, uuid() AS cell_id, d_model, 4 * d_model AS d_ff, d_model // 64 AS layers, d_model // 64 AS heads,
        context, mode, precision, backend, round
    FROM runs r, (SELECT unnest([256, 384, 512, 640, 768, 1024]) AS d_model),
        (SELECT unnest([64, 128, 256, 512, 1024, 2048]) AS context),
        (SELECT unnest(['inference', 'forward', 'backward', 'train']) AS mode),
        (SELECT unnest(['fp32', 'tf32', 'bf16', 'fp16']) AS precision),
        (SELECT unnest(['eager', 'compiled', 'compiled-block', 'compiled-reduce-overhead',
            'compiled-max-autotune']) AS backend),
        (SELECT unnest([0, 1, 2]) AS round);
    INSERT INTO steps BY NAME
    SELECT *, substr(md5(concat_ws(' ', d_model, context, mode, precision, backend)), 1, 16) AS cell_key,
        'ok' AS status,
        10000 AS vocabulary, 4 AS batch, 'fp32' AS weights_dtype, 'naive' AS attention, 'foreach' AS optimizer,
        0 AS checkpoint_blocks, 5 AS warmup_steps, 10 AS min_steps, 200 AS max_steps, 10.0 AS max_seconds,
        12 * layers * d_model * d_model AS parameters, 1e4 AS tokens_per_s FROM grid;
    CREATE TEMP TABLE phases AS
    SELECT g.run_id, g.cell_id, p.phase, g.d_model * g.context / 1e4 * p.share * (0.9 + random() / 5) AS ms FROM grid g
    JOIN (VALUES ('forward', 0.3, 1), ('loss', 0.02, 3), ('backward', 0.56, 3), ('optimizer', 0.12, 4),
        ('forward_backward', 0.86, 3), ('step', 1.0, 1)) p(phase, share, least)
        ON p.least <= CASE g.mode WHEN 'train' THEN 4 WHEN 'backward' THEN 3 ELSE 1 END;
    INSERT INTO timings BY NAME
    SELECT run_id, cell_id, phase, 10 AS n, ms AS median_ms, ms AS mean_ms, 0.05 * ms AS std_ms, 0.97 * ms AS low_ms,
        1.03 * ms AS high_ms, ms AS host_median_ms, 'host' AS clock FROM phases;
    INSERT INTO samples BY NAME
    SELECT run_id, cell_id, phase, step, step < 5 AS is_warmup, ms * (0.95 + random() / 10) AS duration_ms
    FROM phases, (SELECT unnest(range(15)) AS step) WHERE phase IN ('forward', 'loss', 'backward', 'optimizer');"""


def fill(path: Path) -> int:
    """A file of repeated sweeps over a large grid, with at least `TIMINGS` rows in `timings`; returns how many."""
    for number in range(7):
        of = rows.run(label=f"sweep {number}")
        rows.store(path, of, [rows.ok(of, rows.asked())])
    with duckdb.connect(path) as con:
        con.execute(_GRID)
        found = con.execute("SELECT count(*) FROM timings").fetchone()
    assert found is not None
    assert found[0] >= TIMINGS, found
    return int(found[0])


def first_chart(browser: Browser, address: str) -> float:
    """Seconds from opening the page, as a new visitor, to its first chart."""
    started = time.perf_counter()
    with opened(browser, address) as visit:
        visit.page.wait_for_function(DRAWN, polling="raf")
        return time.perf_counter() - started


def filter_changes(page: Page, names: list[str]) -> list[float]:
    """Seconds from each click on one of `names` to the redrawn chart, each for a selection never seen before."""
    found = []
    for name in names:
        page.wait_for_timeout(2_500)
        page.evaluate(f"window.__before = {CHART}.data")
        started = time.perf_counter()
        page.get_by_role("button", name=name, exact=True).first.click()
        page.wait_for_function(DRAWN, polling="raf")
        found.append(time.perf_counter() - started)
    return found


def gray_code(labels: list[str], count: int) -> list[str]:
    """Which pill to toggle each time, so that every selection on the way is a new one."""
    return [labels[((step & -step).bit_length()) - 1] for step in range(1, count + 1)]


def run() -> list[Result]:
    """Measure both pages, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.duckdb"
        print(f"{fill(path):,} timing rows")
        with served(path) as app, served(path, script="tests/bench/one_chart.py") as plain, chromium() as browser:
            pages = {"Stepscope": f"{app}/training-step?way=fp32+%C2%B7+eager", "one chart": plain}
            for address in pages.values():
                first_chart(browser, address)
            opening: dict[str, list[float]] = {name: [] for name in pages}
            for _ in range(REPEATS):
                for name, address in pages.items():
                    opening[name].append(first_chart(browser, address))
            changing = {}
            for name, address in pages.items():
                with opened(browser, address) as visit:
                    visit.page.wait_for_function(DRAWN, polling="raf")
                    changing[name] = filter_changes(visit.page, gray_code(_labels(name), REPEATS))
        return _report({"page to first chart": opening, "filter change to redraw": changing})


def _labels(page: str) -> list[str]:
    widths = (256, 384, 512, 640)
    return [f"{width}×{width // 64}" if page == "Stepscope" else str(width) for width in widths]


def _report(measured: dict[str, dict[str, list[float]]]) -> list[Result]:
    results = []
    for what, times in measured.items():
        ours, theirs = median(times["Stepscope"]), median(times["one chart"])
        figure = f"{ours / theirs:.2f} ({ours * 1e3:.0f} ms, one chart {theirs * 1e3:.0f} ms)"
        results.append(Result(name=what, figure=figure, goal=f"at most {GOAL}", met=ours / theirs <= GOAL))
    return results


if __name__ == "__main__":
    for result in run():
        print(result)
