"""What a reader sees of missing, foreign, empty and busy files, and of a file that a sweep is filling.

The tests share one server; each test puts its file there and removes it at the end.
"""

import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from runner.schema import TABLES, RunRow
from runner.store.database import ingest
from runner.store.spool import Spool
from tests.browser import Site, opened, served, settled
from tests.command import TINY, start
from tests.runner.store.test_processes import python, read_line
from tests.synthetic import rows
from tests.synthetic.stored import change

LIVE_CONTEXTS = (64, 128, 256, 512, 1024)
BARS = "document.querySelectorAll('.st-key-card-step-by-phase .bars .point').length"


@pytest.fixture
def file(site: Site) -> Iterator[Path]:
    """Yields the path that the server reads."""
    yield site.file
    site.file.unlink(missing_ok=True)
    shutil.rmtree(Spool(site.file).folder, ignore_errors=True)


def _empty(file: Path) -> None:
    """Writes a results file with all its tables and without rows."""
    rows.store(file, of := rows.run(), [rows.ok(of, rows.asked())])
    change(file, *(f"DELETE FROM {table.name}" for table in TABLES.values() if table.stored))


def _says(page: Page, title: str, *words: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(title)
    for word in words:
        expect(page.get_by_test_id("stMain")).to_contain_text(word)
    assert page.get_by_test_id("stException").count() == 0


def test_a_missing_a_foreign_and_an_empty_file(browser: Browser, site: Site, file: Path, tmp_path: Path) -> None:
    """They follow each other at one path. The page describes each, and notices the change by itself."""
    with opened(browser, f"{site.address}/training-step") as visit:
        _says(visit.page, "Nothing has been measured yet", str(file), "python -m runner sweep")
        file.write_text("these are no results")
        _says(visit.page, "This is not a results file of Stepscope", "STEPSCOPE_DB")
        assert file.read_text() == "these are no results"
        _empty(tmp_path / "empty.duckdb")
        (tmp_path / "empty.duckdb").replace(file)
        _says(visit.page, "The results file is empty", "python -m runner sweep")


def test_busy_file(browser: Browser, site: Site, file: Path) -> None:
    """Another process has the file open for writing; when it closes it, the page recovers by itself."""
    _empty(file)
    hold = "con = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    with python(hold, file) as holder:
        assert read_line(holder) == "held"
        with opened(browser, site.address) as visit:
            expect(visit.page.get_by_role("heading", level=1)).to_have_text("The results file is busy")
            holder.communicate()
            expect(visit.page.get_by_role("heading", level=1)).to_have_text("The results file is empty")


@pytest.mark.soak
def test_an_idle_page_runs_nothing(browser: Browser, site: Site, file: Path) -> None:
    """It requests the state of the file every two seconds, and sends the server nothing until that changes."""
    rows.store(file, of := rows.run(), [rows.ok(of, rows.asked("toy-64", context=64))])
    told = list[int]()
    with opened(browser, f"{site.address}/training-step") as visit:
        visit.page.on("websocket", lambda socket: socket.on("framesent", lambda sent: told.append(len(sent))))
        visit.page.reload()
        settled(visit.page)
        told.clear()
        visit.page.wait_for_event("response", lambda answer: answer.url.endswith("/state"))
        assert told == []
        rows.store(file, of, [rows.ok(of, rows.asked("toy-64", context=128))])
        visit.page.wait_for_function(f"{BARS} == 8")
        assert told


@pytest.mark.soak
def test_a_server_below_the_path_of_a_proxy(browser: Browser, file: Path) -> None:
    """If a proxy forwards /team, pages notice new rows and programs find the API below /team and nowhere else."""
    rows.store(file, of := rows.run(), [rows.ok(of, rows.asked("toy-64", context=64))])
    with served(file, below="/team") as address, opened(browser, f"{address}/training-step") as visit:
        visit.page.wait_for_function(f"{BARS} == 4")
        rows.store(file, of, [rows.ok(of, rows.asked("toy-64", context=128))])
        visit.page.wait_for_function(f"{BARS} == 8")
        assert visit.page.request.get(f"{address}/healthz").json()["ok"]
        assert visit.page.request.get(address.replace("/team", "/healthz")).status == 404


@pytest.mark.soak
def test_charts_fill_during_a_sweep(browser: Browser, site: Site, file: Path) -> None:
    _empty(file)
    of = rows.run(label="live")
    cells = [rows.asked("toy-64", context=context) for context in LIVE_CONTEXTS]
    rows.spooled(file, of, rows.ok(of, cells[0]))
    _plan(file, of, done=1)
    with opened(browser, f"{site.address}/training-step") as visit:
        expect(visit.page.get_by_text("Sweep running: 1 of 5 cells")).to_be_visible()
        for done in (2, 3, 4):
            rows.spooled(file, of, rows.ok(of, cells[done - 1]))
            while Spool(file).files():  # until the rows are in the file itself; a page that reads it puts that off
                ingest(file)
                time.sleep(0.1)
            _plan(file, of, done=done)
            # Each remaining cell is expected to take the 2 s of the earlier ones.
            left, now = f"about {2 * (5 - done)} s left", f"now: toy-64 · {LIVE_CONTEXTS[done]} · train"
            expect(visit.page.get_by_text(f"Sweep running: {done} of 5 cells · {left} · {now}")).to_be_visible()
            visit.page.wait_for_function(f"{BARS} == {4 * done}")
        _plan(file, of, done=4, age_s=60)
        said = "Interrupted after 4 of 5 cells: run the same command again to go on"
        expect(visit.page.get_by_text(said)).to_be_visible()


@pytest.mark.soak
def test_a_real_sweep_fills_the_page(browser: Browser, site: Site, file: Path) -> None:
    """The same holds for a sweep started from the command line, whose cells arrive when they are done."""
    contexts = ",".join(str(context) for context in range(64, 512, 8))
    words = ("--contexts", contexts, "--steps", "50", "--max-steps", "50")
    with start("sweep", *TINY, *words, db=file) as sweep, opened(browser, f"{site.address}/training-step") as visit:
        page = visit.page
        expect(page.get_by_text(re.compile(r"Sweep running: \d+ of 56 cells"))).to_be_visible()
        for _ in range(3):
            page.wait_for_function(f"before => {BARS} > before", arg=page.evaluate(BARS))
        sweep.send_signal(signal.SIGINT)


def _plan(file: Path, of: RunRow, *, done: int, age_s: float = 0.0) -> None:
    titles = [f"toy-64 · {context} · train · fp32 · eager" for context in LIVE_CONTEXTS]
    Spool(file).write_plan(rows.plan(of, titles, done=done, age_s=age_s), of.run_id)
