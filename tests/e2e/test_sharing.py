"""Links show a teammate the same page whatever has changed since, and report what has changed.

The tests share one server over every kind of synthetic row and one browser that has loaded the app. On each page one
visitor changes every chooser, another opens the link, and a third opens a link that sets every chooser to a missing
value.
"""

import contextlib
import re
import shutil
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, TimeoutError, expect

from pages.ui.markdown import literal
from pages.ui.permalink import MAX_CHARACTERS, pack_sentence, unpack_sentence
from runner.formats import format_number
from runner.store.queries.changes import load_counts
from tests.browser import Site, Watched, of_chart, opened, settled
from tests.e2e.test_app import PAGES
from tests.synthetic import memory_rows, rows, timelines, traces

#: Every chooser of the page that is part of its link: its key, and its kind of widget.
CHOOSERS = """() => [...document.querySelectorAll("[data-testid=stMain] [class*=st-key-]")].flatMap(box => {
    if (box.dataset.testid !== "stElementContainer") return []
    const key = [...box.classList].find(name => name.startsWith("st-key-"))?.slice(7)
    const kinds = ["Selectbox", "ButtonGroup", "Slider", "MultiSelect", "Radio", "Checkbox", "TextArea", "TextInput",
                   "NumberInput", "Pagination"]
    const kind = kinds.find(kind => box.querySelector(`[data-testid=st${kind}]`))
    return key && kind && !key.startsWith("_") && box.checkVisibility() ? [[key, kind]] : []
})"""
#: The SQL console answers a reader's own query.
WITHOUT_ANSWER = ("sql",)
#: Pages that together have choosers of every kind. Missing values are tested only on these, because all choosers of a
#: kind work alike.
TELLING = ("training-step", "sql", "memory-timeline")
#: What a reader sees: texts (except for the time of a query), charts with their labels, and the chosen values.
SEEN = """() => {
    const main = document.querySelector("[data-testid=stMain]").cloneNode(true)
    main.querySelectorAll("style, defs, .modebar").forEach(node => node.remove())
    const active = [...document.querySelectorAll("[data-testid=stMain] [kind$=Active]")].map(node => node.textContent)
    const typed = [...document.querySelectorAll("[data-testid=stMain] :is(input, textarea)")].map(node => node.value)
    return [main.textContent, ...active, ...typed].join("\\n").replace(/Took [\\d.,]+ m?s\\./, "Took some time.")
}"""

#: Returns whether every visible table has its words.
TABLES_FILLED = """() => [...document.querySelectorAll("[data-testid=stDataFrame]")].every(
    table => !table.checkVisibility() || table.querySelector("table td, table th"))"""
