"""The dashboard as its readers meet it: a real server, opened first by a deep link, in a real browser.

The order of the tests matters for one of them: `test_cold_deep_link` must be the server's first visitor.
"""

import os
import re
import subprocess
import sys
import time
import tomllib
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from playwright.sync_api import Browser, Page, expect

from pages.charts.colors import PALETTE
from runner.schema import TABLES, RunRow
from runner.store.database import ingest
from runner.store.spool import Spool
from tests import memory_rows, rows, timelines
from tests.browser import ROOT, chromium, opened, served

PAGES = {
    "": "What is in this file?",
    "training-step": "Where does the time of a training step go?",
    "mixed-precision": "How much faster is mixed precision?",
    "torch-compile": "What does torch.compile buy, and when has it paid for itself?",
    "kernels": "What is the time of a step made of?",
    "roofline": "How far from the limit of this machine is this step, and what would help?",
    "explore": "How does anything depend on anything?",
    "attention": "What does attention cost as sequences grow?",
    "peak-memory": "What fills the memory at the peak of a step?",
    "memory-timeline": "What fills memory during a step?",
    "compare": "Is B faster than A, and why?",
    "data": "What exactly was stored?",
    "sql": "What else do the rows say?",
}
expect.set_options(timeout=20_000)
CHART = ".js-plotly-plot .main-svg"
LIVE_CONTEXTS = (64, 128, 256, 512, 1024)
#: Python runs this at the start of the server, whatever it is going to import, and tells it of every socket it uses.
TELLS_WHOM_IT_ASKS = """
import sys
def told(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname"):
        address = arguments[0] if event.startswith("socket.get") else arguments[1]
        host = address[0] if isinstance(address, tuple) else address
        if host not in ("localhost", "127.0.0.1", "::1", "", None):
            with open({log!r}, "a") as log:
                print(event, host, file=log)
sys.addaudithook(told)
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where servers that are started from now on write whom they ask: every address but this machine's own."""
    folder = tmp_path_factory.mktemp("asked")
    (folder / "sitecustomize.py").write_text(TELLS_WHOM_IT_ASKS.format(log=str(folder / "log")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        yield folder / "log"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, asked: Path) -> Iterator[str]:
    """A server over a small finished sweep of every experiment that nobody has visited yet."""
    of, path = rows.run(label="first look"), tmp_path_factory.mktemp("app") / "results.duckdb"
    rows.store(path, of, rows.laptop(of))
    attention = [memory_rows.attention(of, seq_len=length) for length in (256, 1024)]
    parts = {"parameters": 2**20, "activations": 2**22}
    memory_rows.store(path, [*attention, memory_rows.memory(of, parts), memory_rows.memory(of, parts, context=256)])
    timelines.write(path, of, timelines.step(allocations=300))
    with served(path) as found:
        yield found


def test_cold_deep_link(browser: Browser, address: str) -> None:
    """The first visitor of a server may come by a link into the middle: right page, navigation, filters as linked."""
    with opened(browser, f"{address}/mixed-precision?size=toy-128&context=64") as visit:
        expect(visit.page.get_by_role("heading", level=1)).to_have_text(PAGES["mixed-precision"])
        expect(visit.page.get_by_test_id("stSidebarNavLink")).to_have_count(len(PAGES))
        expect(visit.page.locator(CHART).first).to_be_visible()
        assert _labels(visit.page, "precision-speedup") == ["toy-128 · 64 tok"]


@pytest.mark.parametrize("path", PAGES)
def test_every_page(browser: Browser, address: str, path: str) -> None:
    """Every page opens by its address, says its question, and asks nothing of the outside."""
    with opened(browser, f"{address}/{path}") as visit:
        expect(visit.page.get_by_role("heading", level=1)).to_have_text(PAGES[path])
        shown = f"{CHART}, [data-testid=stDataFrame], [data-testid=stCode], canvas"  # or how to measure what is missing
        expect(visit.page.locator(shown).filter(visible=True).first).to_be_visible()
        _settled(visit.page)
        assert visit.page.get_by_test_id("stException").count() == 0
        assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("path", PAGES)
def test_every_page_on_a_phone(browser: Browser, address: str, path: str) -> None:
    with opened(browser, f"{address}/{path}", width=390, height=844) as visit:
        expect(visit.page.get_by_role("heading", level=1)).to_be_visible()
        _settled(visit.page)
        main = visit.page.get_by_test_id("stMain")
        assert main.evaluate("main => main.scrollWidth <= main.clientWidth"), "the page scrolls sideways"


def test_the_server_asks_nobody(address: str, asked: Path) -> None:
    """After every page has been drawn twice, the server has neither looked up nor called any other machine. That it
    would have been seen, a process shows that is started in the same way."""
    assert not asked.exists(), asked.read_text()
    call = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))"
    subprocess.run([sys.executable, "-c", call], check=False)
    assert asked.read_text() == "socket.connect 192.0.2.1\n"
    asked.unlink()


