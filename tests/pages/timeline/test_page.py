"""The page of the memory timeline as its readers see it: a real server, a real browser, a timeline computed by hand
(`conftest.by_hand`)."""

import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from runner.importers.files import import_file
from runner.schema import TimelineRow
from runner.store.read.memory import load_timelines as stored
from tests.browser import Site, opened, settled
from tests.pages.timeline.conftest import INFERENCE, TRAIN
from tests.synthetic.timelines import HOSTILE, MIB


@pytest.fixture(scope="module")
def address(written: tuple[Path, TimelineRow], site: Site) -> Iterator[str]:
    with site.showing(written[0]) as found:
        yield f"{found}/memory-timeline?show=every+allocation"


def _shown(page: Page, number: int = 0) -> Locator:
    found = page.locator(".timeline").nth(number)
    expect(found).to_have_attribute("data-drawn-peak", re.compile(r"\d"))
    return found


def _window(found: Locator) -> list[int]:
    return [int(value) for value in (found.get_attribute("data-window") or "").split(",")]


def _click(found: Locator, *, at_us: int, address: int) -> None:
    """Clicks at a time and an address (above the lowest, without gaps). The blocks get what 30% of the height and the
    bands of 20 and 22 pixels leave."""
    plot = found.locator(".plot")
    box = plot.bounding_box()
    assert box is not None
    start, end, low, high = _window(found)
    top = round(box["height"] * 0.3) + 20
    y = top + (box["height"] - top - 22) * (1 - (address - low) / (high - low))
    plot.click(position={"x": box["width"] * (at_us - start) / (end - start), "y": y})


def test_drawn_total_pin_and_cursor(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}&recording=by+hand&fold=nothing") as visitor:
        page = visitor.page
        found = _shown(page)
        expect(page.get_by_text("falls in forward")).to_contain_text("peak of 32.0 MiB falls in forward, 30.0 MiB")
        expect(found).to_have_attribute("data-drawn-peak", str(30 * MIB))
        expect(page.get_by_text("At the peak (0.30 ms, forward): 4 allocations hold 30.0 MiB")).to_be_visible()
        _click(found, at_us=450, address=16 * MIB)  # the weights are in 0–8, the activation of 16 MiB is in 8–24
        expect(found).to_have_attribute("data-pinned", "1")
        expect(found.locator(".pin")).to_contain_text("16.0 MiB")
        expect(found.locator(".pin")).to_contain_text("blocks.0.attn")
        expect(found.locator(".pin")).to_contain_text("0.100 ms – 0.700 ms")
        expect(page.get_by_text("At the cursor (0.45 ms, backward): 3 allocations hold 28.0 MiB")).to_be_visible()
        assert "activation20.0 MiB" in found.locator(".legend").inner_text().replace("\n", "")


def test_search_finds_and_hostile_names_stay_text(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}&recording=by+hand") as visitor:
        found = _shown(visitor.page)
        search = found.get_by_role("searchbox")
        search.fill("FFN")
        expect(found).to_have_attribute("data-matches", "1")
        expect(found.locator(".found")).to_have_text("1 found · 4.00 MiB at the cursor")
        search.fill("nowhere")
        expect(found.locator(".found")).to_have_text("nothing found")
        search.fill("<img")
        expect(found).to_have_attribute("data-matches", "5")  # every stack ends with a name full of HTML
        for _ in range(5):
            search.press("Enter")
        expect(found).to_have_attribute("data-pinned", "4")
        expect(found.locator(".pin")).to_contain_text(HOSTILE)
        assert found.locator("img").count() == 0
        assert "owned" not in visitor.page.title()


