"""`python -m pages.export` writes pages as files that open offline, here in a real browser without a network."""

import contextlib
import os
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

from pages.export import main
from pages.memory_timeline.pane import MAX_SHOWN
from runner.store.queries.overview import load_contents
from tests.browser import ROOT
from tests.synthetic import memory_rows, rows, timelines, traces

MIB = 2**20
#: Pages with charts, with a canvas, and of both experiments on memory; `make soak` tests all pages.
SOME = ("training-step", "peak-memory", "memory-timeline")
SIGN_IN = (
    '[auth]\nredirect_uri = "http://x/oauth2callback"\ncookie_secret = "c"\nclient_id = "i"\nclient_secret = "s"\n'
)


#: What an opened file contains. Every chart is in a card, and every card has its rows.
FACTS = """() => {
    const all = wanted => [...document.querySelectorAll(wanted)], count = wanted => all(wanted).length
    return {
        cards: count(".card"), charts: count(".card .chart"), components: count(".card .component"),
        drawn: all(".chart").filter(item => item.querySelector(".main-svg .trace, .main-svg .hm")).length,
        tables: all(".card > details > summary").filter(item => /Table · [1-9]/.test(item.textContent)).length,
        question: document.querySelector("h1 + .caption").textContent,
        origin: document.querySelector(".origin").textContent,
        filters: document.querySelector(".filters").textContent,
        links: all("nav[aria-label=Pages] a").map(item => item.getAttribute("href")).sort(),
    }
}"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file with rows for every page: steps in two precisions, a profile, attention, a peak, a timeline; one
    cell ran out of memory."""
    path, of = tmp_path_factory.mktemp("export") / "results.duckdb", rows.run()
    steps = [rows.ok(of, rows.asked(context=context, precision=precision))
             for context in (64, 128) for precision in ("fp32", "bf16")]  # fmt: skip
    steps += [rows.ok(of, rows.asked(context=64, backend="compiled")), rows.failed(of, rows.asked(context=256))]
    rows.store(path, of, steps)
    traces.store(path, [traces.profiled(of), traces.profiled(of, mode="inference")])
    held = {"parameters": 4 * MIB, "activations": 8 * MIB}
    cells = [memory_rows.attention(of, seq_len=length, implementation=way)
             for way in ("naive", "sdpa-flash") for length in (512, 1024)]  # fmt: skip
    memory_rows.store(path, [*cells, memory_rows.memory(of, held)])
    timelines.write(path, of, timelines.step(mode="train"))
    return path


