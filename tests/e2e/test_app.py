"""The dashboard from a real server in a real browser: pages, addresses, choices, numbers, panels, the outside."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, expect
from streamlit.testing.v1 import AppTest

from pages.list import MOVED, PAGES
from pages.plot import Spec, figure
from pages.plot.colors import PALETTE
from runner.answers import QUESTIONS, ask
from runner.formats import format_number
from runner.store.packing import find_file
from tests.browser import ROOT, Site, fits_sideways, opened, said, served, settled
from tests.runner.answers.shipped import FOLDER, shipped
from tests.some import some
from tests.synthetic import rows

ADDRESSES = ["" if page is PAGES[0] else page.address for page in PAGES]
CHART = ".js-plotly-plot .main-svg"


def test_cold_deep_link(browser: Browser, address: str) -> None:
    """The first visitor of a server may follow a link to an inner page: page, navigation and choices are the link's."""
    with opened(browser, f"{address}/mixed-precision?size=toy-128&context=64") as visit:
        expect(visit.page.get_by_role("heading", level=1)).to_have_text("Mixed precision")
        expect(visit.page.get_by_test_id("stSidebarNavLink")).to_have_count(len(PAGES))
        expect(visit.page.locator(CHART).first).to_be_visible()
        assert re.search("Mixed precision · .* · Stepscope", visit.page.title())
        settled(visit.page)
        paint = "charts => charts.map(one => getComputedStyle(one.querySelector('.textpoint text')).paintOrder)"
        orders = visit.page.locator(".js-plotly-plot").evaluate_all(paint)
        assert orders[:2] == ["normal", "stroke"], "numbers beside dots cover lines, those in cells nothing"


PARTS = [
    (path, part)
    for path, page in zip(ADDRESSES, PAGES, strict=True)
    for part in (*page.questions, *page.parts)
    if part in page.parts or part in QUESTIONS
]


@pytest.mark.parametrize(("path", "part"), some(PARTS, [("compare", "compare")]))
def test_every_part_of_every_page(browser: Browser, address: str, path: str, part: str) -> None:
    """It opens by its address, requests nothing from outside, and fits a phone."""
    with opened(browser, f"{address}/{path}?show={part}") as visit:
        expect(visit.page.get_by_role("heading", level=1)).to_have_text(PAGES[ADDRESSES.index(path)].title)
        settled(visit.page)
        assert visit.page.get_by_test_id("stException").count() == 0
        assert fits_sideways(visit.page)
        visit.page.set_viewport_size({"width": 390, "height": 844})
        settled(visit.page)
        assert fits_sideways(visit.page), "the page is as wide as on a phone"
        words = said(visit.page)
    if part in QUESTIONS:  # either it is answered, or the page says what is missing
        assert re.search(r"\d", words) or "Missing:" in words


#: One is in `make test`, the address of a page that no other test there opens.
@pytest.mark.parametrize("old", some((*MOVED, "overview"), ["roofline"]))
def test_addresses_of_before_lead_to_the_same_thing(browser: Browser, address: str, old: str) -> None:
    target, part = MOVED.get(old, ("", ""))
    with opened(browser, f"{address}/{old}?precision=bf16") as visit:
        title = next((page.title for page in PAGES if page.address == target), PAGES[0].title)
        expect(visit.page.get_by_role("heading", level=1)).to_have_text(title)
        settled(visit.page)
        asked = parse_qs(urlsplit(visit.page.url).query)
        assert asked["precision"] == ["bf16"]
        assert asked.get("show", [""]) == [part]


def test_choices_live_in_the_address_and_are_kept(browser: Browser, address: str) -> None:
    """A choice is in the address, on the next page too; what a link asks for and a page lacks is said."""
    with opened(browser, f"{address}/training-step?precision=fp8&mode=train") as visit:
        page = visit.page
        expect(page.get_by_test_id("stAlert")).to_contain_text("“fp8” of the link. Shown instead: fp32")
        settled(page)
        page.locator(".st-key-choice-precision").locator("button:visible").first.click()
        page.get_by_role("menuitem", name="bf16").click()
        expect(page).to_have_url(re.compile("precision=bf16"))
        expect(page.get_by_test_id("stAlert")).to_have_count(0)
        page.get_by_test_id("stSidebarNavLink").filter(has_text="Memory").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Memory")
        expect(page).to_have_url(re.compile("precision=bf16"))