@pytest.mark.soak
def test_keys_and_wheel_change_the_window_and_the_peak_stays(browser: Browser, address: str) -> None:
    with opened(browser, address) as visitor:
        found = _shown(visitor.page)
        plot = found.locator(".plot")
        whole = _window(found)
        plot.focus()
        plot.press("+")
        expect(found).not_to_have_attribute("data-window", ",".join(map(str, whole)))
        zoomed = _window(found)
        assert (zoomed[1] - zoomed[0]) / (whole[1] - whole[0]) == pytest.approx(0.6, rel=0.01)
        plot.press("ArrowRight")
        expect(found).not_to_have_attribute("data-window", ",".join(map(str, zoomed)))
        assert _window(found)[0] > zoomed[0]
        plot.press("]")
        plot.hover()
        before = _window(found)
        visitor.page.mouse.wheel(0, -200)
        expect(found).not_to_have_attribute("data-window", ",".join(map(str, before)))
        narrow = _window(found)
        assert narrow[1] - narrow[0] < zoomed[1] - zoomed[0]
        assert narrow[3] - narrow[2] < whole[3] - whole[2]
        plot.press("0")
        expect(found).to_have_attribute("data-window", ",".join(map(str, whole)))
        plot.press(".")
        expect(found).not_to_have_attribute("data-cursor", "2981")


@pytest.mark.soak
def test_two_timelines_fold_and_difference(browser: Browser, address: str, written: tuple[Path, TimelineRow]) -> None:
    by_label = {item.label: item for item in stored(written[0])}
    with opened(browser, f"{address}&recording={TRAIN}&beside={INFERENCE}&fold=256+KiB") as visitor:
        page = visitor.page
        for number, label in enumerate((TRAIN, INFERENCE)):
            expect(_shown(page, number)).to_have_attribute("data-drawn-peak", str(by_label[label].peak_bytes))
        gap = (by_label[TRAIN].peak_bytes - by_label[INFERENCE].peak_bytes) / MIB
        expect(page.get_by_text("higher than that of")).to_contain_text(f"{gap:.0f} MiB")
        with page.expect_download() as download:
            _shown(page).get_by_role("button", name="PNG").click()
        picture = Path(download.value.path()).read_bytes()
        assert picture[:8] == b"\x89PNG\r\n\x1a\n"
        assert len(picture) > 5_000


@pytest.mark.soak
def test_blocks_from_before_a_snapshot_are_drawn_as_one(browser: Browser, tmp_path: Path, site: Site) -> None:
    """4 blocks of 8 MiB existed before, of which one is freed; 1 MiB and 2 MiB are allocated. So the picture is 3 MiB
    high instead of 35, and the list has what the recording saw being made."""
    older = [{"address": n * 8 * MIB, "size": 8 * MIB, "requested_size": 8 * MIB - 512, "state": "active_allocated"}
             for n in range(3)]  # fmt: skip
    trace = [
        {"action": action, "addr": address * MIB, "size": size * MIB, "time_us": at_us}
        for at_us, action, address, size in
        [(0, "alloc", 32, 1), (50, "alloc", 33, 2), (70, "free_requested", 24, 8), (90, "free_requested", 32, 1)]
    ]  # fmt: skip
    path, db = tmp_path / "their.pickle", tmp_path / "results.duckdb"
    path.write_bytes(pickle.dumps({"segments": [{"address": 0, "blocks": older}], "device_traces": [trace]}))
    import_file(path, db=db)
    shown = "memory-timeline?show=every+allocation&fold=nothing"
    with site.showing(db) as found, opened(browser, f"{found}/{shown}") as visitor:
        drawn = _shown(visitor.page)
        expect(visitor.page.get_by_text("6 allocations · 32.0 MiB held before")).to_be_visible()
        expect(drawn).to_have_attribute("data-drawn-peak", str(35 * MIB - 3 * 512))
        assert _window(drawn)[3] == 3 * MIB
        expect(visitor.page.get_by_text("The 2 largest, like ones in a line:")).to_be_visible()


@pytest.mark.soak
def test_the_picture_fits_the_page(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}&recording={TRAIN}&beside={INFERENCE}", width=2560) as visitor:
        for width in (2560, 390):
            visitor.page.set_viewport_size({"width": width, "height": 900})
            settled(visitor.page)
            assert visitor.page.evaluate("document.documentElement.scrollWidth") <= width
            for number in range(2):
                box = _shown(visitor.page, number).locator(".plot").bounding_box()
                assert box is not None
                assert box["x"] >= 0
                assert box["x"] + box["width"] <= width
