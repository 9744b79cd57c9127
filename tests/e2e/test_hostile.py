"""Text from a file, a link or a reader's own query is shown as text and never becomes a link, an image or markup."""

import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from playwright.sync_api import Browser, Page, Request

from pages.export import main
from pages.figures.frame import escape_text
from pages.figures.frame import restrict as restrict_figure
from pages.ui.filters import FILTERS
from pages.ui.markdown import literal, plain, restrict
from tests.browser import Site, opened, settled
from tests.e2e.test_app import PAGES
from tests.synthetic import hostile

#: Parameters of a page's address that are not filters.
OTHERS = (
    "cell", "phases-as", "phases-in", "way", "compare", "run-a", "label-b", "compare-phase", "table", "status", "of",
    "steps-x", "trace", "against", "kernel-phase", "left", "right", "fold", "sql", "sql-x", "sql-log", "base", "data",
    "held", "said", "zoom",
)  # fmt: skip
#: Pages that together show texts in every way: charts, tables, choosers, a canvas. `make soak` tests the others.
TELLING = ("memory-timeline", "data")
#: Elements that a page would have if a text had become more than text.
MORE_THAN_TEXT = f"""() => [...document.querySelectorAll(
    "a[href*='{hostile.OUTSIDE}'], a[href*='evil'], img[src*='{hostile.OUTSIDE}'], image[href^=http], .katex"
)].map(found => found.outerHTML)"""
WORDS = "() => [...document.querySelectorAll('.stMain, .stSidebar, body > *:not(script)')].map(e => e.textContent)"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, site: Site) -> Iterator[str]:
    with site.showing(hostile.store(tmp_path_factory.mktemp("hostile") / "results.duckdb")) as found:
        yield found


@pytest.mark.parametrize(
    "path", [page if page in TELLING else pytest.param(page, marks=pytest.mark.soak) for page in PAGES]
)
def test_pages_show_hostile_text_as_text(browser: Browser, address: str, path: str) -> None:
    """The file is hostile, and so is every parameter of the address."""
    asked = urllib.parse.urlencode(dict.fromkeys((*FILTERS, *OTHERS), hostile.TEXT))
    with opened(browser, f"{address}/{path}?{asked}") as visit:
        settled(visit.page)
        _is_text(visit.page)
        assert hostile.TEXT in visit.page.get_by_test_id("stAlert").first.inner_text()


@pytest.mark.soak
def test_a_query_shows_its_columns_and_values_literally(browser: Browser, address: str) -> None:
    name = hostile.TEXT.replace('"', "'").replace("\n", " ")
    query = f"""SELECT '{name.replace("'", "''")}' AS who, 1 AS "{name}", 'x' AS "{name} {{2}}" """
    with opened(browser, f"{address}/sql?{urllib.parse.urlencode({'sql': query})}") as visit:
        visit.page.wait_for_selector(".st-key-card-sql-chart .js-plotly-plot .main-svg")
        settled(visit.page)
        _is_text(visit.page)
        assert name[:70] in visit.page.locator(".st-key-card-sql-chart h3").inner_text()
        hovered = visit.page.locator(".st-key-card-sql-chart .main-svg").first.text_content() or ""
        assert "<b>EVIL</b>" in hovered


@pytest.mark.soak
def test_an_exported_page_shows_hostile_text_as_text(browser: Browser, tmp_path: Path) -> None:
    """The texts that pages look up are hostile, too. The file is opened without a network, and its requests are
    recorded."""
    file = hostile.store(tmp_path / "results.duckdb", phases=True)
    assert main(["--all", "--db", str(file), "--out", str(tmp_path / "out")]) == 0
    page, asked = browser.new_context(offline=True).new_page(), list[str]()

    def told(request: Request) -> None:
        asked.append(request.url)

    page.on("request", told)
    for written in sorted((tmp_path / "out").iterdir()):
        page.goto(written.as_uri())
        _is_text(page)
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    page.close()


def _is_text(page: Page) -> None:
    """Asserts that the markers are around every word that they would mark up; in an own model's short name they are
    underscores."""
    assert page.evaluate(MORE_THAN_TEXT) == []
    for words in page.evaluate(WORDS):
        bare = re.sub(r"(<b>|%3Cb%3E)EVIL|(\*\*|%2A%2A)EVIL|_(b_|_)EVIL", "", words)
        assert "EVIL" not in bare, bare[max(0, bare.index("EVIL") - 300) : bare.index("EVIL") + 100]


@pytest.mark.parametrize(
    "text",
    [hostile.TEXT, "1. one", "- a -- b -> c", "# a\n\n    code", "http:\\//127.0.0.1/x", "&#104;ttp://a.example",
     "a_b_c", "=== x", "[a]: http://a.example", ":color[]", "2026-01-02 12:30 label", "\\", "`` ` ``", "~~a~~ | b |",
     ":material/home:"],
)  # fmt: skip
def test_a_literal_text_can_be_read_back(text: str) -> None:
    """Escaping loses nothing, and `restrict` does not change the result."""
    whole = " ".join(text.split())
    assert plain(literal(text)) == whole
    assert plain(restrict(literal(text))) == whole


def test_only_the_markup_of_pages_is_kept() -> None:
    ours = "**63.6 ms** in `python -m runner` :green[**A**] 2 :red-badge[Grade D]  \n- one\n\n:material/timer: #### no"
    assert restrict(ours) == ours.replace("####", "\\#\\#\\#\\#")
    assert restrict("[a](http://b)") == "\\[a\\](http\\::color[]//b)"
    assert restrict(":orange[[a](b)]") == ":orange[\\[a](b)\\]"


def test_a_figure_keeps_only_its_own_tags() -> None:
    figure = go.Figure(go.Scatter(x=["<a href='http://x'>a</a><br>b"], y=[1], text=[escape_text("<b>%{x}</b>")]))
    figure.update_layout(title={"text": "<b>t</b><span style=\"color:#fff\">s</span><span style='fill:url(http://x)'>"})
    found = restrict_figure(figure)
    assert list(found.data[0].x) == ["&lt;a href='http://x'>a&lt;/a><br>b"]
    assert list(found.data[0].text) == ["&lt;b&gt;&#37;{x}&lt;/b&gt;"]
    assert found.layout.title.text == "<b>t</b><span style=\"color:#fff\">s</span>&lt;span style='fill:url(http://x)'>"


def test_a_figure_with_its_own_tags_alone_is_drawn_as_it_is() -> None:
    figure = go.Figure(go.Bar(x=[1, 2], y=["<b>a</b>", "b<br>c"], customdata=[["a", 1.5], [None, "<i>i</i>"]]))
    assert restrict_figure(figure) is figure
    labels = np.array(["<b>a</b>", "<a>c</a>"], dtype=object)
    figure.add_bar(x=[1, 2], y=labels, customdata=[["a", 1.5], [None, "<a>i</a>"]])
    found = restrict_figure(figure)
    assert list(found.data[0].y) == ["<b>a</b>", "b<br>c"]
    assert list(found.data[1].y) == ["<b>a</b>", "&lt;a>c&lt;/a>"]
    assert [list(row) for row in found.data[1].customdata] == [["a", 1.5], [None, "&lt;a>i&lt;/a>"]]
