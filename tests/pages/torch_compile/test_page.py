"""torch.compile as its readers see it: a real server, a real browser, numbers computed by hand.

A step of toy-64 at 128 tokens takes 2 x 64^1.5 x 128 / 20,000 = 6.5536 ms in eager. Compiled it is 1.25 times as fast
and saves 1.31072 ms, so that 20 s are recovered after 15,259 steps and 2 s after 1,526. Compiled block by block it is
1.2 times as fast and costs the measured 10 s: 9,155 steps. max-autotune is slower here, so its cost is never recovered.
"""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from playwright.sync_api import Browser, Page

from pages.torch_compile.figures import CostDot, CumulatedLine, cost_dots, crossings
from pages.ui.answers import describe_spread
from runner.analysis.compare.break_even import PaidAfter, compute_break_even
from runner.analysis.statistics import Ratio
from runner.schema import StepRow
from runner.store.queries.compile import load_compile_costs
from runner.store.queries.selection import Selection
from runner.store.queries.steps import load_steps
from tests.browser import Site, drawn, opened, said
from tests.synthetic import rows

SLOWER = {"compiled-max-autotune": 0.8}
COSTS: dict[str, dict[str, Any]] = {
    "compiled": {
        "compile_seconds": 20.0,
        "compile_cold_seconds": 20.0,
        "compile_warm_seconds": 2.0,
        "compiled_at_once": 14,
    },
    "compiled-block": {"compile_seconds": 10.0},
    "compiled-max-autotune": {"compile_seconds": 40.0, "compile_cold_seconds": 40.0, "compile_warm_seconds": 4.0},
}
COUNTED: dict[str, Any] = {"graphs": 1, "graph_breaks": 0, "recompiles": 0, "compiler_fallback": False}
ERRORS = {"compiled": 0.012, "compiled-block": 0.004, "compiled-max-autotune": None}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file with three ways of compiling toy-64, one of them slower than eager, and one that failed."""
    of, cells = rows.run(), [rows.ok(rows.run(), rows.asked())]
    with patch.dict(rows.FASTER, SLOWER):
        cells = [rows.ok(of, rows.asked())]
        for backend, costs in COSTS.items():
            cache = "empty" if "compile_cold_seconds" in costs else "shared"
            made = rows.ok(of, rows.asked(backend=backend, compile_cache=cache))
            found = {**costs, **COUNTED, "compiled_gradient_error": ERRORS[backend]}
            cells.append(dataclasses.replace(made, step=dataclasses.replace(made.step, **found)))
    cells.append(rows.ok(of, rows.asked(backend="compiled")))  # the same cell with the shared cache: 8.5 s
    cells.append(rows.failed(of, rows.asked("toy-128", backend="compiled")))
    cells.append(rows.ok(of, rows.asked("toy-128")))
    return rows.store(tmp_path_factory.mktemp("compiled") / "results.duckdb", of, cells)


def test_steps_until_the_cost_is_recovered_by_hand() -> None:
    assert compute_break_even(compile_seconds=30.0, baseline_ms=50.0, ratio=2.5) == pytest.approx(1000.0)
    assert compute_break_even(compile_seconds=30.0, baseline_ms=50.0, ratio=1.0) == float("inf")
    eager = CumulatedLine(name="eager", backend="eager", start_s=0.0, step_ms=50.0)
    faster = CumulatedLine(name="compiled", backend="compiled", start_s=30.0, step_ms=20.0)
    slower = CumulatedLine(name="slower", backend="compiled", start_s=30.0, step_ms=60.0)
    ((line, steps),) = crossings([eager, faster, slower])
    assert line.name == "compiled"
    assert steps == pytest.approx(1000.0)
    assert faster.seconds(1000) == eager.seconds(1000) == 50.0


def test_a_gain_within_its_interval_is_called_neither_a_gain_nor_paid() -> None:
    def paid(steps: float, low: float | None, high: float | None) -> tuple[bool, bool]:
        found = PaidAfter(compile_seconds=20.0, steps=steps, low=low, high=high)
        return found.is_never, found.is_undecided

    never = math.inf
    assert (paid(19_600.0, 500.0, never), paid(never, 500.0, never)) == ((False, True), (False, True))
    assert (paid(100.0, 50.0, 200.0), paid(100.0, None, None)) == ((False, False), (False, False))
    assert (paid(never, never, never), paid(never, None, None)) == ((True, False), (True, False))
    open_, certain = Ratio(ratio=1.02, low=0.682, high=1.51), Ratio(ratio=2.0, low=1.9, high=2.1, decided=True)
    assert describe_spread([open_]) == "(95% interval 0.682–1.51×; one pair, not significant)"
    assert describe_spread([certain]) == "(95% interval 1.90–2.10×; one pair)"


def test_a_cell_compiled_with_both_caches_is_drawn_once(file: Path) -> None:
    """The page draws it with the shared cache, with which the others were compiled; its cost has all three times."""
    cells = [cell for cell in load_steps(file, Selection(mode="train")) if cell.cell.backend == "compiled"]
    assert [(cell.cell.d_model, cell.cell.compile_cache) for cell in cells if cell.status == "ok"] == [(64, "shared")]
    costs = {cost.cell.backend: cost for cost in load_compile_costs(file, Selection())}
    assert set(costs) == set(COSTS), "failed and eager cells are left out"
    found = costs["compiled"]
    assert (found.cold_seconds, found.warm_seconds, found.shared_seconds) == (20.0, 2.0, 8.5)
    assert (costs["compiled-block"].cold_seconds, costs["compiled-block"].shared_seconds) == (None, 10.0)
    assert (found.graphs, found.graph_breaks, found.recompiles, found.fallback) == (1, 0, 0, False)
    assert {"compile_cold_seconds", "graphs"} <= {field.name for field in dataclasses.fields(StepRow)}


@pytest.fixture(scope="module")
def page(file: Path, browser: Browser, site: Site) -> Iterator[Page]:
    with site.showing(file) as address, opened(browser, f"{address}/torch-compile") as visit:
        yield visit.page


def texts(page: Page, card: str) -> list[str]:
    """Returns the labels of a chart's points."""
    return sorted(text.strip() for trace in drawn(page, card) for text in trace["text"] if text)


