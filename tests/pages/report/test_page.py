"""The page *Report* shows the command's report, and its file opens offline with every chart."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

import pytest
from playwright.sync_api import Browser, Page, expect

from runner.report.latex import render_latex
from runner.report.markdown import render_markdown
from runner.report.report import load_report
from runner.report.rows import Scope
from runner.store.queries.overview import load_runs
from tests.browser import Site, drawn, opened, settled
from tests.command import run
from tests.pages.offline.test_export import FACTS, read
from tests.synthetic import memory_rows, rows, timelines, traces

MIB = 2**20
HERE = "Example CPU · bench1"

pytestmark = pytest.mark.soak  # a page of all charts; `tests/runner/report` tests what it says


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file with rows for every chart of the page; one cell of steps and one of attention ran out of
    memory."""
    path, of = tmp_path_factory.mktemp("report-page") / "results.duckdb", rows.run()
    steps = [rows.ok(of, rows.asked(size, context=context, precision=precision))
             for size in ("toy-64", "toy-128") for context in (64, 128) for precision in ("fp32", "bf16")]  # fmt: skip
    steps += [rows.ok(of, rows.asked(context=64, backend="compiled")), rows.failed(of, rows.asked(context=256))]
    steps += [rows.ok(of, rows.asked(warmup_steps=count, min_steps=10, max_steps=10), steps=10) for count in (0, 5)]
    rows.store(path, of, steps)
    traces.store(path, [traces.profiled(of), traces.profiled(of, mode="inference")])
    attention = [memory_rows.attention(of, seq_len=length, implementation=way)
                 for way in ("naive", "sdpa-flash") for length in (512, 1024)]  # fmt: skip
    attention += [memory_rows.attention(of, seq_len=512, backend="compiled"),
                  memory_rows.attention(of, seq_len=65536, status="oom", values={"device_bytes": 2**33})]  # fmt: skip
    memory_rows.store(path, [*attention, memory_rows.memory(of, {"parameters": 4 * MIB, "activations": 8 * MIB})])
    for mode in ("inference", "train"):
        timelines.write(path, of, timelines.step(mode=mode))
    return path


@pytest.fixture(scope="module")
def page(browser: Browser, site: Site, file: Path) -> Iterator[Page]:
    with site.showing(file) as address, opened(browser, f"{address}/report", height=12_000) as visit:
        settled(visit.page)
        yield visit.page


def test_the_page_answers_question_by_question(page: Page, file: Path) -> None:
    """Every answered question has its sentence and a link to the page with details; open questions are at the end."""
    report = load_report(file, Scope(machine=HERE))
    main = page.get_by_test_id("stMain")
    for one in report.answered:
        assert one.answer.sentence[:60] in main.inner_text()
    headings = page.locator("h2").all_inner_texts()
    assert headings == [*(f"{one.id}. {one.text}" for one in report.answered), "Which questions are not answered yet?"]
    assert page.locator("h3").filter(has_text="C1").count() == (1 if "C1" in {one.id for one in report.open} else 0)
    assert page.get_by_test_id("stPageLink").filter(has_text="More on the page").count() == len(report.answered)
    assert page.locator(".js-plotly-plot .main-svg").first.is_visible()


def test_the_memory_of_a_step_is_drawn_from_its_recording(page: Page) -> None:
    """The highest point of each line is the peak of all allocations, summed one by one."""
    lines, modes = drawn(page, "report-m1"), get_args(Literal["inference", "train"])
    assert len(lines) == 2
    for line, mode in zip(lines, modes, strict=True):
        peak, _ = timelines.peak_of(timelines.step(mode=mode).blocks)
        unit = 2**20 if peak >= 2**20 else 2**10
        assert max(line["y"]) * unit == pytest.approx(peak, rel=1e-6)


def test_downloads_equal_the_files_of_the_command(page: Page, file: Path) -> None:
    report = load_report(file, Scope(machine=HERE))
    for words, text in (("Markdown", render_markdown(report)), ("LaTeX tables", render_latex(report))):
        with page.expect_download() as found:
            page.get_by_role("button", name=words).click()
        told, meant = found.value.path().read_text(), text.replace(f" --db {file}", "")
        assert told.replace(f" --db {file}", "") == meant


def test_a_question_opens_to_its_tables(page: Page) -> None:
    box = page.get_by_test_id("stExpander").filter(has_text="Tables, findings and commands").first
    box.locator("summary").first.click()
    expect(box.get_by_text("Table B1-1.")).to_be_visible()
    expect(box.get_by_text("Table B1-2.")).to_be_visible()
    expect(box.locator("code").filter(has_text="python -m runner sweep").first).to_be_visible()


def test_the_html_file_opens_offline_with_every_chart(browser: Browser, file: Path, tmp_path: Path) -> None:
    """The command writes it. It sends no request, and its tables are visible without a click on a chart."""
    done = run("report", "--format", "html", "--out", str(tmp_path / "report.html"), db=file)
    assert done.returncode == 0, done.stdout
    written = tmp_path / "report.html"
    with browser.new_context(offline=True) as apart:
        reader = apart.new_page()
        with read(reader, written):
            facts = reader.evaluate(FACTS)
            assert facts["question"] == "What do these rows answer, and what not yet?"
            assert facts["charts"] == facts["drawn"] == facts["cards"] >= 10
            text = reader.locator("main").text_content() or ""
            assert reader.locator("table").filter(has_text="Whole step (ms)").locator("visible=true").count() >= 2
    report = load_report(file, Scope(machine=HERE))
    for one in report.answered:
        assert one.answer.sentence[:60] in text, one.id
        assert all(table.caption in text for table in one.answer.tables), one.id


def test_an_edition_and_a_run_are_named_in_the_file(file: Path, tmp_path: Path) -> None:
    (of,) = load_runs(file)
    words = ("report", "--format", "html", "--edition", "2026", "--run", str(of.run_id)[:13])
    done = run(*words, "--out", str(tmp_path / "report.html"), db=file)
    assert done.returncode == 0, done.stdout
    text = (tmp_path / "report.html").read_text()
    assert "2026 of the assignment: models of its sizes at its contexts" in text
    assert f"<span>Run</span> {of.name}" in text