#: A slider sends its value to the server 200 ms after it was moved.
FRAMES_OF_A_SLIDER = 20


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file with steps in three precisions and two backends, attention in two widths, memory in two modes,
    traces and timelines."""
    of, path = rows.run(label="shared"), tmp_path_factory.mktemp("sharing") / "results.duckdb"
    rows.store(path, of, rows.laptop(of))
    attention = [memory_rows.attention(of, seq_len=length, d_head=d) for length in (256, 1024) for d in (16, 64)]
    parts = {"parameters": 2**20, "activations": 2**22}
    peaks = [memory_rows.memory(of, parts, context=context, mode=mode) for context in (64, 256) for mode in
             ("train", "inference")]  # fmt: skip
    memory_rows.store(path, [*attention, *peaks])
    for title in ("one", "another"):
        timelines.write(path, of, timelines.step(allocations=200), title=title)
    traces.store(path, [traces.profiled(of), traces.profiled(of, mode="inference")])
    return path


@pytest.fixture(scope="module")
def address(file: Path, site: Site) -> Iterator[str]:
    with site.showing(file) as found:
        yield found


@pytest.fixture(scope="module")
def visitor(browser: Browser, address: str) -> Iterator[Watched]:
    """Yields a page. Loading an address again makes it a new visitor for the server; the app's own scripts are loaded
    once."""
    with opened(browser, f"{address}/sql") as found:
        yield found


# ------------------------------------------------------------------------------------------------ a link shows the same


def test_copy_link_copies(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/training-step?context=64") as visit:
        visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        visit.page.get_by_role("button", name="Copy link").click()
        shown = visit.page.get_by_test_id("stPopoverBody")
        expect(shown.get_by_role("status")).to_have_text("Copied.")
        link = shown.locator("code").first.inner_text()
        assert visit.page.evaluate("navigator.clipboard.readText()") == link
        assert "context=64" in link


@pytest.mark.soak
@pytest.mark.parametrize("path", PAGES)
def test_a_link_shows_the_same(visitor: Watched, address: str, path: str) -> None:
    """Every chooser is changed. The link names every one, is short enough for a chat, and shows another visitor the
    same. A link with missing values reports each of them once."""
    page = visitor.page
    _open(page, f"{address}/{path}?mode=train")
    choosers = page.evaluate(CHOOSERS)
    for key, kind in choosers:
        _turn(page, key, kind)
    keys, seen = dict(page.evaluate(CHOOSERS)), page.evaluate(SEEN)
    link = _link(page)
    asked = urllib.parse.parse_qs(urllib.parse.urlsplit(link).query, keep_blank_values=True)
    assert keys.keys() <= asked.keys(), "choosers that the link does not name"
    assert {"machine", "run", "mode", "size", "context", "precision", "backend", "data", "held"} <= asked.keys()
    assert "said" in asked or path in WITHOUT_ANSWER
    assert len(link) <= MAX_CHARACTERS + len("".join(asked.get("sql", []))) * 2
    _open(page, link)
    with contextlib.suppress(TimeoutError):  # a canvas requests its table after it is drawn
        page.wait_for_function(f"seen => ({SEEN})() === seen", arg=seen, timeout=20_000)
    assert page.evaluate(SEEN) == seen  # also without a notice
    if path in TELLING:
        _check_missing_values(page, f"{address}/{path}", [key for key, kind in choosers if kind != "TextArea"])
    visitor.check()


def _check_missing_values(page: Page, address: str, choosers: list[str]) -> None:
    """Asserts that every missing value is reported, except for choosers between chart and table, which have none."""
    keys = [key for key in choosers if not key.endswith("-as")]
    if not keys:
        return
    _open(page, f"{address}?{urllib.parse.urlencode(dict.fromkeys(keys, 'gone *by* now'))}")
    notice = page.get_by_test_id("stAlert").filter(has_text="the link asks for")
    expect(notice).to_have_count(1)
    assert notice.inner_text().count("“gone *by* now”, which is not here.") == len(keys), keys
    page.get_by_role("button", name="Understood").click()
    expect(notice).to_have_count(0)


@pytest.mark.soak
def test_a_link_shows_the_same_zoom(visitor: Watched, address: str) -> None:
    """One visitor drags over the chart and another sees the zoom. It survives a reload, a double click removes it, and
    it adds no step to "Back"."""
    page, steps = visitor.page, f"{address}/training-step"
    _open(page, steps)
    whole, before = _ranges(page), page.evaluate("history.length")
    zoomed = _zoom(page)
    assert zoomed != whole
    expect(page).to_have_url(re.compile("zoom=phases%3Ax%2C"))
    assert page.evaluate("history.length") == before
    link = _link(page)
    _open(page, link)
    assert _ranges(page) == pytest.approx(zoomed, rel=1e-3)
    page.reload()
    _settled(page)
    assert _ranges(page) == pytest.approx(zoomed, rel=1e-3)
    page.locator(".st-key-card-phases .nsewdrag").first.dblclick()
    expect(page).not_to_have_url(re.compile("zoom="))
    assert _ranges(page) == whole
    hostile = ("phases:x,0,1e999", "phases:x,1,1,y9,0,1,__proto__,0,1,y", "<img src=x onerror=alert(1)>", "phases:")
    _open(page, f"{steps}?{urllib.parse.urlencode({'zoom': hostile}, doseq=True)}")
    assert _ranges(page) == whole
    expect(page).not_to_have_url(re.compile("zoom="))
    visitor.check()


def _ranges(page: Page) -> list[float]:
    found: list[float] = of_chart(page, "phases", "['xaxis', 'yaxis'].flatMap(axis => chart._fullLayout[axis].range)")
    return found


def _zoom(page: Page) -> list[float]:
    """Drags over the middle of the chart."""
    box = page.locator(".st-key-card-phases .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.8 * box["height"], steps=4)
    page.mouse.up()
    _settled(page)
    return _ranges(page)


# ------------------------------------------------------------------------------------------ what has changed since then


@pytest.fixture
def growing(file: Path, address: str, site: Site, tmp_path: Path) -> Iterator[Path]:
    """Yields a copy of the file, which the server reads during a test."""
    with site.showing(path := Path(shutil.copy(file, tmp_path))):
        yield path


#: `make soak` tests the notice about new rows of a link to Overview, which has all headlines.
@pytest.mark.parametrize("overview", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_link_reports_new_rows(visitor: Watched, address: str, growing: Path, overview: bool) -> None:
    """A sweep adds three cells, and one of its steps takes longest. The old link reports it until the reader closes the
    notice."""
    page, before = visitor.page, load_counts(growing).cells
    _open(page, address if overview else f"{address}/training-step?machine=Example+CPU+·+bench1")
    link = _link(page)
    of = rows.run(label="later")
    slow = rows.asked("toy-256", context=512)
    rows.store(growing, of, [rows.ok(of, slow), rows.ok(of, rows.asked("toy-64", context=512))])
    memory_rows.store(growing, [memory_rows.attention(of, seq_len=4096)])
    assert load_counts(growing).cells == {**before, "steps": before["steps"] + 2, "attention": before["attention"] + 1}
    then, now = (f"takes {format_number(rows.step_ms(c))} ms" for c in (rows.asked("toy-256"), slow))
    answers = re.compile(f"The answer then: .*{re.escape(then)}.*The answer now: .*{now}", re.S)
    notice = page.get_by_test_id("stAlert")
    _open(page, link)
    if overview:
        expect(notice).to_contain_text(answers)
        return
    expect(notice).to_contain_text("Since this link was made, 3 cells came in: 2 in steps, 1 in attention, by")
    expect(notice).to_contain_text("later")
    expect(notice).not_to_contain_text("shared")
    expect(notice).to_contain_text(answers)
    assert page.evaluate(SEEN).count(now) > 1, "the page itself says it too"
    page.get_by_test_id("stSidebar").get_by_role("button", name="toy-64", exact=True).click()
    expect(notice).not_to_contain_text("The answer then")  # that answer was about another view
    expect(notice).to_contain_text("3 cells came in")
    page.get_by_role("button", name="Understood").click()
    expect(notice).to_have_count(0)
    assert "said=" not in page.url
    visitor.check()


@pytest.mark.soak
def test_a_link_to_another_file_and_a_damaged_one(visitor: Watched, address: str, file: Path) -> None:
    """The file has fewer rows than the link; another link's text is an attack instead of a sentence, or empty."""
    attack = "![x](https://example.com/x.png) <img src=https://example.com/y.png> :red[no]"
    evil = pack_sentence(literal(attack), longest=200)
    count = load_counts(file).cells["steps"]
    notice = visitor.page.get_by_test_id("stAlert")
    _open(visitor.page, f"{address}/training-step?data=0&held={count + 5}steps.0&said={evil}")
    expect(notice).to_contain_text("the file has lost cells, or is another one: 5 in steps")
    expect(notice).to_contain_text(attack)
    _open(visitor.page, f"{address}/training-step?data=0&held=x.y&said=eJ!!")
    expect(notice).to_contain_text("when the file held other rows")
    expect(notice).not_to_contain_text("then")
    visitor.check()