def test_the_page_says_what_compiling_gains_and_when_its_cost_is_recovered(page: Page) -> None:
    words = said(page)
    assert "Whether compiled makes the step faster than eager is undecided: 1.25× faster" in words
    assert "significantly slower than eager" not in words, "one process each is not enough for a verdict"
    assert "compiling takes 20.0 s with an empty cache and 2.00 s with a warm one" in words
    assert "it pays off after 15,300 and 1,530 steps respectively" in words
    assert "Of 3 compiled cells: no graph break in the 3 that count them; none was compiled again" in words
    assert "each parameter's gradient is within 1.20% of eager's in the 2 that compare them" in words
    assert "2 of 3 compiled cells pay off, 1 never." in words
    dots = {trace["name"]: trace["x"] for trace in drawn(page, "ways") if trace["x"]}
    assert {name: dots[name] for name in COSTS} == {
        "compiled": [pytest.approx(1.25, rel=1e-3)],
        "compiled-block": [pytest.approx(1.2, rel=1e-3)],
        "compiled-max-autotune": [pytest.approx(0.8, rel=1e-3)],
    }
    assert texts(page, "ways") == ["out of memory in backward"]


def test_costs_and_steps_are_drawn_and_the_lines_cross_at_the_right_step(page: Page) -> None:
    assert "compiled by one thread, up to 14 cells at the same time, importing" in said(page)
    assert texts(page, "compile-seconds") == ["10.0", "2.00", "20.0", "4.00", "40.0"]
    assert texts(page, "paid-after") == ["1,530", "15,300", "9,160", "never"]
    lines = {trace["name"] for trace in drawn(page, "crossing")}
    assert {"eager", "compiled, cold", "compiled, warm"} <= lines, "the cell with the largest gain is shown first"
    assert texts(page, "crossing") == ["after 1,530 steps", "after 15,300 steps"]


def test_the_axis_of_costs_reaches_over_intervals_and_has_no_ticks_without_a_cost() -> None:
    dot = CostDot(place="toy", backend="compiled", kind="cold", value=100.0, low=50.0, high=1e9)
    low, high = cost_dots([dot], unit="steps").layout.xaxis.range
    assert 10 < 10**low < 50, "the interval's end is on it"
    assert 1_000 < 10**high < 10_000, "a wide interval counts to ten times the value"
    assert not cost_dots([dataclasses.replace(dot, value=math.inf)], unit="steps").layout.xaxis.tickvals