@pytest.mark.soak
def test_copy_link_writes_every_choice(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/training-step?precision=bf16", whole=True) as visit:
        visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        visit.page.get_by_role("button", name="Copy link").click()
        box = visit.page.get_by_test_id("stPopoverBody")
        expect(box.get_by_role("status")).to_have_text("Copied.")
        link = box.locator("code").first.inner_text()
        seen = said(visit.page)
    asked = parse_qs(urlsplit(link).query)
    assert (asked["precision"], asked["clock"], asked["show"]) == (["bf16"], ["latency"], ["step"])
    assert {"machine", "data"} <= {*asked}
    with opened(browser, link) as visit:
        assert said(visit.page).split("Copy link")[0] == seen.split("Copy link")[0]


def test_a_page_shows_the_numbers_of_its_answer(browser: Browser, site: Site) -> None:
    """On the shipped rows the matrix of Mixed precision has the numbers that `ask` gives, and so has the headline."""
    answer = ask("precision", shipped(*QUESTIONS["precision"].needs))
    view = answer.views[0]
    with site.showing(find_file(FOLDER)) as address, opened(browser, f"{address}/mixed-precision", whole=True) as visit:
        assert answer.sentence.replace("**", "") in said(visit.page)
        drawn = visit.page.locator(f".st-key-card-{view.name} svg text").all_text_contents()
        numbers = [format_number(value) for value in view.column("ratio") if value is not None]
        assert all(any(number in text for text in drawn) for number in numbers)
        card = "document.querySelector('.st-key-card-precision-by-size')"
        assert visit.page.evaluate(f"{card}.getBoundingClientRect().bottom") < 900, "the first view is whole"


@pytest.mark.soak
def test_pages_of_the_shipped_rows_have_at_most_three_screens(browser: Browser, tmp_path: Path) -> None:
    """Every question and part, on a usual screen; the document has the title of its page."""
    unnamed = {"STEPSCOPE_DB": None, "STEPSCOPE_REFERENCE": None}
    with served(tmp_path / "none.duckdb", env=unnamed) as address:
        for path, page in zip(ADDRESSES, PAGES, strict=True):
            for part in (*page.questions, *page.parts):
                with opened(browser, f"{address}/{path}?show={part}", width=1400, whole=True) as visit:
                    height = visit.page.get_by_test_id("stMain").evaluate("main => main.scrollHeight")
                    assert height <= 2_700, f"{page.title}, {part}"
                    assert visit.page.title() == f"{page.title} · H200 · Stepscope"


def test_a_click_opens_what_is_behind_a_number(browser: Browser, address: str) -> None:
    """The panel has the value, its samples, its grade and the command; closed, one click opens it again."""
    with opened(browser, f"{address}/training-step", whole=True) as visit:
        for _ in range(2):
            visit.page.locator(".st-key-card-step-by-size .bars .point").first.click(force=True)
            panel = visit.page.get_by_role("dialog")
            expect(panel).to_contain_text("Measure it again")
            expect(panel).to_contain_text("python -m runner sweep")
            expect(panel).to_contain_text("Grade")
            expect(panel.locator(".js-plotly-plot .main-svg").first).to_be_visible()
            visit.page.keyboard.press("Escape")
            expect(panel).to_have_count(0)
            settled(visit.page)


@pytest.mark.soak
def test_keys_lead_to_what_is_behind_a_mark(browser: Browser, address: str) -> None:
    """Focus is seen on a chart; arrows go from mark to mark and say each, Enter opens its panel."""
    with opened(browser, f"{address}/training-step", whole=True) as visit:
        chart = visit.page.locator(".st-key-card-step-by-size .js-plotly-plot")
        visit.page.locator(".st-key-step-by-size-share button").first.focus()
        visit.page.keyboard.press("Tab")
        expect(chart).to_be_focused()
        assert chart.evaluate("chart => getComputedStyle(chart).outlineStyle") == "solid"
        visit.page.keyboard.press("ArrowRight")
        expect(chart).to_have_attribute("aria-label", re.compile(r"toy-64 · 64.*Time: "))
        visit.page.keyboard.press("Enter")
        expect(visit.page.get_by_role("dialog")).to_contain_text("Measure it again")


@pytest.mark.soak
def test_another_run_is_shown_at_once(browser: Browser, tmp_path: Path) -> None:
    """A choice draws its part of the page again with the rows of the run, not with those from before."""
    file, cell = tmp_path / "results.duckdb", rows.asked("toy-64", context=64)
    for label, slower in (("first", 2.0), ("second", 1.0)):
        rows.store(file, of := rows.run(label=label), [rows.ok(of, cell, slower=slower)])
    numbers = ".st-key-card-step-by-size svg .textpoint"
    with served(file) as address, opened(browser, f"{address}/training-step", whole=True) as visit:
        before = visit.page.locator(numbers).first.text_content()
        visit.page.locator(".st-key-choice-run").locator("button:visible").first.click()
        visit.page.get_by_role("menuitem", name="first").click()
        expect(visit.page.locator(numbers).first).not_to_have_text(before or "")
        expect(visit.page).to_have_url(re.compile("run=.*first"))


def test_any_column_is_drawn_against_any_other(browser: Browser, address: str) -> None:
    """By a link to the earlier Explore, which named columns by their labels."""
    old = urlencode({"steps-x": "Model width", "steps-y": "Parameters", "steps-color": "Mode"})
    with opened(browser, f"{address}/explore?{old}", whole=True) as visit:
        asked = parse_qs(urlsplit(visit.page.url).query)
        assert [asked[name] for name in ("x", "measure", "color")] == [["d_model"], ["parameters"], ["mode"]]
        chart = visit.page.locator(".st-key-chart-fold .js-plotly-plot")
        counts = chart.evaluate("chart => chart.data.map(trace => [trace.name, trace.x.length])")
        assert {name for name, _ in counts} <= {"train", "inference", "forward", "backward"}
        assert sum(count for _, count in counts) > 3
        expect(visit.page.locator(".st-key-chart-fold")).to_contain_text("rows that have both numbers")


@pytest.mark.soak
def test_what_a_page_has_on_request(browser: Browser, address: str) -> None:
    """Its report, what the audit finds of its rows, and a view as a file with its source."""
    with opened(browser, f"{address}/training-step", whole=True) as visit:
        visit.page.get_by_role("button", name="Report").click()
        with visit.page.expect_download() as made:
            visit.page.get_by_role("button", name="Markdown").click()
        text = Path(made.value.path()).read_text()
        visit.page.keyboard.press("Escape")
        visit.page.get_by_text("What the audit finds of these rows").click()
        fold = visit.page.locator(".st-key-findings-fold")
        expect(fold).to_contain_text(re.compile("Nothing was found|For one:"))
        visit.page.locator(".st-key-step-by-size-share").get_by_role("button").first.click()
        box = visit.page.get_by_test_id("stPopoverBody")
        with visit.page.expect_download() as started:
            box.get_by_role("button", name="CSV").click()
        lines = Path(started.value.path()).read_text().splitlines()
        with visit.page.expect_download() as picture:
            box.get_by_role("button", name="PNG").click()
        assert Path(picture.value.path()).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert text.startswith("# Stepscope report: ")
    assert "edition" in text
    assert "How long does a step take" in text
    assert lines[0].startswith("Size,Context (tokens),Time (ms)")
    toy = next(line.split(",") for line in lines if line.startswith("toy-64,64,"))
    assert float(toy[2]) == pytest.approx(2 * 64**1.5 * 64 / 20_000, rel=1e-3)
    assert "commit" in lines[-1]


def test_the_server_contacts_no_other_machine(address: str, asked: Path) -> None:
    """The server has neither looked up nor called another machine, and does not until it ends. A process that is
    started in the same way shows that this would have been recorded."""
    assert not asked.exists(), asked.read_text()
    call = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))"
    subprocess.run([sys.executable, "-c", call], check=False)
    assert asked.read_text() == "socket.connect 192.0.2.1\n"
    asked.unlink()


def test_theme_has_the_palette() -> None:
    """Plotly falls back to its own colors unless the theme has exactly ten."""
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())["theme"]
    assert tuple(theme["chartCategoricalColors"]) == PALETTE
    assert len(PALETTE) == 10


def test_streamlit_hands_a_figure_on_as_it_is() -> None:
    """`Spec` is no public contract of Streamlit and Plotly: an update that changes it is noticed here."""
    view = ask("step", shipped("steps")).views[0]

    def script() -> None:
        import streamlit as st

        from pages.plot import Spec, figure
        from runner.answers import ask
        from tests.runner.answers.shipped import shipped

        st.plotly_chart(Spec(figure(ask("step", shipped("steps")).views[0])), key="chart")

    app = AppTest.from_function(script, default_timeout=60).run()
    (chart,) = app.get("plotly_chart")
    assert json.loads(chart.proto.spec) == json.loads(json.dumps(figure(view)))
    assert isinstance(Spec(figure(view)).to_dict(), dict)
