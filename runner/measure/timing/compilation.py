"""torch.compile as an axis: what it is applied to, what it cost, and whether it did anything.

    with compiler_cache(cell.compile_cache):
        run = compile_model(model, "compiled-block", device)

A compiled cell whose graphs were compiled again after the warm-up, or whose compiler gave up and ran eagerly, says so
in its row: a speedup of nothing is otherwise read as a fact about the model. So does one whose gradients are not those
of the same pass uncompiled: a step that leaves work out is faster, too. Compile times are those of one thread
(`runner.engines.local.ENVIRONMENT`), without the second that importing the compiler takes.
"""

import math
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch._dynamo.utils import counters

from runner.errors import Skipped
from runner.measure.machine.device import Device
from runner.measure.machine.environment import cpp_compiler
from runner.measure.memory.allocations import is_out_of_memory
from runner.measure.timing.timing import Step, Steps, time_step
from runner.models.transformer import Transformer
from runner.schema import Backend, CompileCache

#: Modes of torch.compile that record CUDA graphs, where there is CUDA.
GRAPHED = ("compiled-reduce-overhead", "compiled-max-autotune")


def compile_model(model: Transformer, backend: Backend, device: Device) -> Callable[[Tensor], Tensor]:
    """The model as the backend runs it; compilation itself happens in the first step. Raises Skipped with the reason
    where the backend cannot work."""
    if not is_compiled(backend):
        return model
    require_compiler()
    if backend == "compiled-reduce-overhead" and device.type != "cuda":
        raise Skipped("Mode reduce-overhead is CUDA graphs, which need an NVIDIA GPU.")
    import torch._inductor.compile_fx  # so that the first step does not count it as compiling

    if backend == "compiled-block":
        for block in model.blocks:
            block.compile()
        return model
    mode = {"compiled": "default"}.get(backend, backend.removeprefix("compiled-"))
    compiled: Callable[[Tensor], Tensor] = torch.compile(model, mode=mode)
    return compiled


def is_compiled(backend: Backend) -> bool:
    """Whether torch.compile has a part in it."""
    return backend.startswith("compiled")


def require_compiler() -> None:
    """Raises Skipped with the reason where nothing can be compiled."""
    if cpp_compiler() is None:
        raise Skipped("torch.compile needs a C++ compiler and Python's headers, and this machine has not got both.")


@contextmanager
def compiler_cache(asked: CompileCache) -> Iterator[None]:
    """In here the compiler keeps its files, and Triton its own, in the cache asked for; an empty one goes afterwards.
    To be entered before anything is compiled in this process."""
    if asked == "shared":
        yield
        return
    with tempfile.TemporaryDirectory(prefix="stepscope-compiler-", ignore_cleanup_errors=True) as folder:
        before = dict(os.environ)
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": os.path.join(folder, "triton")}
        try:
            yield
        finally:
            os.environ.clear()
            os.environ |= before


class CompilerLog:
    """What the compiler did in this process, by torch's own counters (torch._dynamo.utils.counters)."""

    def __init__(self) -> None:
        self.warm_graphs = self.warm_breaks = 0

    def warmed_up(self) -> None:
        """Graphs compiled from now on are recompilations."""
        self.warm_graphs, self.warm_breaks = counters["stats"]["unique_graphs"], _breaks()

    def values(self, steps: Steps) -> dict[str, object]:
        """The row's columns. Without warm-up the first compilation falls among the measured steps, and how often
        graphs were compiled *again* cannot be told from it: None."""
        frames, graphs = counters["frames"], counters["stats"]["unique_graphs"]
        return {
            "compile_seconds": _beyond(steps.samples[0].step_ms, steady_ms(steps)),
            "graphs": self.warm_graphs if steps.warmup else None,
            "graph_breaks": self.warm_breaks if steps.warmup else _breaks(),
            "recompiles": graphs - self.warm_graphs if steps.warmup else None,
            "compiler_fallback": frames["ok"] < frames["total"] or graphs == 0,
        }


def gradient_error(gradients: Callable[[], Mapping[str, Tensor]]) -> float | None:
    """The largest relative difference, ‖compiled − eager‖ / ‖eager‖, of one parameter's gradient. `gradients` makes one
    compiled pass and gives them by parameter. None where that is no number, or memory does not suffice for both."""
    try:
        compiled = {name: gradient.clone() for name, gradient in gradients().items()}
        with torch.compiler.set_stance("force_eager"):
            eager = gradients()
        errors = [((compiled[name] - expected).norm() / expected.norm()).item() for name, expected in eager.items()]
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None
    return max(errors) if all(math.isfinite(error) for error in errors) else None


def _breaks() -> int:
    """Places where the compiler split a graph; those of a graph compiled again count again."""
    return sum(counters["graph_break"].values())


def steady_ms(steps: Steps) -> float:
    """The median step of a process that has nothing left to compile."""
    steady = [sample.step_ms for sample in steps.samples[max(steps.warmup, 1) :] or steps.samples]
    return statistics.median(steady)


def cold_and_warm(step: Step, device: Device, *, steps: Steps, between: Callable[[], None]) -> dict[str, object]:
    """Compile seconds of the first step, if nothing of it was in the cache, and of one more with what that step left
    there. Forgets everything compiled in this process and runs the step again: to be called after all else."""
    found = counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]
    steady = steady_ms(steps)
    torch.compiler.reset()
    _forget_loaded_code()
    between()
    again = time_step(step, device, phases=len(steps.phases)).step_ms
    return {
        "compile_cold_seconds": None if found else _beyond(steps.samples[0].step_ms, steady),
        "compile_warm_seconds": _beyond(again, steady),
    }


def _forget_loaded_code() -> None:
    """What torch.compiler.reset leaves: code of this process that was loaded from the cache already. A new process, in
    which a warm cache is worth something, has to load it."""
    from torch._inductor.utils import clear_caches

    clear_caches()


def _beyond(first_ms: float, steady_ms: float) -> float:
    """Seconds that a first step took longer than a steady one."""
    return max(first_ms - steady_ms, 0.0) / 1e3
