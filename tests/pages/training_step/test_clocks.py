"""Training step by each clock: a cell bound by the host, one bound by the device, and one of a CPU."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from pages.offline.visit import Visits, nodes
from pages.ui.markdown import plain
from runner.errors import UsageError
from tests.browser import Site, at_widths, fits_sideways, opened, traces
from tests.synthetic import rows
from tests.synthetic.clocks import by_clocks, gpu

HOST = "10.0 ms of GPU work in 30.0 ms in a loop: the host sets this time"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, of = tmp_path_factory.mktemp("clocks") / "results.duckdb", gpu()
    cells = [
        by_clocks(of, rows.asked("toy-64"), waited=32.0, loop=30.0, device=10.0),
        by_clocks(of, rows.asked("toy-128"), waited=22.0, loop=20.0, device=20.0),
        rows.ok(
            of, rows.asked("toy-256")
        ),  # as an older release stored it: 4 · 256^1.5 · 128 / 20,000 = 104.86 ms, waited for
    ]
    return rows.store(path, of, cells)


@pytest.fixture(scope="module")
def address(file: Path, site: Site) -> Iterator[str]:
    with site.showing(file) as found:
        yield found


def visit_words(path: Path, **parameters: list[str]) -> str:
    visit = Visits(path).visit("training-step", parameters)
    return plain(" ".join(str(getattr(node, "value", "")) for node in nodes(visit.main)))


def test_the_table_has_every_clock_and_what_bounds_a_cell(file: Path) -> None:
    found = Visits(file).visit("training-step", {}).rows["card-phases"]
    steps = found[found["Phase"] == "whole step"]
    columns = ["Size", "Median (ms)", "Median in a loop (ms)", "Device time (ms)", "Bound by"]
    drawn: list[list[Any]] = steps[columns].astype(object).where(steps[columns].notna(), None).values.tolist()
    assert drawn[:2] == [["toy-64", 32.0, 30.0, 10.0, "host"], ["toy-128", 22.0, 20.0, 20.0, "device"]]
    assert drawn[2][0] == "toy-256"
    assert drawn[2][2:] == [None, None, None]


def test_the_answer_follows_the_clock(file: Path) -> None:
    small = {"size": ["toy-64", "toy-128"]}
    assert "toy-64 at 128 tokens, fp32, eager, takes 32.0 ms (" in visit_words(file, **small)
    assert f"That is {HOST}." in visit_words(file, **small)
    assert "toy-64 at 128 tokens, fp32, eager, takes 30.0 ms in a loop (" in visit_words(
        file, clock=["in a loop"], **small
    )
    device = visit_words(file, clock=["device time"], **small)
    assert "toy-128 at 128 tokens, fp32, eager, takes 20.0 ms of device time (" in device
    assert HOST not in device


@pytest.mark.soak
def test_without_other_clocks_there_is_no_chooser(tmp_path: Path) -> None:
    of = rows.run()
    path = rows.store(tmp_path / "results.duckdb", of, [rows.ok(of, rows.asked())])
    assert "Bound by" not in Visits(path).visit("training-step", {}).rows["card-phases"]
    with pytest.raises(UsageError, match="clock"):
        Visits(path).visit("training-step", {"clock": ["device time"]})


@pytest.mark.soak
def test_without_a_clock_in_the_link_the_page_names_host_bound_cells(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/training-step", width=390) as visit:
        for width in at_widths(visit.page, 390, 1440):
            assert "the host sets this time" in traces(visit.page, "phases")
            assert fits_sideways(visit.page), width


def test_the_chart_uses_the_clock_of_the_link(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/training-step?clock=device+time", width=390) as visit:
        for width in at_widths(visit.page, 390, 1440):
            drawn = traces(visit.page, "phases")
            assert drawn["forward"]["x"] == [5.0, 10.0]
            assert "the host sets this time" not in drawn
            labels = visit.page.locator(".st-key-card-phases .textpoint").all_text_contents()
            assert [text.strip() for text in labels] == ["10.0 ms", "20.0 ms", "✕ device time not known"]
            assert fits_sideways(visit.page), width
