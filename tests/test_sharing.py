"""Links that show a teammate the same, whatever has changed since, and what they then say of it.

One server over every kind of row that the tests can make up; one visitor a page turns every chooser, another opens the
link.
"""

import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pages.charts.frame import number
from pages.parts.permalink import MOST_CHARACTERS, packed, unpacked
from runner.store.queries.changes import held
from tests import memory_rows, rows, timelines, traces
from tests.browser import chromium, opened, served
from tests.test_app import PAGES

expect.set_options(timeout=20_000)
#: Every chooser of the page that is part of its link: its key, and which kind of widget it is.
CHOOSERS = """() => [...document.querySelectorAll("[data-testid=stMain] [class*=st-key-]")].flatMap(box => {
    if (box.dataset.testid !== "stElementContainer") return []
    const key = [...box.classList].find(name => name.startsWith("st-key-"))?.slice(7)
    const kinds = ["Selectbox", "ButtonGroup", "Slider", "MultiSelect", "Radio", "Checkbox", "TextArea", "TextInput",
                   "NumberInput", "Pagination"]
    const kind = kinds.find(kind => box.querySelector(`[data-testid=st${kind}]`))
    return key && kind && !key.startsWith("_") && box.checkVisibility() ? [[key, kind]] : []
})"""
#: What a reader sees: texts (but for how long a query took), charts with their labels, and what is chosen.
SEEN = """() => {
    const main = document.querySelector("[data-testid=stMain]").cloneNode(true)
    main.querySelectorAll("style, defs, .modebar").forEach(node => node.remove())
    const active = [...document.querySelectorAll("[data-testid=stMain] [kind$=Active]")].map(node => node.textContent)
    const typed = [...document.querySelectorAll("[data-testid=stMain] :is(input, textarea)")].map(node => node.value)
    return [main.textContent, ...active, ...typed].join("\\n").replace(/in [\\d.,]+ m?s\\./, "in some time.")
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps in three precisions and two backends, attention in two widths, memory in two modes, traces, timelines."""
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
def address(file: Path) -> Iterator[str]:
    with served(file) as found:
        yield found


# ------------------------------------------------------------------------------------------------ a link shows the same


@pytest.mark.parametrize("path", PAGES)
def test_a_link_shows_the_same(browser: Browser, address: str, path: str) -> None:
    """Every chooser turned; the link names every one, is short enough for a chat, and shows somebody else the same."""
    with opened(browser, f"{address}/{path}?mode=train") as visit:
        _settled(visit.page)
        for key, kind in visit.page.evaluate(CHOOSERS):
            _turn(visit.page, key, kind)
        _settled(visit.page)
        keys, seen = dict(visit.page.evaluate(CHOOSERS)), visit.page.evaluate(SEEN)
        link = _link(visit.page)
    asked = urllib.parse.parse_qs(urllib.parse.urlsplit(link).query, keep_blank_values=True)
    assert keys.keys() <= asked.keys(), "choosers that the link does not name"
    assert {"machine", "run", "mode", "size", "context", "precision", "backend", "data", "held"} <= asked.keys()
    assert len(link) <= MOST_CHARACTERS + len("".join(asked.get("sql", []))) * 2
    with opened(browser, link) as visit:
        _settled(visit.page)
        for _ in range(40):  # a canvas asks for its table once it is drawn
            if visit.page.evaluate(SEEN) == seen:
                break
            visit.page.wait_for_timeout(250)
        assert visit.page.evaluate(SEEN) == seen  # also without a notice


# ------------------------------------------------------------------------------------------ what has changed since then


