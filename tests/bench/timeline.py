"""How fast is a timeline of 100,000 allocations drawn, at first and when zooming, in headless Chromium?

    python -m tests.bench timeline

First drawing: from the moment the component gets its data to the end of its first drawing. Zoom: from the event's own
time stamp to the task after the frame that shows it, 100 times with the wheel and 100 times with keys, at changing
places, with every block drawn (nothing folded). The component writes these times to `data-first-draw-ms` and
`data-frames-ms`, and its own part of each to `data-draws-ms`. Chromium delivers a turn of the wheel only with the next
frame, so a listener that draws nothing is measured for comparison. Limits: the timeline is synthetic; needs an
otherwise idle machine.
"""

import tempfile
from pathlib import Path
from statistics import median, quantiles

from playwright.sync_api import Locator, Page

from tests.bench.result import Result
from tests.browser import chromium, opened, served
from tests.synthetic import rows, timelines

ALLOCATIONS, ZOOMS, OPENINGS = 100_000, 100, 3
GOAL_FIRST_MS, GOAL_ZOOM_MS = 500.0, 33.0

#: What the component does on a turn of the wheel, without drawing.
_IDLE = """found => {
    found.idle = []
    found.addEventListener("wheel", event => {
        event.preventDefault()
        requestAnimationFrame(() => {
            const channel = new MessageChannel()
            channel.port1.onmessage = () => {
                found.idle.push(performance.now() - event.timeStamp)
                channel.port1.close()
            }
            channel.port2.postMessage(0)
        })
    }, {passive: false})
}"""


def run() -> list[Result]:
    """Measures the slowest first drawing of a few openings, and the 95th percentile of the zooms."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        path = Path(folder, "results.duckdb")
        held = timelines.write(path, rows.run(), timelines.step(allocations=ALLOCATIONS)).allocations
        first: list[float] = []
        with served(path) as address:
            for _ in range(OPENINGS):
                with opened(browser, f"{address}/memory-timeline?show=every+allocation&fold=nothing") as visitor:
                    visitor.page.wait_for_selector(".timeline[data-first-draw-ms]")
                    visitor.page.wait_for_timeout(1_000)
                    first += _marks(visitor.page.locator(".timeline"), "first-draw")
                    if len(first) == OPENINGS:
                        zooms = _zooms(visitor.page)
    longest, name = max(first), f"timeline of {held:,} allocations"
    return [
        Result(name=f"{name}, first drawing", figure=f"{longest:.0f} ms", goal=f"under {GOAL_FIRST_MS:.0f} ms",
               met=longest < GOAL_FIRST_MS),
        *(_result(f"its redraw on zoom by {way}", zooms[way], goal_ms=GOAL_ZOOM_MS) for way in ("wheel", "keys")),
        _result("the drawing's part of it", zooms["drawing"]),
        _result("a wheel listener that draws nothing", zooms["idle"]),
    ]  # fmt: skip


def _result(name: str, times_ms: list[float], *, goal_ms: float | None = None) -> Result:
    p95 = quantiles(times_ms, n=20, method="inclusive")[-1]
    return Result(name=name, figure=f"p95 of {len(times_ms)} {p95:.1f} ms, median {median(times_ms):.1f} ms",
                  goal=f"p95 under {goal_ms:.0f} ms" if goal_ms else "",
                  met=p95 < goal_ms if goal_ms else None)  # fmt: skip


def _zooms(page: Page) -> dict[str, list[float]]:
    """Returns times (ms) by how one zooms; `drawing` is the script's part, `idle` is the wheel over the title."""
    found, title = page.locator(".timeline"), page.locator("h1")
    found.locator(".plot").focus()
    _turn(page, found.locator(".plot"))
    wheel = _marks(found, "frames")
    for turn in range(ZOOMS):
        page.keyboard.press("+" if turn % 10 < 6 else "-")
        page.wait_for_timeout(60)
    keys, drawing = _marks(found, "frames")[len(wheel) :], _marks(found, "draws")
    title.evaluate(_IDLE)
    _turn(page, title)
    return {"wheel": wheel, "keys": keys, "drawing": drawing, "idle": title.evaluate("found => found.idle")}


def _turn(page: Page, over: Locator) -> None:
    """Turns the wheel in and out, and changes the place after every ten turns."""
    box = over.bounding_box()
    assert box is not None
    for turn in range(ZOOMS):
        if turn % 10 == 0:
            page.mouse.move(box["x"] + box["width"] * (0.2 + 0.06 * (turn // 10)), box["y"] + box["height"] * 0.6)
            page.wait_for_timeout(100)
        page.mouse.wheel(0, -160 if turn % 10 < 6 else 200)
        page.wait_for_timeout(60)


def _marks(found: Locator, name: str) -> list[float]:
    return [float(value) for value in (found.get_attribute(f"data-{name}-ms") or "").split(",")]
