"""torch.compile as an axis: what it is applied to, what it cost, and whether it did anything.

    run = compile_model(model, "compiled-block", device)

A compiled cell whose graphs were compiled again after the warm-up, or whose compiler gave up and ran eagerly, says so
in its row: a speedup of nothing is otherwise read as a fact about the model.
"""

import statistics
from collections.abc import Callable

import torch
from torch import Tensor
from torch._dynamo.utils import counters

from runner.errors import Skipped
from runner.measure.device import Device
from runner.measure.environment import cpp_compiler
from runner.measure.timing import Steps
from runner.models.transformer import Transformer
from runner.schema import Backend


def compile_model(model: Transformer, backend: Backend, device: Device) -> Callable[[Tensor], Tensor]:
    """The model as the backend runs it; compilation itself happens in the first step. Raises Skipped with the reason
    where the backend cannot work."""
    if backend == "eager":
        return model
    require_compiler()
    if backend == "compiled-reduce-overhead" and device.type != "cuda":
        raise Skipped("Mode reduce-overhead is CUDA graphs, which need an NVIDIA GPU.")
    if backend == "compiled-block":
        for block in model.blocks:
            block.compile()
        return model
    mode = {"compiled": "default"}.get(backend, backend.removeprefix("compiled-"))
    compiled: Callable[[Tensor], Tensor] = torch.compile(model, mode=mode)
    return compiled


def require_compiler() -> None:
    """Raises Skipped with the reason where nothing can be compiled."""
    if cpp_compiler() is None:
        raise Skipped("torch.compile needs a C++ compiler and Python's headers, and this machine has not got both.")


class CompilerLog:
    """What the compiler did in this process, by torch's own counters (torch._dynamo.utils.counters)."""

    def __init__(self) -> None:
        self.warm_graphs = 0

    def warmed_up(self) -> None:
        """Graphs compiled from now on are recompilations."""
        self.warm_graphs = counters["stats"]["unique_graphs"]

    def values(self, steps: Steps) -> dict[str, object]:
        """The row's columns. Without warm-up the first compilation falls among the measured steps, and how often
        graphs were compiled *again* cannot be told from it: None."""
        frames = counters["frames"]
        steady = [sample.step_ms for sample in steps.samples[max(steps.warmup, 1) :] or steps.samples]
        return {
            "compile_seconds": max(steps.samples[0].step_ms - statistics.median(steady), 0.0) / 1e3,
            "recompiles": counters["stats"]["unique_graphs"] - self.warm_graphs if steps.warmup else None,
            "compiler_fallback": frames["ok"] < frames["total"] or counters["stats"]["unique_graphs"] == 0,
        }