def test_a_link_tells_what_came_in(browser: Browser, address: str, file: Path) -> None:
    """A sweep adds two cells, of which one takes longest: the old link says so, until the reader has understood."""
    with opened(browser, f"{address}/training-step?machine=Example+CPU+·+bench1") as visit:
        _settled(visit.page)
        link = _link(visit.page)
    before = held(file).cells
    of = rows.run(label="later")
    slow = rows.asked("toy-256", context=512)
    rows.store(file, of, [rows.ok(of, slow), rows.ok(of, rows.asked("toy-64", context=512))])
    memory_rows.store(file, [memory_rows.attention(of, seq_len=4096)])
    assert held(file).cells == {**before, "steps": before["steps"] + 2, "attention": before["attention"] + 1}
    with opened(browser, link) as visit:
        notice = visit.page.get_by_test_id("stAlert")
        expect(notice).to_contain_text("Since this link was made, 3 cells came in: 2 in steps, 1 in attention, by")
        expect(notice).to_contain_text("later")
        expect(notice).not_to_contain_text("shared")
        then, now = (f"takes {number(rows.step_ms(c))} ms" for c in (rows.asked("toy-256"), slow))
        expect(notice).to_contain_text(
            re.compile(f"The answer then: .*{re.escape(then)}.*The answer now: .*{now}", re.S)
        )
        assert visit.page.evaluate(SEEN).count(now) > 1, "the page itself says so too"
        visit.page.get_by_test_id("stSidebar").get_by_role("button", name="toy-64", exact=True).click()
        expect(notice).not_to_contain_text("The answer then")  # it was about another view
        expect(notice).to_contain_text("3 cells came in")
        visit.page.get_by_role("button", name="Understood").click()
        expect(notice).to_have_count(0)
        assert "said=" not in visit.page.url


def test_a_link_to_another_file_and_a_damaged_one(browser: Browser, address: str, file: Path) -> None:
    """Fewer rows than the link knew; and a link whose text is no sentence but an attack, or nothing at all."""
    evil = packed("![x](https://example.com/x.png) <img src=https://example.com/y.png> :red[no]", longest=200)
    count = held(file).cells["steps"]
    with opened(browser, f"{address}/training-step?data=0&held={count + 5}steps.0&said={evil}") as visit:
        notice = visit.page.get_by_test_id("stAlert")
        expect(notice).to_contain_text("the file has lost cells, or is another one: 5 in steps")
        expect(notice).to_contain_text("![x](https://example.com/x.png) <img src=https://example.com/y.png> :red[no]")
    with opened(browser, f"{address}/training-step?data=0&held=x.y&said=eJ!!") as visit:
        expect(visit.page.get_by_test_id("stAlert")).to_contain_text("when the file held other rows")
        expect(visit.page.get_by_test_id("stAlert")).not_to_contain_text("then")


def test_a_sentence_survives_the_link() -> None:
    """Cut to a whole word where it is long; a bomb stays small; what is no sentence is None."""
    assert unpacked(packed("**bf16** makes it 2.10× faster", longest=100)) == "bf16 makes it 2.10× faster"
    long = " ".join(f"word{place}" for place in range(200))
    assert unpacked(packed(long, longest=50)) == " ".join(f"word{place}" for place in range(8)) + " …"
    assert len(unpacked(packed("word " * 100_000, longest=10**6)) or "") <= 400
    assert unpacked("") is None
    assert unpacked("AAAA") is None


# -------------------------------------------------------------------------------------------------- turning and waiting


def _turn(page: Page, key: str, kind: str) -> None:
    """Choose something else than what is chosen; of the cards only the first is turned, so that charts are compared."""
    box = page.locator(f".st-key-{key}")
    if not box.count() or (key.endswith("-as") and key != _cards(page)[0]):
        return
    if kind == "ButtonGroup":
        others = box.locator("button:not([kind$=Active]):not([disabled])")
        if others.count():
            others.first.click()
    elif kind == "Selectbox":
        box.scroll_into_view_if_needed()  # scrolling would close the list
        page.wait_for_timeout(200)
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


def _settled(page: Page) -> None:
    """Wait until the script has run and the page has stayed the same for a while."""
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    before = None
    for _ in range(60):
        page.wait_for_timeout(350)
        page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]")
        if (now := page.evaluate(SEEN)) == before and not page.get_by_test_id("stSkeleton").count():
            return
        before = now
    pytest.fail("the page does not come to rest")
