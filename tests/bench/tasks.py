"""How many clicks and scrolls it takes from the front page to answer five questions, and how soon each page draws.

    python -m tests.bench.tasks results.duckdb
    python -m tests.bench.tasks results.duckdb --charts
    python -m tests.bench.tasks results.duckdb --app ../older      # the app of another checkout

A reader with a window of 1400 × 900 pixels looks at the screen, clicks on the next link of the task, and scrolls when
it is not on the screen. A question is answered as soon as a sentence on the screen contains the expected words, which
come from SQL over the file and not from the page. For charts, the time is that of a new visitor until the first one,
the faster of two visits.
"""

import argparse
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from playwright.sync_api import Browser, Locator, Page
from rich.console import Console
from rich.table import Table

from pages.figures.frame import format_error
from pages.figures.parts import CATEGORY_WORDS
from runner.formats import format_bytes, format_ms
from runner.schema.sizes import size_named
from runner.store.database import open_reader
from runner.store.queries.memory import PARTS
from tests.browser import AT_REST, ROOT, chromium, opened, served, settled

WIDTH, HEIGHT = 1400, 900
MAX_CLICKS, MAX_SCROLLS = 2, 15
#: Finds every line of text that is completely on the screen and not covered by anything.
LINES = """() => [...document.querySelectorAll("[data-testid=stMain] :is(p, li, h1, h2, h3, h4)")].flatMap(block => {
    const lines = [[]]
    for (const node of block.childNodes) node.nodeName === "BR" ? lines.push([]) : lines.at(-1).push(node)
    return lines.filter(nodes => nodes.length).flatMap(nodes => {
        const range = document.createRange()
        range.setStartBefore(nodes[0])
        range.setEndAfter(nodes.at(-1))
        const box = range.getBoundingClientRect(), [first] = range.getClientRects()
        const seen = first && box.top >= 0 && box.bottom <= innerHeight && block.checkVisibility()
        const top = seen && document.elementFromPoint(first.left + 2, first.top + first.height / 2)
        return top && (block.contains(top) || top.contains(block)) ? [range.toString().replace(/\\s+/g, " ")] : []
    })
})"""
#: The first drawing of a page: a chart, a small picture or a timeline. `rest` matches a page without any.
CHARTS = "[data-testid=stPlotlyChart] .main-svg, .small-bars, [data-testid=stMain] canvas"
FIRST = f"""frames => document.querySelector("{CHARTS}") ? "chart" : ({AT_REST})(frames) && "rest\""""
#: The rows that count here: those of the latest run of each cell.
LATEST = "FROM {} t WHERE status = 'ok' AND run_id = (SELECT max(run_id) FROM {} o WHERE o.cell_key = t.cell_key)"
Words = Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A question, the names that a reader clicks on in order, as far as they are there, and the expected words, all in
    one line: any of these lists will do. Without a list the file has no rows for the question, and `missing` says
    which."""

    question: str
    clicks: Sequence[str]
    answers: Sequence[Words]
    missing: str


@dataclass(frozen=True, kw_only=True)
class Walk:
    """The cost of a task. `line` is the answer as shown on the screen; empty if it was not found."""

    clicks: int = 0
    scrolls: int = 0
    line: str = ""

    @property
    def met(self) -> bool:
        return bool(self.line) and self.clicks <= MAX_CLICKS and not self.scrolls


def load_tasks(path: Path) -> list[Task]:
    """Returns the five tasks with the answers that this file gives."""
    with open_reader(path) as reader:

        def ask(query: str) -> list[Any]:
            return reader.execute(query).fetchall()

        def of(size: str) -> str:
            return " AND ".join(f"{name} = {value}" for name, value in size_named(size).numbers.items())

        def latest(table: str) -> str:
            return LATEST.format(table, table)

        fastest = ask(
            f"""SELECT context, precision, backend, exp(avg(ln(median_ms))) AS ms
                FROM (SELECT * {latest("steps")}) JOIN timings USING (cell_id)
                WHERE phase = 'step' AND mode = 'train' AND warmup_steps >= 5 AND {of("medium")}
                GROUP BY cell_key, context, batch, precision, backend
                QUALIFY row_number() OVER (PARTITION BY context, batch ORDER BY ms) = 1"""
        )
        errors = ask(f"SELECT gradient_error {latest('numerics')} AND precision = 'bf16' AND gradient_error > 0")
        lengths = ask(
            """SELECT 'out', min(seq_len) FROM attention WHERE status = 'oom' AND implementation = 'naive'
               GROUP BY precision, d_head, causal, batch, backend UNION ALL
               SELECT 'fits', largest FROM frontier WHERE limited = 'seq_len' AND implementation = 'naive'"""
        )
        parts = ", ".join(f"('{name}', {column})" for name, column in PARTS.items() if name != "fragmentation")
        peaks = ask(
            f"""WITH top AS (SELECT * {latest("memory")} AND mode = 'train' AND checkpoint_blocks = 0 AND {of("large")}
                    ORDER BY peak_allocated_bytes DESC LIMIT 1)
                SELECT peak_allocated_bytes, part.name, part.size
                FROM top, LATERAL (VALUES {parts}) AS part(name, size) ORDER BY part.size DESC NULLS LAST LIMIT 1"""
        )
        runs = ask(
            """WITH ok AS (SELECT DISTINCT run_id, cell_key FROM (
                   SELECT run_id, cell_key, status FROM steps UNION ALL SELECT run_id, cell_key, status FROM attention
                   UNION ALL SELECT run_id, cell_key, status FROM memory) WHERE status = 'ok')
               SELECT DISTINCT a.run_id, b.run_id FROM ok a JOIN ok b ON a.cell_key = b.cell_key
                   AND a.run_id < b.run_id"""
        )
    return [
        Task(
            question="the fastest way to train medium",
            clicks=("Training step",),
            answers=[("medium", f"{context:,}", precision, backend, format_ms(ms))
                     for context, precision, backend, ms in fastest],
            missing="no training step of medium",
        ),
        Task(
            question="whether bf16 costs accuracy",
            clicks=("Mixed precision",),
            answers=[("bf16", format_error(error)) for (error,) in errors],
            missing="no error of bf16",
        ),
        Task(
            question="the length at which naive attention runs out",
            clicks=("Attention",),
            answers=[("naive", how, f"{length:,}") for how, length in lengths if length],
            missing="no naive attention that ran out of memory, and no search for the longest that fits",
        ),
        Task(
            question="what fills the memory at the peak of large",
            clicks=("Peak memory", "Size", "large"),
            answers=[("large", format_bytes(peak), f"{CATEGORY_WORDS[part]} {size / peak:.0%}")
                     for peak, part, size in peaks],
            missing="no peak of a training step of large",
        ),
        Task(
            question="what changed between two runs",
            clicks=("Compare",),
            answers=[(a.hex[-6:], b.hex[-6:], "comparable") for a, b in runs],
            missing="no two runs that share a cell",
        ),
    ]  # fmt: skip


def walk(page: Page, task: Task) -> Walk:
    """Goes from the front page to the answer as a reader would."""
    clicks = scrolls = 0
    names = list(task.clicks)
    settled(page)
    while not (line := find_line(page, task.answers)):
        if names:
            if found := _find(page, names.pop(0)):
                scrolls += _click(found)
                clicks += 1
        elif scrolls < MAX_SCROLLS and not _is_at_end(page):
            page.get_by_test_id("stMain").evaluate("main => main.scrollBy(0, main.clientHeight * 0.9)")
            scrolls += 1
        else:
            break
        settled(page)
    return Walk(clicks=clicks, scrolls=scrolls, line=line)


def find_line(page: Page, answers: Sequence[Words]) -> str:
    """Returns the first line on the screen that has all words of an answer as whole words, else an empty string."""
    lines: list[str] = page.evaluate(LINES)
    return next((line for line in lines if any(all(_has(line, word) for word in words) for words in answers)), "")


def _has(line: str, word: str) -> bool:
    return re.search(rf"(?<![\w.,]){re.escape(word)}(?![\w%]|[.,]\d)", line) is not None


def _click(found: Locator) -> int:
    """Clicks, which makes a box list its options. Returns 1 if a reader has to scroll to it, else 0."""
    box, is_box = found.bounding_box(), found.get_attribute("role") == "combobox"
    found.click()
    if is_box:
        found.press("ArrowDown")
    return int(box is None or box["y"] + box["height"] > HEIGHT)


def _find(page: Page, name: str) -> Locator | None:
    """Returns the link, the button, the box or the option of a box that has this name; None if there is none."""
    found = page.get_by_role("combobox", name=name)
    for role in ("link", "button", "option"):
        found = found.or_(page.get_by_role(role, name=name, exact=True))
    return found.first if found.count() else None


def _is_at_end(page: Page) -> bool:
    return bool(
        page.get_by_test_id("stMain").evaluate("main => main.scrollTop + main.clientHeight >= main.scrollHeight - 2")
    )


def time_charts(browser: Browser, address: str) -> Iterator[tuple[str, float | None]]:
    """Yields each page with the seconds until its first chart, the faster of two visits; None for a page without
    one."""
    with opened(browser, address, width=WIDTH, height=HEIGHT) as visit:
        settled(visit.page)
        links = visit.page.get_by_test_id("stSidebarNav").get_by_role("link").all()
        pages = {link.inner_text().split("\n")[-1].strip(): str(link.evaluate("link => link.href")) for link in links}
    for title, target in pages.items():
        found = [_time_chart(browser, target) for _ in range(2)]
        yield title, min((seconds for seconds in found if seconds), default=None)


def _time_chart(browser: Browser, address: str) -> float | None:
    started = perf_counter()
    with opened(browser, address, width=WIDTH, height=HEIGHT) as visit:
        shown = visit.page.wait_for_function(FIRST, arg=10, polling="raf").json_value()
        return perf_counter() - started if shown == "chart" else None


@contextmanager
def app_over(path: Path, tree: Path) -> Iterator[str]:
    """Yields the address of a checkout's app over a link to this file, so that the server writes nothing next to the
    file."""
    with tempfile.TemporaryDirectory(prefix="tasks-") as folder:
        link = Path(folder) / path.name
        link.symlink_to(path.resolve())
        with served(link, root=tree) as address:
            yield address


def main() -> None:
    parser = argparse.ArgumentParser(description="How far five answers are from the front page.")
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--charts", action="store_true", help="also the seconds to the first chart of each page")
    parser.add_argument("--app", type=Path, default=ROOT, metavar="TREE", help="a checkout whose app is shown")
    given = parser.parse_args()
    tasks = Table("task", "clicks", "scrolls", "answer on the screen", "goal met", box=None, header_style="bold")
    with app_over(given.file, given.app.resolve()) as address, chromium() as browser:
        for task in load_tasks(given.file):
            if not task.answers:
                tasks.add_row(task.question, "", "", f"The file has {task.missing}.", "no rows")
                continue
            with opened(browser, address, width=WIDTH, height=HEIGHT) as visit:
                done = walk(visit.page, task)
            told = done.line or "not found"
            tasks.add_row(task.question, str(done.clicks), str(done.scrolls), told, "yes" if done.met else "NO")
        console = Console(width=160)
        console.print(tasks)
        console.print(f"Goal: at most {MAX_CLICKS} clicks, and no scroll.")
        if given.charts:
            charts = Table("page", "seconds to the first chart", box=None, header_style="bold")
            for title, seconds in time_charts(browser, address):
                charts.add_row(title, f"{seconds:.2f}" if seconds else "no chart")
            console.print(charts)


if __name__ == "__main__":
    main()
