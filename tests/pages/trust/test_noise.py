"""Noise between processes and the canary on the page Trust: percentages computed by hand from rows in a real file.

Every machine has cells whose medians are m·e^x for x in steps: two of ±s have a sample variance of 2s² in ln(median).
On the GPU machine the host bounds one repeated cell (s = 5%) and the device another (1%). On the CPU machine there is
one, measured three times by another run.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from pages.offline.visit import Visits, nodes
from pages.ui.filters import run_name
from pages.ui.markdown import plain
from runner.schema import RunRow, StepCell, new_id, utc_now
from runner.store.queries.overview import load_contents
from tests.browser import Site, at_widths, fits_sideways, opened, said, traces
from tests.synthetic import rows
from tests.synthetic.sides import timed

IDS = sorted(new_id() for _ in range(3))
CPU = rows.run(run_id=IDS[0], host="bench0")
GPU = rows.run(run_id=IDS[1], device="cuda", device_name="Example GPU", label="quiet")
LATER = rows.run(run_id=IDS[2], device="cuda", device_name="Example GPU", label="drifting")
HERE = "Example GPU · bench1"
BEGAN = utc_now()


def repeated(of: RunRow, cell: StepCell, medians: list[float], **values: Any) -> list[rows.Rows]:
    """Returns one row for each round, ten minutes apart. The times in a loop are 2% less, and those of the device 3%
    less, or half if the host bounds the cell."""
    found = []
    for number, ms in enumerate(medians):
        one = timed(of, cell, (ms,) * 11, round=number, **values)
        share = 0.5 if values.get("bound") == "host" else 0.97
        clocks: dict[str, Any] = {"loop_ms": 0.98, "device_ms": share} if of.device == "cuda" else {}
        timings = tuple(
            replace(row, **{name: part * (row.median_ms or 0) for name, part in clocks.items()}) for row in one.timings
        )
        began = BEGAN + timedelta(minutes=10 * number, milliseconds=cell.shape.d_model)  # small cells come first
        step = replace(one.step, started_at=began)
        found.append(replace(one, step=step, timings=timings))
    return found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("noise") / "results.duckdb"
    rows.store(path, CPU, repeated(CPU, rows.asked("toy-64"), [10.0, 10.0 * math.exp(0.02), 10.0 * math.exp(-0.02)]))
    by_host, by_device = rows.asked("toy-64"), rows.asked("toy-256")
    noisy = repeated(GPU, by_host, [20.0 * math.exp(0.05), 20.0 * math.exp(-0.05)], bound="host")
    quiet = repeated(GPU, by_device, [40.0 * math.exp(0.01), 40.0 * math.exp(-0.01)], bound="device")
    rows.store(path, GPU, [*noisy, *quiet, *repeated(GPU, rows.asked("toy-128"), [30.0], bound="device")])
    drifting = [40.0, 40.0, 40.0, 40.0, 60.0]
    rows.store(path, LATER, repeated(LATER, by_device, drifting, bound="device"))
    return path


@pytest.fixture(scope="module")
def address(file: Path, site: Site) -> Iterator[str]:
    with site.showing(file) as found:
        yield found


def table(file: Path, card: str, **parameters: list[str]) -> list[dict[str, Any]]:
    found = Visits(file).visit("trust", {"machine": [HERE], **parameters}).rows[f"card-{card}"]
    return [{str(name): value for name, value in row.items()} for row in found.to_dict("records")]


def names(file: Path) -> dict[Any, str]:
    return {run.run_id: run_name(run) for run in load_contents(file).runs}


def test_noise_of_each_kind_and_the_smallest_detectable_difference(file: Path) -> None:
    """The host: a variance of 2 · 0.05² with one degree of freedom, of which half counts. No tables have t for 0.5 and
    4.5 degrees of freedom: between 4 and 5 (4.604, 4.032) the second is 4.28.

    The device: two cells, with 2 · 0.01² for one degree and ln(1.5)²/5 for four. Their mean, weighted by degrees, is
    (0.0002 + 4 · 0.03288) / 5 = 0.026344, a std of 16.2%, with 2.5 degrees of freedom. The noise of device times is
    always that of the device, including the host-bound cell: (0.0002 + 4 · 0.03288 + 0.005) / 6 = 0.022787.
    """
    found = table(file, "noise")
    assert [(row["Machine"], row["Cells"], row["Clock"], row["Repeated cells"]) for row in found] == [
        *((HERE, "device-bound steps", clock, 2) for clock in ("waited for", "in a loop")),
        (HERE, "device-bound steps", "device time", 3),
        *((HERE, "host-bound steps", clock, 1) for clock in ("waited for", "in a loop")),
        ("Example CPU · bench0", "steps (bound not known)", "waited for", 1),
    ]
    percents = [row["Standard deviation (%)"] for row in found]
    device, host = 100 * math.sqrt(0.026344), 100 * math.sqrt(0.005)
    both = 100 * math.sqrt(0.022787)
    assert percents == pytest.approx([device, device, both, host, host, 2.0], rel=1e-3)
    five = [row["Resolved by 5 processes each (%)"] for row in found]
    assert five[3] == pytest.approx(100 * math.expm1(4.28 * 0.07071 * math.sqrt(0.4)), rel=0.02)
    assert math.isnan(found[3]["Resolved by one process each (%)"])
    assert "one process each can resolve no difference, 5 processes each" in visit_words(file)
    # On the CPU, a variance of 0.0004 with two degrees of freedom counts as one: t is 63.657 for 1, and 4.032 for 5.
    (cpu,) = (row for row in found if row["Machine"] == "Example CPU · bench0")
    assert cpu["Resolved by one process each (%)"] == pytest.approx(505.3, abs=0.1)  # e^(63.657 · 0.02 · √2)
    assert five[-1] == pytest.approx(100 * math.expm1(4.032 * 0.02 * math.sqrt(0.4)), rel=1e-3)


def test_the_canary_drifts_by_more_than_the_noise_or_not(file: Path) -> None:
    """The latest run is shown first: it has five rounds, and the last takes one and a half times as long."""
    found = table(file, "canary")
    assert [row["Round"] for row in found] == [0, 1, 2, 3, 4]
    assert [row["Median (ms)"] for row in found] == [40.0] * 4 + [60.0]
    assert [row["Against the first"] for row in found] == ["+0%"] * 4 + ["+50.0%"]
    assert "took 40.0 ms in the first of 5 processes and 60.0 ms in the last, 40 min later: +50.0%" in visit_words(file)
    quiet = visit_words(file, canary=[names(file)[GPU.run_id]])
    assert "took 21.0 ms in the first of 2 processes and 19.0 ms in the last, 10 min later: −9.52%. Whether" in quiet


def visit_words(file: Path, **parameters: list[str]) -> str:
    visit = Visits(file).visit("trust", {"machine": [HERE], **parameters})
    return plain(" ".join(str(getattr(node, "value", "")) for node in nodes(visit.main)))


@pytest.mark.soak
def test_a_chosen_run_has_its_own_canary_and_the_noise_of_all_runs(file: Path) -> None:
    (row, *_) = table(file, "canary", run=[names(file)[GPU.run_id]])
    assert row["Median (ms)"] == pytest.approx(20.0 * math.exp(0.05))
    assert len(table(file, "noise", run=[names(file)[GPU.run_id]])) == 6


def test_without_repeated_cells_the_page_explains_what_that_means(tmp_path: Path) -> None:
    of = rows.run()
    path = rows.store(tmp_path / "results.duckdb", of, [rows.ok(of, rows.asked())])
    visit = Visits(path).visit("trust", {})
    words = plain(" ".join(str(getattr(node, "value", "")) for node in nodes(visit.main)))
    assert "No cell was measured in several processes by one run" in words
    assert not {"card-noise", "card-canary"} & set(visit.rows)


@pytest.mark.soak
def test_both_charts_are_drawn_and_fit(browser: Browser, address: str) -> None:
    with opened(browser, f"{address}/trust?machine={HERE}", width=390) as visit:
        for width in at_widths(visit.page, 390, 1440):
            dots = traces(visit.page, "noise")
            assert len(dots["standard deviation"]["x"]) == 6
            assert dots["standard deviation"]["x"][3] == pytest.approx(100 * math.sqrt(0.005))
            drawn = traces(visit.page, "canary")
            assert drawn["one process"]["y"] == [40.0] * 4 + [60.0]
            assert "resolve" in said(visit.page)
            card = visit.page.locator(".st-key-_said-canary")
            expect(card.get_by_text("How do we know?")).to_be_attached()
            assert fits_sideways(visit.page), width
