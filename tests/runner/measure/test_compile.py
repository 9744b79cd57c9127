"""torch.compile: what a row says of it, what CUDA graphs need, and the page, with numbers worked out by hand.

A step of toy-64 at 128 tokens takes 2 x 64^1.5 x 128 / 20,000 = 6.5536 ms in eager. Compiled it is 1.25 times as fast
and saves 1.31072 ms, so that 20 s pay off after 15,259 steps and 2 s after 1,526. Block by block it is 1.2 times
as fast and costs 10 s as found: 9,155 steps. max-autotune makes it slower here, and never pays.
"""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from playwright.sync_api import Browser, Page
from torch import Tensor

from pages.torch_compile.figures import CumulatedLine, crossings
from runner.analysis.compare.break_even import compute_break_even
from runner.errors import Skipped
from runner.measure.machine.device import Device
from runner.measure.timing.compilation import CompilerLog, gradient_error
from runner.measure.timing.step import ModelStep
from runner.measure.timing.timing import StepLimits, measure
from runner.models.transformer import Transformer
from runner.schema import StepRow
from runner.store.queries.compile import load_compile_costs
from runner.store.queries.selection import Selection
from runner.store.queries.steps import load_steps
from tests.browser import Site, drawn, opened, said
from tests.command import TINY, run, tiny
from tests.command import rows as read
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


