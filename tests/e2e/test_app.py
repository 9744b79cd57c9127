"""The dashboard as its readers see it: a real server, first opened by a deep link, in a real browser.

The order of the tests matters for one of them: `test_cold_deep_link` must be the server's first visitor.
"""

import re
import subprocess
import sys
import tomllib
import urllib.parse
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from pages import navigation
from pages.figures.colors import PALETTE
from tests.browser import ROOT, fits_sideways, of_chart, opened, settled

#: The titles of pages by path. Of one that is not here only the beginning is known.
TITLES = {
    "": "Overview: what this file shows",
    "training-step": "Training step: forward, backward and optimizer time",
    "mixed-precision": "Mixed precision: speedup over fp32 and accuracy",
    "torch-compile": "torch.compile: speedup, compile time, break-even",
    "kernels": "Kernels: the time of a step by kind of work",
    "roofline": "Roofline: a step against the limits of its machine",
    "explore": "Explore: any measure against any setting",
    "attention": "Attention: time and memory against sequence length",
    "peak-memory": "Peak memory: what fills it",
    "memory-timeline": "Memory timeline: every allocation of a step",
    "compare": "Compare: two runs, machines or settings",
    "published": "Published results: which claims survive",
    "report": "Report: every question of the assignment",
    "trust": "Trust: grades, findings and noise",
    "data": "Data: the stored rows",
    "sql": "SQL: your own query",
}
#: What every page of the navigation is titled, by path; the first has none.
PAGES = {
    path: TITLES.get(path) or re.compile(f"^{re.escape(page.title)}\\b")
    for address, page in navigation.PAGES.items()
    for path in ("" if address == next(iter(navigation.PAGES)) else address,)
}
CHART = ".js-plotly-plot .main-svg"


def test_cold_deep_link(browser: Browser, address: str) -> None:
    """The first visitor of a server may follow a link to an inner page: page, navigation and filters must be those of
    the link."""
    with opened(browser, f"{address}/mixed-precision?size=toy-128&context=64") as visit:
        expect(visit.page.get_by_role("heading", level=1)).to_have_text(TITLES["mixed-precision"])
        expect(visit.page.get_by_test_id("stSidebarNavLink")).to_have_count(len(PAGES))
        expect(visit.page.locator(CHART).first).to_be_visible()
        assert _labels(visit.page, "precision-speedup") == ["toy-128 · 64 tok"]


@pytest.mark.soak
def test_overview_has_an_address_too(browser: Browser, address: str) -> None:
    """The address leads to the root, where Streamlit has the first page, with all its parameters."""
    with opened(browser, f"{address}/overview?size=toy-128&coverage-as=Table") as visit:
        expect(visit.page.get_by_role("heading", level=1)).to_have_text(TITLES[""])
        expect(visit.page).to_have_url(re.compile(r"/\?(?=.*size=toy-128)(?=.*coverage-as=Table)[^/]*$"))
        settled(visit.page)
        assert visit.page.get_by_role("dialog").count() == 0
        assert visit.page.locator("[data-testid=stSidebarNavLink][aria-current=page]").inner_text().endswith("Overview")
        assert visit.page.get_by_test_id("stException").count() == 0
        visit.page.set_viewport_size({"width": 390, "height": 844})
        settled(visit.page)
        assert fits_sideways(visit.page), "the page is as wide as on a phone"


@pytest.mark.soak
def test_the_mark_at_the_end_of_a_sentence_opens_its_evidence(browser: Browser, address: str) -> None:
    """The mark is in the last line and has a description; the evidence opens below it, as wide as the page."""
    with opened(browser, f"{address}/training-step") as visit:
        said = visit.page.locator(".st-key-_said-answer")
        settled(visit.page)
        mark, words = said.locator("summary").bounding_box(), said.locator("p").first
        last = words.evaluate("p => { const {right, bottom} = [...p.getClientRects()].at(-1); return {right, bottom} }")
        assert mark
        assert last["right"] <= mark["x"] < last["right"] + 12
        assert abs(mark["y"] + mark["height"] / 2 - last["bottom"]) < 16
        said.get_by_text("How do we know?").click()
        rows = said.get_by_test_id("stDataFrame").first
        expect(rows).to_be_visible()
        settled(visit.page)
        below, whole = rows.bounding_box(), said.bounding_box()
        assert below
        assert whole
        assert below["y"] > mark["y"] + mark["height"]
        assert below["width"] > 0.9 * whole["width"]


