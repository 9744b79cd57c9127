"""Every page is accessible by axe-core: names, roles, contrast and landmarks, at every width, light and dark."""

import re
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from pages.plot.colors import DARK, LIGHT, contrast
from tests.browser import at_widths, fits_sideways, opened, settled
from tests.e2e.test_app import ADDRESSES

GRAVE = ("serious", "critical")
#: Faults of Streamlit's own elements: the rule, the `data-testid` within which it is found, and the reason.
STREAMLITS_OWN = (
    ("list", "stSidebarNavItems", "The navigation's sections are `div`s between its `ul` and its `li`s."),
    ("listitem", "stSidebarNav", "The same, seen from the items."),
    ("color-contrast", "stCode", "The colors of its highlighter belong to no theme."),
    ("scrollable-region-focusable", "stCode", "A line that is too long for it cannot be scrolled by keyboard."),
)
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
#: Colors do not depend on the width, so that a phone and a usual screen are enough in dark.
WIDTHS = {"light": (390, 768, 1440, 2560), "dark": (390, 1440)}
PAPER = {"light": LIGHT, "dark": DARK}
#: Returns the text that is smaller than 12 px.
SMALL = """() => [...document.querySelectorAll("[data-testid=stMain] *")].filter(one =>
    [...one.childNodes].some(child => child.nodeType === Node.TEXT_NODE && child.data.trim())
    && !["SCRIPT", "STYLE"].includes(one.tagName) && one.checkVisibility()
    && parseFloat(getComputedStyle(one).fontSize) < 11.99).map(one => one.textContent)"""


@pytest.mark.soak
@pytest.mark.parametrize("path", ADDRESSES)
def test_every_page_in_every_width(browser: Browser, address: str, path: str) -> None:
    """No serious fault, no faint text, nothing beyond the right edge, from phone to wide screen, in light and dark."""
    with opened(browser, f"{address}/{path}") as visit:
        for scheme in SCHEMES:
            visit.page.emulate_media(color_scheme=scheme)
            settled(visit.page)
            assert not _faint(visit.page, page_color=PAPER[scheme]), scheme
            assert visit.page.evaluate(SMALL) == []
            for width in at_widths(visit.page, *WIDTHS[scheme]):
                faults = _grave(visit.page)
                if faults:  # on a busy machine a color of the other scheme may still be shown
                    settled(visit.page)
                    faults = _grave(visit.page)
                assert not faults, "\n".join([f"{scheme}, {width}", *faults])
                assert fits_sideways(visit.page), (scheme, width)


def _faint(page: Page, *, page_color: str) -> set[str]:
    """Returns colors of text in charts with a contrast below 4.5:1, because axe does not check images. Labels on bars
    have tests of their own."""
    fills = page.locator(".js-plotly-plot text").evaluate_all("texts => texts.map(one => getComputedStyle(one).fill)")
    colors = {"#" + "".join(f"{int(part):02X}" for part in re.findall(r"\d+", fill)[:3]) for fill in fills}
    return {color for color in colors - {*PAPER.values()} if contrast(color, page_color) < 4.5}


@pytest.mark.soak
def test_faults_are_found(browser: Browser, address: str) -> None:
    """A button without a name and gray text on gray, which shows that the check works."""
    with opened(browser, f"{address}/training-step", whole=True) as visit:
        visit.page.emulate_media(color_scheme="light")
        settled(visit.page)
        visit.page.get_by_test_id("stMainBlockContainer").evaluate(
            "main => main.insertAdjacentHTML('afterbegin', '<button></button><p style=\"color: #aaa\">hardly seen</p>')"
        )
        assert [fault.split(":")[0] for fault in _grave(visit.page)] == ["button-name", "color-contrast"]


def _grave(page: Page) -> list[str]:
    """Returns the serious faults that are not Streamlit's own: the rule, the place, and the description."""
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