# -------------------------------------------------------------------------------------------------------- measured rows


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real sweep of what is not compiled: eager, and CUDA graphs, which a CPU has not got."""
    db = tmp_path_factory.mktemp("compile") / "results.duckdb"
    words = ("--modes", "inference", "--backends", "eager,cuda-graphs", "--compile-cache", "empty")
    done = run("sweep", *TINY, *words, "--attention", "sdpa", "--warmup", "2", db=db)
    assert done.returncode == 0, done.stdout
    return db


@pytest.mark.soak
def test_a_cell_compiled_with_an_empty_cache_knows_both_times(tmp_path: Path) -> None:
    db, words = tmp_path / "results.duckdb", ("--modes", "inference", "--backends", "compiled-block")
    done = run("sweep", *TINY, *words, "--compile-cache", "empty", "--attention", "sdpa", "--warmup", "2", db=db)
    assert done.returncode == 0, done.stdout
    (row,) = read(db, "FROM steps")
    samples = read(db, f"FROM samples WHERE cell_id = '{row['cell_id']}' AND phase = 'step' ORDER BY step")
    assert (row["status"], row["compile_cache"]) == ("ok", "empty"), row["message"]
    assert row["compile_cold_seconds"] == row["compile_seconds"] > row["compile_warm_seconds"] > 0
    first, *others = (sample["duration_ms"] for sample in samples)
    assert row["compile_cold_seconds"] == pytest.approx((first - sorted(others[1:])[1]) / 1e3)
    assert len(samples) == 5, "compiling once more is no sample"
    assert {name: row[name] for name in COUNTED} == COUNTED


def test_only_what_is_compiled_has_a_cache_and_a_cost(swept: Path) -> None:
    (eager,) = read(swept, "FROM steps WHERE backend = 'eager'")
    assert eager["compile_cache"] == "shared"
    assert all(eager[name] is None for name in ("compile_seconds", "compile_cold_seconds", "graphs", "graph_breaks"))
    (graphs,) = read(swept, "FROM steps WHERE backend = 'cuda-graphs'")
    assert (graphs["status"], graphs["message"]) == ("skipped", "CUDA graphs need an NVIDIA GPU.")


def test_the_scaler_of_fp16_is_why_it_cannot_be_captured() -> None:
    from runner.measure.timing.cuda_graphs import require_capture

    with patch.object(Device, "__init__", lambda self, name: setattr(self, "type", name)):
        device = Device("cuda")
    require_capture(tiny(precision="fp16", mode="forward"), device)
    with pytest.raises(Skipped, match="gradient scaler"):
        require_capture(tiny(precision="fp16"), device)


def test_a_step_starts_again_where_it_began() -> None:
    """What runs before a capture must not count: weights, moments and step counters go back, in their memory."""
    step = ModelStep(tiny(), Device("cpu"))
    before = [parameter.clone() for parameter in step.model.parameters()]
    places = [parameter.data_ptr() for parameter in step.model.parameters()]
    step(lambda: None)
    assert step.loss is not None
    first = step.loss.item()
    step.restart()
    assert all(torch.equal(a, b) for a, b in zip(before, step.model.parameters(), strict=True))
    assert places == [parameter.data_ptr() for parameter in step.model.parameters()]
    step(lambda: None)
    assert step.loss.item() == first
    assert step.optimizer is not None
    assert {state["step"].item() for state in step.optimizer.state.values()} == {1.0}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # the compiler's own
def test_graph_breaks_and_recompiles_are_counted() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    log, sizes = CompilerLog(), iter([2, 2, 2, 3, 3])

    def broken(x: Tensor) -> Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    compiled = torch.compile(broken, backend="eager", dynamic=False)

    def step(mark: object) -> None:
        compiled(torch.ones(next(sizes)))
        mark()  # type: ignore[operator]

    def between(number: int) -> None:
        if number == 2:
            log.warmed_up()

    limits = StepLimits(warmup=2, min_steps=3, max_steps=3, seconds=1.0)
    steps = measure(step, Device("cpu"), phases=("forward",), limits=limits, between=between)
    found = log.values(steps)
    assert {name: found[name] for name in COUNTED} == {
        "graphs": 2, "graph_breaks": 1, "recompiles": 2, "compiler_fallback": False,
    }  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize(("precision", "rounding"), [("fp32", 1e-5), ("bf16", 0.05)])
def test_a_compiler_that_forgets_a_gradient_is_found_out(precision: str, rounding: float) -> None:
    """Its step is a faster one, and nothing else says why."""
    cell = tiny(precision=precision, layers=1)
    step = ModelStep(cell, Device("cpu"))

    def forgetful(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        def forward(*inputs: Tensor) -> object:
            return graph.forward(*(x.detach() if x.shape == (cell.d_ff, cell.d_model) else x for x in inputs))

        return forward

    errors = []
    for backend in ("aot_eager", forgetful):
        torch._dynamo.reset()
        step.run = torch.compile(step.model, backend=backend)
        errors.append(gradient_error(step.gradients))
    honest, forgot = errors
    assert honest is not None
    assert honest < rounding
    assert forgot == 1.0


def test_where_memory_does_not_suffice_for_both_the_difference_is_unknown() -> None:
    """The compiled pass fits and the eager one asks for a petabyte."""
    sizes = iter((1, 2**50))
    assert gradient_error(lambda: {"gain": torch.ones(next(sizes), dtype=torch.uint8)}) is None


# ------------------------------------------------------------------------------------------------------------ the model


@pytest.mark.soak
def test_compiled_under_autocast_products_are_joined_and_nothing_else_changes() -> None:
    """Four products a layer and the head instead of seven; the same numbers and gradients as the plain model."""
    cell = tiny(precision="bf16", layers=1)
    tokens = torch.randint(cell.shape.vocabulary, (2, cell.context))
    plain, joined = Transformer(cell), Transformer(cell)
    joined.load_state_dict(plain.state_dict())
    products: list[int] = []

    def counting(graph: torch.fx.GraphModule, _: object) -> object:
        modules = [module for module in graph.modules() if isinstance(module, torch.fx.GraphModule)]
        targets = [str(node.target) for module in modules for node in module.graph.nodes]
        products.append(sum("linear" in target for target in targets))
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(joined, backend=counting, fullgraph=True)
    compiled(tokens)
    with torch.autocast("cpu", torch.bfloat16):
        got, expected = compiled(tokens), plain(tokens)
    assert products == [7 * cell.shape.layers + 1, 4 * cell.shape.layers + 1]
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)
    got.float().square().mean().backward()
    expected.float().square().mean().backward()
    for a, b in zip(joined.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=5e-2, atol=2e-3)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("grad_mode", "checkpoint_blocks"), [(torch.no_grad, 0), (torch.inference_mode, 1), (torch.enable_grad, 1)]
)
def test_compiled_under_autocast_it_runs_in_every_mode(
    grad_mode: type[AbstractContextManager[None]], checkpoint_blocks: int
) -> None:
    """Whole, without a graph break: what is sampled from and what is checkpointed too."""
    cell = tiny(precision="bf16", layers=1, checkpoint_blocks=checkpoint_blocks)
    model, tokens = Transformer(cell), torch.randint(cell.shape.vocabulary, (2, cell.context))
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with grad_mode(), torch.autocast("cpu", torch.bfloat16):
        got, expected = compiled(tokens), model(tokens)
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)
    if got.requires_grad:
        got.float().square().mean().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


# ------------------------------------------------------------------------------------------------------------- the page


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three ways of compiling toy-64, one of them slower than eager, and one that failed."""
    of, cells = rows.run(), [rows.ok(rows.run(), rows.asked())]
    with patch.dict(rows.FASTER, SLOWER):
        cells = [rows.ok(of, rows.asked())]
        for backend, costs in COSTS.items():
            cache = "empty" if "compile_cold_seconds" in costs else "shared"
            made = rows.ok(of, rows.asked(backend=backend, compile_cache=cache))
            found = {**costs, **COUNTED, "compiled_gradient_error": ERRORS[backend]}
            cells.append(dataclasses.replace(made, step=dataclasses.replace(made.step, **found)))
    cells.append(rows.ok(of, rows.asked(backend="compiled")))  # the same question, with the shared cache: 8.5 s
    cells.append(rows.failed(of, rows.asked("toy-128", backend="compiled")))
    cells.append(rows.ok(of, rows.asked("toy-128")))
    return rows.store(tmp_path_factory.mktemp("compiled") / "results.duckdb", of, cells)


