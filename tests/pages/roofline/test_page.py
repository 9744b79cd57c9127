"""Roofline as its readers see it: a real server, a real browser, synthetic rows (`tests.synthetic.roofline_rows`).

The plain step of toy-256 at 128 tokens takes 4·256^1.5·128 / 20,000 = 104.9 ms. Its operations, `RATE` times that, are
122.9 GFLOP/s: 6.1% of the 2 TFLOP/s that the later run measured.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page

from pages.offline.visit import Visits
from tests.browser import Site, opened, said, settled, traces
from tests.synthetic.roofline_rows import store

#: Operations of weights that multiply and of attention, forward and twice backward, divided by the step time (FLOP/s).
RATE = 3 * (2 * 512 * 3_932_160 + 4 * 4 * 512 * 128 * 256) / 0.1048576


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, site: Site) -> Iterator[str]:
    with site.showing(store(tmp_path_factory.mktemp("roofline") / "results.duckdb")) as found:
        yield found


@pytest.fixture(scope="module")
def page(browser: Browser, address: str) -> Iterator[Page]:
    """Yields the page as it opens; tests that only read it share it."""
    with opened(browser, f"{address}/roofline") as visit:
        yield visit.page


def test_the_answer(page: Page) -> None:
    words = said(page)
    assert "takes 105 ms and runs at 123 GFLOP/s" in words, (
        "this is the plain step, or the one whose optimizer changes nothing"
    )
    assert "6% of the 2.00 TFLOP/s measured on this machine" in words
    assert "under 1% of the 67.0 TFLOP/s of its datasheet" in words
    reached, longer = re.findall(r"reaches (\d+)% of that limit, or takes ([\d.]+)× as long", words)[0]
    assert int(reached) == round(100 / float(longer)), "both numbers must say the same"
    assert "The machine slowed down during the sweep: matmul bf16 by 20%." in words
    assert "2 of the 5 single changes tried are significantly faster: bf16 " in words
    assert "bf16 products and weights 2.00×" in words
    assert "no result from sdpa attention (out of memory), tf32 (skipped)" in words
    assert "The best combination is bf16 · compiled-block 2.40×" in words
    assert "Measured by python -m runner sweep --label first" in words
    assert "sdpa attention: out of memory. 12 GiB more" in words
    assert "toy-256 · 128 tok · fp32 waits for the host for 50% of its time" in words
    assert page.get_by_test_id("stException").count() == 0


def test_on_a_phone_the_warning_is_a_box_of_its_own(page: Page) -> None:
    """Its lines do not overlap: none of the boxes within it is broken into pieces."""
    page.set_viewport_size({"width": 390, "height": 900})
    settled(page)
    pieces = page.locator(".st-key-_said-moved [data-testid=stAlert] div").evaluate_all(
        "all => all.map(one => one.getClientRects().length)"
    )
    page.set_viewport_size({"width": 1440, "height": 900})
    assert set(pieces) <= {0, 1}


def test_steps_and_kernels_under_the_roof(page: Page) -> None:
    drawn = traces(page, "roof")
    assert drawn["fp32 measured"]["y"][-1] == 2e12
    assert drawn["bf16 measured"]["y"][-1] == 10e12
    assert drawn["bf16 datasheet"]["y"][-1] == 989.5e12
    x, y = drawn["fp32 measured"]["x"], drawn["fp32 measured"]["y"]
    assert (x[1], y[0] / x[0]) == pytest.approx((20, 1e11)), "the ridge is at 20 and the slope is the bandwidth"
    assert RATE in [pytest.approx(value, rel=1e-3) for value in drawn["fp32 steps"]["y"]]
    assert sorted(drawn["fp32 kernels"]["x"]) == [2, 100]
    assert sorted(drawn["fp32 kernels"]["y"]) == pytest.approx([1e4, 1e6 / 6])


def test_the_table_of_changes_has_their_speedups(tmp_path: Path) -> None:
    path = store(tmp_path / "results.duckdb")
    speedups = Visits(path).visit("roofline", {}).rows["card-changes"]["Speedup (×)"].dropna()
    assert list(speedups) == pytest.approx([2, 2, 1, 2.4], rel=1e-3)


def test_changes_bounds_and_shares(page: Page) -> None:
    assert traces(page, "changes")["whole step"]["x"] == pytest.approx([2, 2, 1, 2.4], rel=1e-3)
    bounds = {name: trace["x"] for name, trace in traces(page, "bounds").items()}
    assert bounds == {
        "compute-bound": [pytest.approx(0.3)],
        "memory-bound": [pytest.approx(0.15)],
        "device waits for the host": [pytest.approx(0.5)],
        "unknown": [pytest.approx(0.05)],
    }
    used = traces(page, "utilization")
    # The order is by size, context and precision, and not by time.
    place = used["of the measured peak"]["x"].index(pytest.approx(RATE / 2e12, rel=1e-3))
    assert used["of the datasheet's"]["x"][place] == pytest.approx(RATE / 67e12, rel=1e-3)
    assert f"toy-256 · 128 tok · fp32 reaches {RATE / 2e12:.0%} of the peak of its precision" in said(page)


@pytest.mark.soak
def test_another_step_by_its_link(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/roofline?base={quote('toy-256 · 128 · train · bf16 · eager')}") as visit:
        words = said(visit.page)
        assert "significantly slower: fp32 0.500×" in words
        ratios = traces(visit.page, "changes")["whole step"]["x"]
        assert ratios[0] == pytest.approx(1.2, rel=1e-3), "the linked step has compiled blocks"
        assert min(ratios) == pytest.approx(0.5, rel=1e-3)
