"""Compare in a real browser: choosing A and B gives the terminal's answer, and the link shows it to others."""

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from pages.ui.frame import cached
from runner.analysis.compare.verdict import Side, Verdict
from runner.store.queries.compare import ComparisonRequest, load_comparison
from tests.browser import Site, fits_sideways, opened, settled
from tests.command import run
from tests.synthetic import neighbors
from tests.synthetic import sides as made

expect.set_options(timeout=20_000)
CHART = ".js-plotly-plot .main-svg"
BY_LABEL = "compare?compare=Labels&label-a=before&label-b=after"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.written(tmp_path_factory.mktemp("compare-page"))


@pytest.fixture(scope="module")
def address(path: Path, site: Site) -> Iterator[str]:
    with site.showing(path) as found:
        yield found


def sentences(page: Page) -> list[str]:
    """Returns the answers after the page has settled."""
    expect(page.locator(CHART).first).to_be_visible()
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    return page.locator(".st-key-verdicts [data-testid=stMarkdown]").all_inner_texts()


def drawn(page: Page, card: str) -> list[dict[str, Any]]:
    """Returns name and x values of the traces in a card's chart."""
    named = "node.data.filter(trace => trace.x && trace.name)"
    script = f"node => {named}.map(({{name, x}}) => ({{name, x: Array.from(x._inputArray || x)}}))"
    found: list[dict[str, Any]] = page.locator(f".st-key-card-{card} .js-plotly-plot").evaluate(script)
    return found


def test_simultaneous_readers_share_one_computation(path: Path) -> None:
    """Eight readers open the same comparison of a state that was not requested before."""
    asked, together = [], threading.Barrier(8)

    def slow(path: Path) -> str:
        asked.append(path)
        time.sleep(0.3)
        return "worked out"

    def read(_: int) -> str:
        together.wait()
        return cached(path, "a state of this test", slow)

    with ThreadPoolExecutor(8) as readers:
        assert list(readers.map(read, range(8))) == ["worked out"] * 8
    assert asked == [path]


def test_the_answer_is_the_terminals(browser: Browser, address: str, path: Path) -> None:
    """A deep link shows the sentences of `runner compare` with the differences of the environments above them, and the
    dots."""
    printed = run("compare", "before", "after", db=path).stdout.splitlines()
    with opened(browser, f"{address}/{BY_LABEL}") as visit:
        said = sentences(visit.page)
        assert said == [made.SENTENCE, made.MEMORY]
        assert set(said) <= set(printed)
        notice = visit.page.get_by_test_id("stAlert").filter(has_text="The environments differ")
        expect(notice).to_contain_text("torch (2.12.0 → 2.13.0) and threads (2 → 1). This may explain what follows.")
        above, below = notice.bounding_box(), visit.page.locator(".st-key-verdicts").bounding_box()
        assert above
        assert below
        assert above["y"] < below["y"]
        dots = {trace["name"]: trace["x"] for trace in drawn(visit.page, "compare-pairs")}
        assert dots == {"slower (1)": [0.5], "undecided (1)": [1], "faster (1)": [4]}
        moved = {trace["name"]: trace["x"] for trace in drawn(visit.page, "compare-movers") if None not in trace["x"]}
        assert moved == {"before": [40, 10], "after": [10, 20]}, "4× faster, then 2× slower"
        code = visit.page.locator("code").filter(has_text="runner compare")
        expect(code).to_have_text("python -m runner compare label:before label:after")
        visit.page.set_viewport_size({"width": 390, "height": 844})
        settled(visit.page)
        assert fits_sideways(visit.page), "the page is as wide as on a phone"


def test_undisturbed_times_are_drawn_where_they_are_compared(browser: Browser, site: Site, tmp_path: Path) -> None:
    with site.showing(neighbors.written(tmp_path)) as address, opened(browser, f"{address}/{BY_LABEL}") as visit:
        (said,) = sentences(visit.page)
        assert "0 faster, 1 slower, 1 undecided" in said
        moved = {trace["name"]: trace["x"] for trace in drawn(visit.page, "compare-movers") if None not in trace["x"]}
        assert {name: ms for name, (ms,) in moved.items()} == pytest.approx(
            {"before": neighbors.BEFORE, "after": neighbors.AFTER}
        )
        caption = visit.page.get_by_test_id("stCaptionContainer").filter(has_text="excludes 1×")
        expect(caption).to_contain_text("compared by their undisturbed times, the 10th percentile of each process")


@pytest.mark.soak
def test_a_choice_is_in_the_url_and_survives_a_reload(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/compare") as visit:
        page = visit.page
        expect(page.get_by_role("heading", level=1)).to_have_text("Compare: two runs, machines or settings")
        page.get_by_test_id("stMain").get_by_text("Labels", exact=True).click()
        expect(page).to_have_url(re.compile("compare=Labels"))
        settled(page)
        page.get_by_text("Swap", exact=True).click()
        expect(page).to_have_url(re.compile("label-a=again&label-b=after"))
        for choice in ("Peak memory", "Steps", "Forward"):
            settled(page)
            page.get_by_test_id("stMain").get_by_text(choice, exact=True).click()
        expect(page).to_have_url(re.compile("compare-phase=Forward"))
        expect(page.locator(".st-key-verdicts")).to_contain_text("forward pass")
        seen, link = sentences(page), page.url
        assert seen[0].startswith(
            "Steps: after is as fast as again (geometric mean of 2 comparable cells, forward pass)"
        )
        page.locator(".st-key-card-compare-pairs").get_by_role("button", name="Share").click()
        shared = page.get_by_test_id("stPopoverBody").locator("code").first.inner_text()
    for address_again in (link, shared):
        with opened(browser, address_again) as visit:
            assert sentences(visit.page) == seen


@pytest.mark.soak
def test_a_pinned_dot_shows_its_samples_and_omitted_cells_are_listed(
    browser: Browser, address: str, path: Path
) -> None:
    sides = [Side(kind="label", value=name, title=name) for name in ("before", "after")]
    steps: Verdict = load_comparison(path, ComparisonRequest(a=sides[0], b=sides[1])).verdicts[0]
    with opened(browser, f"{address}/{BY_LABEL}&cell={steps.pairs[0].other.cell_id}") as visit:
        sentences(visit.page)
        expect(visit.page.get_by_role("heading", name="Raw samples")).to_be_visible()
        expect(visit.page.locator(".js-plotly-plot")).to_have_count(2 + 1)
        visit.page.get_by_text("Left out: 7 of 10 cells").click()
        expect(visit.page.get_by_test_id("stExpander").get_by_test_id("stDataFrame")).to_be_visible()


@pytest.mark.soak
def test_missing_or_equal_sides_are_reported(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/compare?compare=Labels&label-a=long+ago&label-b=before") as visit:
        alerts = visit.page.get_by_test_id("stAlert")
        expect(alerts.filter(has_text="“long ago”, which is not here.")).to_be_visible()
    with opened(browser, f"{address}/compare?compare=Labels&label-a=after&label-b=after") as visit:
        expect(visit.page.get_by_test_id("stAlert")).to_contain_text("A and B are the same")