def test_a_sentence_survives_the_link() -> None:
    """A long one is cut after a whole word, a bomb stays small, and text that is not a sentence is None."""
    assert (
        unpack_sentence(pack_sentence("**bf16** of a\\_b makes it 2.10× faster", longest=100))
        == "bf16 of a_b makes it 2.10× faster"
    )
    long = " ".join(f"word{place}" for place in range(200))
    assert unpack_sentence(pack_sentence(long, longest=50)) == " ".join(f"word{place}" for place in range(8)) + " …"
    assert len(unpack_sentence(pack_sentence("word " * 100_000, longest=10**6)) or "") <= 400
    assert unpack_sentence("") is None
    assert unpack_sentence("AAAA") is None


# -------------------------------------------------------------------------------------------------- turning and waiting


def _turn(page: Page, key: str, kind: str) -> None:
    """Changes the choice. Of the choosers between chart and table only the first card's is changed, so that charts are
    compared."""
    box = page.locator(f".st-key-{key}")
    if not box.count() or (key.endswith("-as") and key != _cards(page)[0]):
        return
    if kind == "ButtonGroup":
        others = box.locator("button:not([kind$=Active]):not([disabled])")
        if others.count():
            others.first.click()
    elif kind == "Selectbox":
        box.scroll_into_view_if_needed()  # scrolling later would close the list
        settled(page)
        box.locator("input").click()
        page.get_by_test_id("stSelectboxVirtualDropdown").get_by_role("option").first.wait_for(timeout=5_000)
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
    elif kind == "Slider":
        box.get_by_role("slider").press("ArrowRight")
    elif kind == "TextArea":
        box.locator("textarea").fill("SELECT status, count(*) AS cells FROM steps GROUP BY ALL ORDER BY ALL")
        page.get_by_role("button", name="Run", exact=True).click()
    else:
        pytest.fail(f"nobody has taught this test how to turn {key}, a {kind}")
    _settled(page)


def _cards(page: Page) -> list[str]:
    return [key for key, _ in page.evaluate(CHOOSERS) if key.endswith("-as")] or [""]


def _link(page: Page) -> str:
    page.get_by_test_id("stSidebar").get_by_role("button", name="Copy link").click()
    shown: Locator = page.get_by_test_id("stPopoverBody").locator("code").first
    expect(shown).to_contain_text("data=")
    return shown.inner_text()


def _open(page: Page, address: str) -> None:
    page.goto("about:blank")  # without this, a link that differs only in its anchor would load nothing
    page.goto(address)
    _settled(page)


def _settled(page: Page) -> None:
    settled(page, frames=FRAMES_OF_A_SLIDER)
    page.wait_for_function(TABLES_FILLED)
