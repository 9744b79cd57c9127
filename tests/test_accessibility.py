"""Whether everybody can use the pages: axe-core finds no serious fault on any of them, in the light and in the dark.

    pytest tests/test_accessibility.py

Limits: what rules can see (names, roles, contrast, landmarks); `STREAMLITS_OWN` is what Streamlit draws and no page can
change.
"""

from collections.abc import Iterator
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests import memory_rows, rows, timelines
from tests.browser import chromium, served

PAGES = ("", "training-step", "mixed-precision", "torch-compile", "kernels", "roofline", "explore",
         "attention", "peak-memory", "memory-timeline", "compare", "data", "sql")  # fmt: skip
GRAVE = ("serious", "critical")
#: Faults of what Streamlit itself draws: the rule, the `data-testid` within which it is found, and why.
STREAMLITS_OWN = (
    ("list", "stSidebarNavItems", "The navigation's sections are `div`s between its `ul` and its `li`s."),
    ("listitem", "stSidebarNav", "The same, seen from the items."),
    ("color-contrast", "stCode", "The colors of its highlighter belong to no theme."),
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server over a small finished sweep of every experiment."""
    of, path = rows.run(label="first look"), tmp_path_factory.mktemp("axe") / "results.duckdb"
    rows.store(path, of, rows.laptop(of))
    attention = [memory_rows.attention(of, seq_len=length) for length in (256, 1024)]
    parts = {"parameters": 2**20, "activations": 2**22}
    memory_rows.store(path, [*attention, memory_rows.memory(of, parts), memory_rows.memory(of, parts, context=256)])
    timelines.write(path, of, timelines.step(allocations=300))
    with served(path) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize("name", PAGES)
def test_no_serious_fault(browser: Browser, address: str, name: str) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 900}, locale="en-US")
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    try:
        page.goto(f"{address}/{name}")
        for scheme in schemes:
            page.emulate_media(color_scheme=scheme)
            _settled(page)
            faults = _grave(page)
            assert not faults, "\n".join([scheme, *faults])
    finally:
        page.close()


def test_a_fault_is_seen(browser: Browser, address: str) -> None:
    """A button without a name and gray words on gray are found, so that finding nothing means something."""
    page = browser.new_page()
    page.goto(f"{address}/")
    _settled(page)
    page.get_by_test_id("stMainBlockContainer").evaluate(
        "main => main.insertAdjacentHTML('afterbegin', '<button></button><p style=\"color: #aaa\">hardly seen</p>')"
    )
    faults = _grave(page)
    page.close()
    assert [fault.split(":")[0] for fault in faults] == ["button-name", "color-contrast"]


def _settled(page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_be_visible(timeout=20_000)
    page.wait_for_timeout(500)
    for left in ("stStatusWidget", "stSkeleton"):
        expect(page.get_by_test_id(left)).to_have_count(0, timeout=20_000)
    page.wait_for_timeout(300)


def _grave(page: Page) -> list[str]:
    """The serious faults that are not Streamlit's own: the rule, where, and what is wrong."""
    found: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [
        f"{fault['id']}: {node['html']} {node['failureSummary']}"
        for fault in found
        if fault["impact"] in GRAVE
        for node in fault["nodes"]
        if not _streamlits_own(page, fault["id"], node["target"][-1])
    ]


def _streamlits_own(page: Page, rule: str, target: str | list[str]) -> bool:
    return isinstance(target, str) and any(
        rule == known and page.locator(target).first.evaluate("(it, id) => !!it.closest(`[data-testid=${id}]`)", within)
        for known, within, _ in STREAMLITS_OWN
    )
