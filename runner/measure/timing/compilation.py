"""torch.compile as an axis: compiling a model, the time that it takes, and whether it worked.

    with compiler_cache(cell.compile_cache):
        run = compile_model(workload, "compiled-block", device)

A row says if graphs were compiled again after the warm-up, or if the compiler fell back to eager, because either would
pass for a missing speedup. It also has the difference between compiled and eager gradients, because a step that leaves
out work is faster, too. Compile times are those of one thread (`runner.engines.environment`), without the seconds that
importing the compiler takes.
"""

import hashlib
import math
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import einops
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from runner.errors import Skipped
from runner.job import Compiled
from runner.measure.machine.device import Device
from runner.measure.machine.environment import cpp_compiler
from runner.measure.memory.allocations import is_out_of_memory
from runner.measure.timing.timing import Step, Steps, time_step
from runner.models import transformer
from runner.models.workload import Workload
from runner.schema import Backend, CompileCache, Precision

#: Gradients of two passes that differ by less are those of the same computation.
SAME = 1e-3
#: Modes of torch.compile that record CUDA graphs, where there is CUDA.
GRAPHED = ("compiled-reduce-overhead", "compiled-max-autotune")


def compile_model(workload: Workload, backend: Backend, device: Device, *, precision: Precision) -> Callable[..., Any]:
    """Returns the model as the backend runs it; compilation itself happens in the first step. Raises Skipped where the
    backend cannot work."""
    model: Callable[..., Any] = workload.model
    if not is_compiled(backend):
        return model
    require_compiler()
    if backend == "compiled-reduce-overhead" and device.type != "cuda":
        raise Skipped("Mode reduce-overhead is CUDA graphs, which need an NVIDIA GPU.")
    import torch._inductor.compile_fx  # so that the first step does not count it as compiling

    _take_whole(transformer.WHOLE_FUNCTIONS, precision)
    if backend == "compiled-block":
        if not workload.blocks:
            raise Skipped("No block of this model repeats, so that there is none to compile alone.")
        for path in workload.blocks:
            workload.model.get_submodule(path).compile()
        return model
    mode = {"compiled": "default"}.get(backend, backend.removeprefix("compiled-"))
    compiled: Callable[..., Any] = torch.compile(model, mode=mode)
    return compiled


def _take_whole(functions: Iterable[Callable[..., Any]], precision: Precision) -> None:
    """Makes the compiler take these functions as one node of its graph each, and use graphs in its cache only where
    the source of the model and the precision are the same.

    PyTorch 2.11 leaves autocast's dtype out of the key: a step in fp16 would run what was compiled for bf16."""
    from torch._inductor import config

    key = " ".join((_hash_models(), einops.__version__, precision))
    for function in functions:
        torch.compiler.allow_in_graph(function)  # type: ignore[no-untyped-call]
    config.unsafe_marked_cacheable_functions = {
        f"{function.__module__}.{function.__name__}": key for function in functions
    }


@cache
def _hash_models() -> str:
    """Returns a hash of the source that holds the functions."""
    return hashlib.sha256(Path(transformer.__file__).read_bytes()).hexdigest()


def is_compiled(backend: Backend) -> bool:
    """Returns whether the backend uses torch.compile."""
    return backend.startswith("compiled")


def require_compiler() -> None:
    """Raises Skipped where nothing can be compiled."""
    if cpp_compiler() is None:
        raise Skipped("torch.compile needs a C++ compiler and Python's headers, and this machine has not got both.")


@contextmanager
def compiler_cache(cache: CompileCache) -> Iterator[None]:
    """Makes the compiler and Triton use this cache; an empty one is deleted afterwards. Must be entered before anything
    is compiled in this process."""
    if cache == "shared":
        yield
        return
    with (
        tempfile.TemporaryDirectory(prefix="stepscope-compiler-", ignore_cleanup_errors=True) as folder,
        cache_in(Path(folder)),
    ):
        yield


@contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    """Makes the compiler and Triton keep their work in this folder, and use what they find there."""
    before = dict(os.environ)
    os.environ |= {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton")}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


class CompilerLog:
    """The compiler's work in this process, by torch's own counters (torch._dynamo.utils.counters)."""

    def __init__(self) -> None:
        self.warm_graphs = self.warm_breaks = 0

    def warmed_up(self) -> None:
        """Counts graphs that are compiled from now on as recompilations."""
        self.warm_graphs, self.warm_breaks = counters["stats"]["unique_graphs"], _breaks()

    def values(self, steps: Steps) -> dict[str, object]:
        """Returns the row's columns. Without warm-up the first compilation is among the measured steps and cannot be
        told from recompilations, whose number is then None."""
        frames, graphs = counters["frames"], counters["stats"]["unique_graphs"]
        return {
            "compile_seconds": _beyond(steps.samples[0].step_ms, steady_ms(steps)),
            "graphs": self.warm_graphs if steps.warmup else None,
            "graph_breaks": self.warm_breaks if steps.warmup else _breaks(),
            "recompiles": graphs - self.warm_graphs if steps.warmup else None,
            "compiler_fallback": frames["ok"] < frames["total"] or graphs == 0,
        }


def gradient_error(gradients: Callable[[], Mapping[str, Tensor]], *, is_random: bool = False) -> float | None:
    """Returns the largest ‖compiled − eager‖ / ‖eager‖ of one parameter's gradient. `gradients` runs one compiled pass
    and returns them by parameter. None where it is no number, or memory does not suffice for both; and of a model that
    may draw random numbers (`is_random`), where two eager passes differ, too."""
    try:
        compiled = {name: gradient.clone() for name, gradient in gradients().items()}
        with torch.compiler.set_stance("force_eager"):
            eager = {name: gradient.clone() for name, gradient in gradients().items()}
            if is_random and _largest_error(gradients(), eager) > SAME:
                return None
        error = _largest_error(compiled, eager)
    except Exception as failure:
        if not is_out_of_memory(failure):
            raise
        return None
    return error if math.isfinite(error) else None


def _largest_error(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Returns the largest relative error of one parameter's gradient; parameters without a gradient are left out."""
    known = {name: tensor for name, tensor in expected.items() if tensor.any()}
    errors = [((actual[name] - tensor).norm() / tensor.norm()).item() for name, tensor in known.items()]
    return math.inf if any(math.isnan(error) for error in errors) else max(errors, default=0.0)


def _breaks() -> int:
    """Returns the number of places where the compiler split a graph; a graph compiled again counts again."""
    return sum(counters["graph_break"].values())


def steady_ms(steps: Steps) -> float:
    """Returns the median step (ms) once everything is compiled."""
    steady = [sample.step_ms for sample in steps.samples[max(steps.warmup, 1) :] or steps.samples]
    return statistics.median(steady)


def cold_and_warm(step: Step, device: Device, *, steps: Steps, between: Callable[[], None]) -> dict[str, object]:
    """Returns the compile seconds of the first step, if nothing of it was in the cache, and of one more step with the
    cache that the first one filled. Must be called last, because it drops everything compiled in this process."""
    from torch._inductor.utils import clear_caches

    hits, steady = count_hits(), steady_ms(steps)
    torch.compiler.reset()
    clear_caches()  # code loaded from the cache, which reset() keeps and a new process would load
    between()
    again = time_step(step, device, phases=len(steps.phases)).step_ms
    return {
        "compile_cold_seconds": None if hits else _beyond(steps.samples[0].step_ms, steady),
        "compile_warm_seconds": _beyond(again, steady),
    }


def compiled_ahead(compiled: Compiled, *, steps: Steps) -> dict[str, object]:
    """Returns the same columns for a cell that was compiled ahead: its first step here was one with a filled cache."""
    steady = steady_ms(steps)
    cold = _beyond(compiled.first_ms, steady)
    return {
        "compile_seconds": cold,
        "compile_cold_seconds": cold if compiled.is_cold else None,
        "compile_warm_seconds": _beyond(steps.samples[0].step_ms, steady),
        "compiled_at_once": compiled.at_once,
    }


def count_hits() -> int:
    """Returns how many graphs this process has taken from the compiler's cache."""
    return counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]


def _beyond(first_ms: float, steady_ms: float) -> float:
    """Returns how much longer a first step took than a steady one (s)."""
    return max(first_ms - steady_ms, 0.0) / 1e3