def test_steps_until_paid_worked_out_by_hand() -> None:
    assert compute_break_even(compile_seconds=30.0, baseline_ms=50.0, ratio=2.5) == pytest.approx(1000.0)
    assert compute_break_even(compile_seconds=30.0, baseline_ms=50.0, ratio=1.0) == float("inf")
    eager = CumulatedLine(name="eager", backend="eager", start_s=0.0, step_ms=50.0)
    faster = CumulatedLine(name="compiled", backend="compiled", start_s=30.0, step_ms=20.0)
    slower = CumulatedLine(name="slower", backend="compiled", start_s=30.0, step_ms=60.0)
    ((line, steps),) = crossings([eager, faster, slower])
    assert line.name == "compiled"
    assert steps == pytest.approx(1000.0)
    assert faster.seconds(1000) == eager.seconds(1000) == 50.0


def test_a_cell_compiled_both_ways_is_one_question(file: Path) -> None:
    """The page draws it once, with the shared cache, as the others were compiled; its cost knows all three times."""
    cells = [cell for cell in load_steps(file, Selection(mode="train")) if cell.cell.backend == "compiled"]
    assert [(cell.cell.d_model, cell.cell.compile_cache) for cell in cells if cell.status == "ok"] == [(64, "shared")]
    costs = {cost.cell.backend: cost for cost in load_compile_costs(file, Selection())}
    assert set(costs) == set(COSTS), "neither what failed nor what was not compiled"
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
    """The words beside a chart's points."""
    return sorted(text.strip() for trace in drawn(page, card) for text in trace["text"] if text)


def test_the_page_says_what_compiling_buys_and_when_it_is_paid_for(page: Page) -> None:
    words = said(page)
    assert "compiled makes the step 1.25× faster than eager" in words
    assert "significantly slower than eager" not in words, "one process each decides nothing"
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


def test_costs_and_steps_are_drawn_and_the_lines_cross_where_they_should(page: Page) -> None:
    assert "compiled by one thread, up to 14 cells at the same time, importing" in said(page)
    assert texts(page, "compile-seconds") == ["10.0", "2.00", "20.0", "4.00", "40.0"]
    assert texts(page, "paid-after") == ["1,530", "15,300", "9,160", "never"]
    lines = {trace["name"] for trace in drawn(page, "crossing")}
    assert {"eager", "compiled, cold", "compiled, warm"} <= lines, "the cell that gains most is shown first"
    assert texts(page, "crossing") == ["after 1,530 steps", "after 15,300 steps"]