def test_filters_go_to_the_url_and_back(browser: Browser, address: str) -> None:
    """A filter that is clicked is in the URL; the URL brings the same view to somebody else, also on the next page."""
    with opened(browser, f"{address}/training-step") as visit:
        expect(visit.page.locator(CHART).first).to_be_visible()
        visit.page.get_by_test_id("stSidebar").get_by_role("button", name="toy-64", exact=True).click()
        expect(visit.page).to_have_url(re.compile("size=toy-64"))
        _settled(visit.page)
        seen, link = _labels(visit.page, "phases"), visit.page.url
        visit.page.get_by_test_id("stSidebarNavLink").filter(has_text="Mixed precision").click()
        expect(visit.page.get_by_role("heading", level=1)).to_have_text(PAGES["mixed-precision"])
        expect(visit.page).to_have_url(re.compile("size=toy-64"))
    assert seen == ["toy-64 64", "toy-64 128", "toy-64 256"]
    with opened(browser, link) as visit:
        expect(visit.page.locator(CHART).first).to_be_visible()
        _settled(visit.page)
        assert _labels(visit.page, "phases") == seen


def test_a_value_that_is_gone_is_reported(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/training-step?size=10B&context=64&run=long+ago") as visit:
        notice = visit.page.get_by_test_id("stAlert").filter(has_text="Not in this file")
        expect(notice).to_contain_text("size “10B”")
        expect(notice).to_contain_text("run “long ago”")
        visit.page.get_by_role("button", name="Understood").click()
        expect(notice).to_have_count(0)


def test_the_link_says_everything(browser: Browser, address: str) -> None:
    """Defaults included, with the edition of the data; a link made from other data is reported."""
    with opened(browser, f"{address}/training-step?context=64&data=00000000") as visit:
        expect(visit.page.get_by_text("This link was made when the file held other rows")).to_be_visible()
        card = visit.page.locator(".st-key-card-phases")
        card.get_by_role("button", name="Share").click()
        link = visit.page.get_by_test_id("stPopoverBody").locator("code").first.inner_text()
        asked = urllib.parse.parse_qs(urllib.parse.urlsplit(link).query)
        assert asked["machine"] == ["Example CPU · bench1"]
        assert (asked["mode"], asked["context"], asked["run"]) == (["train"], ["64"], ["All, latest first"])
        assert re.fullmatch("[1-9a-f][0-9a-f]{7}|0[0-9a-f]{7}", asked["data"][0])
        assert asked["data"] != ["00000000"]
        assert urllib.parse.urlsplit(link).fragment == "phases"
        command = visit.page.get_by_test_id("stPopoverBody").locator("code").nth(1).inner_text()
        assert command.startswith("python -m runner sweep")
        assert "toy-256" in command
    with opened(browser, link) as visit:
        expect(visit.page.get_by_role("heading", level=1)).to_have_text(PAGES["training-step"])
        _settled(visit.page)
        assert visit.page.get_by_test_id("stAlert").count() == 0


def test_table_and_download(browser: Browser, address: str) -> None:
    """The card's CSV holds the numbers of the chart: toy-64 at 64 tokens takes 2 * 64**1.5 * 64 / 20,000 ms in fp32."""
    with opened(browser, f"{address}/training-step?phases-as=Table") as visit:
        card = visit.page.locator(".st-key-card-phases")
        expect(card.get_by_test_id("stDataFrame")).to_be_visible()
        card.get_by_role("button", name="Share").click()
        with visit.page.expect_download() as started:
            visit.page.get_by_role("button", name="Download CSV").click()
        heading, *lines = Path(started.value.path()).read_text().splitlines()
    assert heading.startswith("Size,Context (tokens),Precision,Backend,Phase,Median (ms),")
    whole = next(line.split(",") for line in lines if line.startswith("toy-64,64,fp32,eager,whole step"))
    assert float(whole[5]) == pytest.approx(2 * 64**1.5 * 64 / 20_000, rel=1e-3)
    assert any(line.startswith("toy-256,256,fp32,eager") and "oom,backward" in line for line in lines)


def test_a_click_pins_the_cell(browser: Browser, address: str) -> None:
    """Clicking a bar puts the cell into the URL; a reload still shows it; an id that is not there is reported."""
    with opened(browser, f"{address}/training-step?size=toy-64") as visit:
        _settled(visit.page)
        visit.page.locator(".st-key-card-phases .bars .point").first.click(force=True)
        expect(visit.page).to_have_url(re.compile("cell=[0-9a-f-]{36}"))
        expect(visit.page.locator(".st-key-card-samples h3")).to_contain_text("toy-64 · 64 · train · fp32")
        expect(visit.page.get_by_text("The audit found nothing against this row.")).to_be_visible()
        visit.page.reload()
        expect(visit.page.locator(".st-key-card-samples h3")).to_contain_text("toy-64 · 64 · train · fp32")
    with opened(browser, f"{address}/training-step?cell=00000000-0000-7000-8000-000000000000") as visit:
        expect(visit.page.get_by_text("which is not in this file")).to_be_visible()


# ------------------------------------------------------------------------------------------- bad files and a live sweep


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the second server looks; each test puts there what it is about."""
    return tmp_path_factory.mktemp("states") / "results.duckdb"


@pytest.fixture(scope="module")
def elsewhere(file: Path) -> Iterator[str]:
    with served(file) as found:
        yield found


def _says(browser: Browser, address: str, title: str, *words: str) -> None:
    with opened(browser, f"{address}/training-step") as visit:
        expect(visit.page.get_by_role("heading", level=1)).to_have_text(title)
        for word in words:
            expect(visit.page.get_by_test_id("stMain")).to_contain_text(word)
        assert visit.page.get_by_test_id("stException").count() == 0


def test_missing_file(browser: Browser, elsewhere: str, file: Path) -> None:
    _says(browser, elsewhere, "Nothing has been measured yet", str(file), "python -m runner sweep")


def test_foreign_file(browser: Browser, elsewhere: str, file: Path) -> None:
    file.write_text("these are no results")
    try:
        _says(browser, elsewhere, "This is not a results file of Stepscope", "STEPSCOPE_DB")
        assert file.read_text() == "these are no results"
    finally:
        file.unlink()


def test_empty_file(browser: Browser, elsewhere: str, file: Path) -> None:
    of = rows.run()
    rows.store(file, of, [rows.ok(of, rows.asked())])
    with duckdb.connect(file) as con:
        for table in TABLES.values():
            con.execute(f"DELETE FROM {table.name}" if table.stored else "SELECT 1")
    _says(browser, elsewhere, "The results file is empty", "python -m runner sweep")


def test_busy_file(browser: Browser, elsewhere: str, file: Path) -> None:
    """Another process has the file open for writing; when it lets go, the page recovers by itself."""
    hold = f"import duckdb, sys; con = duckdb.connect({str(file)!r}); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        os.utime(file)  # else the page shows what it remembers of this state of the file
        with opened(browser, elsewhere) as visit:
            expect(visit.page.get_by_role("heading", level=1)).to_have_text("The results file is busy")
            holder.stdin.close()
            holder.wait(timeout=10)
            expect(visit.page.get_by_role("heading", level=1)).to_have_text("The results file is empty")


def test_live_filling(browser: Browser, elsewhere: str, file: Path) -> None:
    """While a sweep runs, charts fill by themselves; pinned cell, zoom and place on the page survive three ingests."""
    of = rows.run(label="live")
    cells = [rows.asked("toy-64", context=context) for context in LIVE_CONTEXTS]
    rows.spooled(file, of, rows.ok(of, cells[0]))
    _plan(file, of, done=1)
    with opened(browser, f"{elsewhere}/training-step") as visit:
        expect(visit.page.get_by_text("Sweep running: 1 of 5 cells")).to_be_visible()
        _settled(visit.page)
        visit.page.locator(".st-key-card-phases .bars .point").first.click(force=True)
        expect(visit.page).to_have_url(re.compile("cell="))
        pinned = visit.page.url
        _settled(visit.page)
        zoomed = _zoom(visit.page, "phases")
        _scroll(visit.page, 120)
        for done in (2, 3, 4):
            rows.spooled(file, of, rows.ok(of, cells[done - 1]))
            while ingest(file):
                pass
            assert not Spool(file).files(), "the rows are in the file itself"
            _plan(file, of, done=done)
            # Each cell still owed takes the 2 s that those before it took.
            left, now = f"about {2 * (5 - done)} s left", f"now: toy-64 · {LIVE_CONTEXTS[done]} · train"
            expect(visit.page.get_by_text(f"Sweep running: {done} of 5 cells · {left} · {now}")).to_be_visible()
            bars = f"document.querySelectorAll('.st-key-card-phases .bars .point').length == {4 * done}"
            visit.page.wait_for_function(bars)
            _settled(visit.page)
            assert visit.page.url == pinned
            expect(visit.page.locator(".st-key-card-samples h3")).to_contain_text("toy-64 · 64 · train · fp32")
            assert _range(visit.page, "phases") == pytest.approx(zoomed, rel=1e-6)
            assert _scroll(visit.page) == pytest.approx(120, abs=2)
        _plan(file, of, done=4, age_s=60)
        expect(
            visit.page.get_by_text("Interrupted after 4 of 5 cells: run the same command again to go on")
        ).to_be_visible()
    Spool(file).remove_plan(of.run_id)


def _plan(file: Path, of: RunRow, *, done: int, age_s: float = 0.0) -> None:
    titles = [f"toy-64 · {context} · train · fp32 · eager" for context in LIVE_CONTEXTS]
    Spool(file).write_plan(rows.plan(of, titles, done=done, age_s=age_s), of.run_id)


# ----------------------------------------------------------------------------------------------------- reading the page


def _settled(page: Page) -> None:
    """Wait until the script has run and the page has not changed for a moment."""
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)
    time.sleep(0.6)


def _figure(page: Page, card: str, expression: str) -> list[object]:
    page.wait_for_selector(f".st-key-card-{card} {CHART}")
    found: list[object] = page.evaluate(
        f"(chart => {expression})(document.querySelector('.st-key-card-{card} .js-plotly-plot'))"
    )
    return found


def _labels(page: Page, card: str) -> list[object]:
    """The categories of the card's vertical axis, from top to bottom."""
    return _figure(
        page,
        card,
        """(chart.layout.yaxis.ticktext
        || chart.calcdata[chart.calcdata.length - 1][0].trace._y || chart._fullLayout.yaxis._categories)
        .map(label => Array.isArray(label) ? label.join(' ') : label)""",
    )


def _range(page: Page, card: str) -> list[object]:
    return _figure(page, card, "chart._fullLayout.xaxis.range")


def _zoom(page: Page, card: str) -> list[object]:
    """Drag over the middle of the chart; returns the range that results."""
    before = _range(page, card)
    box = page.locator(f".st-key-card-{card} .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 4)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + box["height"] - 4, steps=6)
    page.mouse.up()
    page.wait_for_timeout(500)
    assert _range(page, card) != before
    return _range(page, card)


def _scroll(page: Page, to: int | None = None) -> float:
    found: float = page.get_by_test_id("stMain").evaluate(
        "(main, to) => { if (to !== null) main.scrollTop = to; return main.scrollTop }", to
    )
    return found


def test_theme_has_the_palette() -> None:
    """Plotly falls back to its own colors unless the theme has exactly ten."""
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())["theme"]
    assert tuple(theme["chartCategoricalColors"]) == PALETTE
    assert len(PALETTE) == 10
