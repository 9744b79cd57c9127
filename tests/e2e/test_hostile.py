"""Text from a file, a link or a reader's own query is shown as text and never becomes a link, an image or markup."""

import re
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from pages.export import export
from pages.markdown import APART, literal, restrict
from tests.browser import Site, opened
from tests.e2e.test_app import PARTS
from tests.some import some
from tests.synthetic import hostile

#: Choices that a link may ask for, on one page or another.
CHOICES = ("machine", "run", "size", "context", "precision", "mode", "clock", "phase", "base", "other", "recording",
           "beside", "fold", "table", "status", "data", "cell")  # fmt: skip
#: Parts that together show texts in tables and charts. `make soak` tests the others.
TELLING = ("rows", "step")
#: Elements that a page would have if a text had become more than text.
MORE_THAN_TEXT = f"""() => [...document.querySelectorAll(
    "a[href*='{hostile.OUTSIDE}'], a[href*='evil'], img[src*='{hostile.OUTSIDE}'], image[href^=http], .katex"
)].map(found => found.outerHTML)"""
WORDS = "() => [...document.querySelectorAll('.stMain, .stSidebar, body > *:not(script)')].map(e => e.textContent)"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, site: Site) -> Iterator[str]:
    with site.showing(hostile.store(tmp_path_factory.mktemp("hostile") / "results.duckdb")) as found:
        yield found


@pytest.mark.parametrize(("path", "part"), some(PARTS, [one for one in PARTS if one[1] in TELLING]))
def test_pages_show_hostile_text_as_text(browser: Browser, address: str, path: str, part: str) -> None:
    """The file is hostile, and so is every parameter of the address."""
    asked = urllib.parse.urlencode(dict.fromkeys(CHOICES, hostile.TEXT) | {"show": part})
    with opened(browser, f"{address}/{path}?{asked}", whole=True) as visit:
        _is_text(visit.page)


@pytest.mark.soak
def test_an_exported_page_shows_hostile_text_as_text(browser: Browser, tmp_path: Path) -> None:
    """The texts that pages look up are hostile, too. The file is opened without a network, requests are recorded."""
    export(tmp_path / "out", [], db=hostile.store(tmp_path / "results.duckdb", phases=True))
    page, asked = browser.new_context(offline=True).new_page(), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    for written in sorted((tmp_path / "out").iterdir()):
        page.goto(written.as_uri())
        _is_text(page)
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    page.close()


def _is_text(page: Page) -> None:
    """Asserts that the markers are around every word that they would mark up; underscores in an own model's name."""
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
    escaped = [literal(text), restrict(literal(text))]
    read = [re.sub(r"\\([^\w\s]|_)", r"\1", one.replace(APART, "")) for one in escaped]
    assert read == [" ".join(text.split())] * 2


def test_only_the_markup_of_pages_is_kept() -> None:
    ours = "**63.6 ms** in `python -m runner` :green[**A**] 2 :red-badge[Grade D]  \n- one\n\n:material/timer: #### no"
    assert restrict(ours) == ours.replace("####", "\\#\\#\\#\\#")
    assert restrict("[a](http://b)") == "\\[a\\](http\\::color[]//b)"
    assert restrict(":orange[[a](b)]") == ":orange[\\[a](b)\\]"