@pytest.mark.soak
@pytest.mark.parametrize("path", PAGES)
def test_every_page(browser: Browser, address: str, path: str) -> None:
    """Every page opens by its address, shows its question, sends no request to the outside, and fits the width of a
    phone. In `make test` each page is opened by its own tests."""
    with opened(browser, f"{address}/{path}") as visit:
        expect(visit.page.get_by_role("heading", level=1)).to_have_text(PAGES[path])
        shown = f"{CHART}, [data-testid=stDataFrame], [data-testid=stCode], canvas"  # or a command
        expect(visit.page.locator(shown).filter(visible=True).first).to_be_visible()
        settled(visit.page)
        assert visit.page.get_by_test_id("stException").count() == 0
        assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        visit.page.set_viewport_size({"width": 390, "height": 844})
        settled(visit.page)
        assert fits_sideways(visit.page), "the page is as wide as on a phone"


def test_the_server_contacts_no_other_machine(address: str, asked: Path) -> None:
    """The server has neither looked up nor called another machine, and does not until it ends. A process that is
    started in the same way shows that this would have been recorded."""
    assert not asked.exists(), asked.read_text()
    call = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))"
    subprocess.run([sys.executable, "-c", call], check=False)
    assert asked.read_text() == "socket.connect 192.0.2.1\n"
    asked.unlink()


def test_filters_are_in_the_url(browser: Browser, address: str) -> None:
    """A filter that is clicked is in the URL, also on the next page. `test_cold_deep_link` tests that filters of a URL
    apply."""
    with opened(browser, f"{address}/training-step") as visit:
        expect(visit.page.locator(CHART).first).to_be_visible()
        visit.page.get_by_test_id("stSidebar").get_by_role("button", name="toy-64", exact=True).click()
        expect(visit.page).to_have_url(re.compile("size=toy-64"))
        settled(visit.page)
        seen = _labels(visit.page, "phases")
        headings = visit.page.locator(".st-key-card-phases .annotation-text").all_text_contents()
        visit.page.get_by_test_id("stSidebarNavLink").filter(has_text="Mixed precision").click()
        expect(visit.page.get_by_role("heading", level=1)).to_have_text(TITLES["mixed-precision"])
        expect(visit.page).to_have_url(re.compile("size=toy-64"))
    assert (headings, seen) == (["toy-64"], ["64", "128", "256"])


def test_a_missing_value_is_reported(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/training-step?size=10B&context=64&run=long+ago") as visit:
        notice = visit.page.get_by_test_id("stAlert").filter(has_text="Not in this file")
        expect(notice).to_contain_text("size “10B”")
        expect(notice).to_contain_text("run “long ago”")
        visit.page.get_by_role("button", name="Understood").click()
        expect(notice).to_have_count(0)


@pytest.mark.soak
def test_the_link_is_complete(browser: Browser, address: str) -> None:
    """It includes defaults and the edition of the data; a link made from other data is reported."""
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


@pytest.mark.soak
def test_table_and_download(browser: Browser, address: str) -> None:
    """The card's CSV has the numbers of the chart: toy-64 at 64 tokens takes 2 * 64**1.5 * 64 / 20,000 ms in fp32."""
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


@pytest.mark.soak
def test_a_click_pins_the_cell(browser: Browser, address: str) -> None:
    """Clicking a bar puts the cell into the URL, and it is still shown after a reload."""
    with opened(browser, f"{address}/training-step?size=toy-64") as visit:
        settled(visit.page)
        visit.page.locator(".st-key-card-phases .bars .point").first.click(force=True)
        expect(visit.page).to_have_url(re.compile("cell=[0-9a-f-]{36}"))
        expect(visit.page.locator(".st-key-card-samples h3")).to_contain_text("toy-64 · 64 · train · fp32")
        expect(visit.page.get_by_text("The audit found nothing against this row.")).to_be_visible()
        visit.page.reload()
        expect(visit.page.locator(".st-key-card-samples h3")).to_contain_text("toy-64 · 64 · train · fp32")


def test_theme_has_the_palette() -> None:
    """Plotly falls back to its own colors unless the theme has exactly ten."""
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())["theme"]
    assert tuple(theme["chartCategoricalColors"]) == PALETTE
    assert len(PALETTE) == 10


def _labels(page: Page, card: str) -> list[object]:
    """Returns the categories of the card's vertical axis, from top to bottom."""
    found: list[object] = of_chart(
        page,
        card,
        """(chart.layout.yaxis.ticktext
        || chart.calcdata[chart.calcdata.length - 1][0].trace._y || chart._fullLayout.yaxis._categories)
        .map(label => Array.isArray(label) ? label.join(' ') : label)""",
    )
    return found
