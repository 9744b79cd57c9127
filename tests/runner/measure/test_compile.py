"""torch.compile: the columns of its rows, and the requirements of CUDA graphs."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from runner.errors import Skipped
from runner.measure.compilation import CompilerLog, gradient_error
from runner.measure.device import Device
from runner.measure.model_step import ModelStep, require_capture
from runner.measure.timing import StepLimits, measure
from runner.models.transformer import Transformer
from runner.store.read.selection import Selection
from runner.store.read.timed import load_steps
from tests.command import TINY, execute, run, run_apart, tiny
from tests.command import rows as read

COUNTED: dict[str, Any] = {"graphs": 1, "graph_breaks": 0, "recompiles": 0, "compiler_fallback": False}


@pytest.mark.soak
def test_a_cell_compiled_with_an_empty_cache_has_both_times(tmp_path: Path, db: Path) -> None:
    words = ("--modes", "inference", "--backends", "compiled-block", "--rounds", "2")
    env = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    cold = ("--compile-cache", "empty", "--attention", "sdpa", "--warmup", "2")
    run_apart("sweep", *TINY, *words, *cold, db=db, env=env, code=0)
    row, again = read(db, "FROM steps ORDER BY round")
    assert again["compile_cold_seconds"] is again["compile_warm_seconds"] is None
    assert again["compile_seconds"] < row["compile_seconds"] / 2, "the second round finds what the first one compiled"
    assert load_steps(db, Selection())[0].compile_seconds == row["compile_seconds"]
    assert load_steps(db, Selection())[0].compile_threads == min(32, len(os.sched_getaffinity(0)))
    samples = read(db, f"FROM samples WHERE cell_id = '{row['cell_id']}' AND phase = 'step' ORDER BY step")
    assert (row["status"], row["compile_cache"]) == ("ok", "empty"), row["message"]
    assert row["compile_cold_seconds"] == row["compile_seconds"] > row["compile_warm_seconds"] > 0
    first, *others = (sample["duration_ms"] for sample in samples)
    assert row["compile_cold_seconds"] == pytest.approx((first - sorted(others[1:])[1]) / 1e3)
    assert len(samples) == 5, "compiling again is not a sample"
    assert {name: row[name] for name in COUNTED} == COUNTED


FIRST_STEP = """
import sys
from torch._dynamo.utils import counters
from runner.measure.device import Device
from runner.measure.step import ModelStep
from runner.measure.timing import time_step
from tests.command import tiny

step = ModelStep(tiny(layers=1, precision=sys.argv[1], backend="compiled", attention="sdpa"), Device("cpu"))
step.between()
time_step(step, Device("cpu"), phases=4)
found = counters["aot_autograd"]
print(step.loss.item(), found["autograd_cache_hit"], found["autograd_cache_bypass"])
"""


def run_first_step(precision: str, folder: Path) -> tuple[float, bool]:
    """Returns the loss of a step compiled in a fresh process, and whether its graph came from the cache in `folder`."""
    env = {"TORCHINDUCTOR_CACHE_DIR": str(folder)}
    done = execute(sys.executable, "-c", FIRST_STEP, precision, env=env, code=0)
    loss, hits, bypassed = done.stdout.split()
    assert bypassed == "0", "a graph of our model was not kept"
    return float(loss), hits == "1"


@pytest.mark.soak
def test_a_second_process_takes_the_graph_of_a_step_from_the_cache_of_its_precision(tmp_path: Path) -> None:
    """Without what `compile_model` sets, PyTorch keeps no graph that has a gradient of its own, and PyTorch 2.11 runs
    the graph of bf16 for fp16."""
    loss, from_cache = run_first_step("bf16", tmp_path)
    assert not from_cache
    assert run_first_step("bf16", tmp_path) == (loss, True)
    _, from_cache = run_first_step("fp16", tmp_path)
    assert not from_cache, "fp16 ran what was compiled for bf16"


def test_only_compiled_cells_have_a_cache_and_compile_times(db: Path) -> None:
    """A CPU has no CUDA graphs."""
    words = ("--modes", "inference", "--backends", "eager,cuda-graphs", "--compile-cache", "empty")
    run("sweep", *TINY, *words, "--attention", "sdpa", "--warmup", "2", db=db, code=0)
    (eager,) = read(db, "FROM steps WHERE backend = 'eager'")
    assert eager["compile_cache"] == "shared"
    assert all(eager[name] is None for name in ("compile_seconds", "compile_cold_seconds", "graphs", "graph_breaks"))
    (graphs,) = read(db, "FROM steps WHERE backend = 'cuda-graphs'")
    assert (graphs["status"], graphs["message"]) == ("skipped", "CUDA graphs need an NVIDIA GPU.")


def test_fp16_cannot_be_captured_because_of_its_scaler() -> None:
    with patch.object(Device, "__init__", lambda self, name: setattr(self, "type", name)):
        device = Device("cuda")
    require_capture(tiny(precision="fp16", mode="forward"), device)
    with pytest.raises(Skipped, match="gradient scaler"):
        require_capture(tiny(precision="fp16"), device)


def test_a_step_is_reset_to_where_it_began() -> None:
    """Steps before a capture must not count: weights, moments and step counters are reset in place."""
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


@pytest.mark.soak
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
    found = log.values(measure(step, Device("cpu"), phases=("forward",), limits=limits, between=between))
    assert {name: found[name] for name in COUNTED} == {
        "graphs": 2, "graph_breaks": 1, "recompiles": 2, "compiler_fallback": False,
    }  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize(("precision", "rounding"), [("fp32", 1e-5), ("bf16", 0.05)])
def test_a_compiler_that_loses_a_gradient_is_detected(precision: str, rounding: float) -> None:
    """Such a step is faster, and nothing else shows why."""
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


def test_the_difference_is_unknown_without_enough_memory_for_both() -> None:
    """The compiled pass fits, and the eager one requests a petabyte."""
    sizes = iter((1, 2**50))
    assert gradient_error(lambda: {"gain": torch.ones(next(sizes), dtype=torch.uint8)}) is None


@pytest.mark.soak
def test_the_model_that_is_compiled_is_the_one_that_runs_eagerly() -> None:
    """A layer has seven products, beside the head, with and without autocast; the logits equal eager ones."""
    cell = tiny(precision="bf16", layers=1)
    tokens = torch.randint(cell.shape.vocabulary, (2, cell.context))
    model, products = Transformer(cell), list[int]()

    def counting(graph: torch.fx.GraphModule, _: object) -> object:
        modules = [module for module in graph.modules() if isinstance(module, torch.fx.GraphModule)]
        targets = [str(node.target) for module in modules for node in module.graph.nodes]
        products.append(sum("linear" in target for target in targets))
        return graph.forward

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=counting, fullgraph=True)
    compiled(tokens)
    with torch.autocast("cpu", torch.bfloat16):
        got, expected = compiled(tokens), model(tokens)
    assert products == [7 * cell.shape.layers + 1] * 2
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)