@pytest.fixture(scope="module")
def exported(file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return written(file, tmp_path_factory.mktemp("some"), SOME)


def written(file: Path, place: Path, pages: Sequence[str]) -> dict[str, Path]:
    """Exports these pages next to a server's secrets: its sign-in does not apply to readers who have the results
    file."""
    (place / ".streamlit").mkdir()
    (place / ".streamlit/secrets.toml").write_text(SIGN_IN)
    words = [*pages, "--db", str(file), "--out", "report", "--address", "https://bench.example/"]
    done = subprocess.run([sys.executable, "-m", "pages.export", *words], cwd=place, check=False, timeout=200,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return {path.stem: path for path in sorted((place / "report").iterdir())}


@pytest.fixture(scope="module")
def reader(browser: Browser) -> Iterator[Page]:
    with browser.new_context(offline=True, viewport={"width": 1200, "height": 800}) as apart:
        yield apart.new_page()


@contextlib.contextmanager
def read(page: Page, file: Path) -> Iterator[None]:
    """Opens the file in a browser without a network; fails if it sent a request or the console reported an error."""
    wrong: list[str] = []

    def asked(request: Request) -> None:
        if not request.url.startswith((file.as_uri(), "data:", "blob:file:", "blob:null")):
            wrong.append(request.url)

    def said(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            wrong.append(message.text)

    def failed(error: Exception) -> None:
        wrong.append(str(error))

    page.on("request", asked)
    page.on("console", said)
    page.on("pageerror", failed)
    page.goto(file.as_uri())
    yield
    assert wrong == [], file.name
    for event, heard in (("request", asked), ("console", said), ("pageerror", failed)):
        page.remove_listener(event, heard)


def test_pages_open_offline_with_every_chart(reader: Page, exported: Mapping[str, Path], file: Path) -> None:
    assert exported.keys() == set(SOME)
    charts = check_offline(reader, exported, file)
    assert charts.pop("memory-timeline") == 0
    assert all(charts.values())


@pytest.mark.soak
def test_every_page_opens_offline_with_every_chart(reader: Page, file: Path, tmp_path: Path) -> None:
    exported = written(file, tmp_path, ["--all"])
    assert len(exported) >= 11
    charts = check_offline(reader, exported, file)
    assert all(charts[name] for name in ("training-step", "mixed-precision", "kernels", "attention", "peak-memory"))


def check_offline(reader: Page, exported: Mapping[str, Path], file: Path) -> dict[str, int]:
    """Asserts as many drawn charts as cards, each with its table, and the question, the edition, the filters and the
    other pages. Returns the number of charts by page."""
    charts, edition = {}, load_contents(file).edition
    for address, path in exported.items():
        assert path.stat().st_size < 8e6
        assert not re.search(r"Click an? \w+", path.read_text()), "an exported file has no buttons that need a server"
        with read(reader, path):
            facts = reader.evaluate(FACTS)
        charts[address] = facts["charts"]
        assert facts["drawn"] == facts["tables"] == facts["charts"] == facts["cards"] - facts["components"], address
        assert facts["question"].endswith("?")
        assert facts["origin"].startswith(f"Stepscope results.duckdb, edition {edition}, written 20")
        # A reader's own query reads the whole file: SQL has no filters.
        assert facts["filters"].startswith("Machine Example CPU") == (address != "sql"), address
        assert facts["links"] == [f"{other}.html" for other in exported if other != address]
    return charts


def test_an_exported_file_says_the_same_as_the_page(reader: Page, exported: Mapping[str, Path]) -> None:
    """128 tokens of toy-64 take 6.5536 ms. The link leads to the dashboard with every filter, and the command measures
    the rows."""
    with read(reader, exported["training-step"]):
        words = reader.locator("main").inner_text()
        assert "The longest step here, toy-64 at 128 tokens, fp32, eager, takes 6.55 ms" in words
        card = reader.locator("#phases").locator("xpath=ancestor::section")
        row = card.locator("tr", has_text="128").filter(has_text="whole step")
        assert "6.5536" in row.locator("td").all_text_contents()
        link, command = (urllib.parse.urlsplit(text) for text in card.locator("pre").all_text_contents()[:2])
        assert (link.netloc, link.path, link.fragment) == ("bench.example", "/training-step", "phases")
        assert urllib.parse.parse_qs(link.query)["mode"] == ["train"]
        assert command.path.startswith("python -m runner sweep")
        label = card.locator(".chart").get_attribute("aria-label") or ""
        assert label.startswith("Time of each phase")
        assert "*" not in label
        reader.emulate_media(color_scheme="dark")
        expect(reader.locator(".chart .main-svg").first).to_have_css("background-color", "rgb(16, 21, 28)")
        reader.emulate_media(color_scheme="light")


def test_the_timeline_is_drawn_from_the_file(reader: Page, exported: Mapping[str, Path]) -> None:
    """The canvas reports the peak that it drew, which must equal the sum of the recorded allocations."""
    with read(reader, exported["memory-timeline"]):
        drawn = reader.locator(".component .timeline[data-drawn-peak]")
        drawn.wait_for()
        peak, _ = timelines.peak_of(timelines.step(mode="train").blocks)
        assert float(drawn.get_attribute("data-drawn-peak") or 0) == peak
        assert reader.locator(".card .table:not(details .table)").first.locator("tbody tr").count() == MAX_SHOWN


def test_the_filters_of_a_link_are_applied(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choices of a link apply together with those of the command line."""
    monkeypatch.setenv("STEPSCOPE_DB", "so that it is set back afterwards")
    link = "http://host:1/training-step?context=64&context=128&way=bf16+%C2%B7+eager#phases"
    assert main([link, "--size=toy-64", "--db", str(file), "--out", str(tmp_path)]) == 0
    text = (tmp_path / "training-step.html").read_text()
    assert "<strong>toy-64 at 128 tokens, bf16, eager</strong>" in text
    assert "<span>Context</span> 64, 128</p>" in text
    assert "<span>Precision and backend</span> bf16 · eager</p>" in text


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["nosuch"], "There is no page “nosuch”. Expected one of overview, training-step,"),
        (["training-step", "--context", "99"], "training-step has no context “99”. Expected of 64, 128"),
        (["training-step", "--banana", "3"], "training-step has no filter or choice “banana”. Expected one of as, "),
        (["--context", "64"], "No page was named. Expected some of overview, training-step,"),
        (["training-step", "--cell", "x"], "training-step has no cell “x”."),
        (["training-step", "--context"], "--context has no value."),
    ],
)
def test_impossible_requests(
    file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    words: list[str],
    answer: str,
) -> None:
    monkeypatch.setenv("STEPSCOPE_DB", str(file))
    assert main(["--out", str(tmp_path), *words]) == 2
    assert capsys.readouterr().err.startswith(f"error: {answer}")
    assert list(tmp_path.iterdir()) == []


def test_an_invalid_folder_is_explained_before_anything_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "report"
    taken.write_text("mine")
    for out in (taken, taken / "below"):
        assert main(["overview", "--out", str(out)]) == 2
        error = f"error: --out {out}: {taken} is no folder. Expected a folder, or a name that is free.\n"
        assert capsys.readouterr().err == error
    assert taken.read_text() == "mine"
