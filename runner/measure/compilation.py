"""How long torch.compile took to compile a step, and whether it worked.

    compiler = CompilerLog()
    compiler.warmed_up()                # after the warm-up steps
    compiler.values(steps)              # compile_seconds, graphs, graph_breaks, recompiles, compiler_fallback

A row says if graphs were compiled again after the warm-up, or if the compiler fell back to eager, because either would
pass for a missing speedup. It also has the difference between compiled and eager gradients, because a step that leaves
out work is faster, too. The compiler builds kernels in parallel, as it does for everybody; compile times are without
the seconds that importing it takes.
"""

import math
import statistics
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch._dynamo.utils import counters

from runner.measure.device import Device
from runner.measure.limits import is_out_of_memory
from runner.measure.model_step import Step
from runner.measure.timing import Steps, time_step

#: Gradients of two passes that differ by less are those of the same computation.
SAME = 1e-3


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
            **compile_values(steps),
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


def compile_values(steps: Steps) -> dict[str, object]:
    """Returns how long compiling took, and how many kernels the compiler could build at once."""
    import torch._inductor.config

    return {
        "compile_seconds": _beyond(steps.samples[0].step_ms, steady_ms(steps)),
        "compile_threads": torch._inductor.config.compile_threads,
    }


def steady_ms(steps: Steps) -> float:
    """Returns the median step (ms) once everything is compiled."""
    return statistics.median(sample.step_ms for sample in steps.samples[max(steps.warmup, 1) :] or steps.samples)


def cold_and_warm(step: Step, device: Device, *, steps: Steps, between: Callable[[], None]) -> dict[str, object]:
    """Returns the compile seconds of the first step, if nothing of it was in the cache, and of one more step with the
    cache that the first one filled. Must be called last, because it drops everything compiled in this process."""
    from torch._inductor.utils import clear_caches

    hits = counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]
    steady = steady_ms(steps)
    torch.compiler.reset()
    clear_caches()  # code loaded from the cache, which reset() keeps and a new process would load
    between()
    again = time_step(step, device, phases=len(steps.phases)).step_ms
    return {
        "compile_cold_seconds": None if hits else _beyond(steps.samples[0].step_ms, steady),
        "compile_warm_seconds": _beyond(again, steady),
    }


def _beyond(first_ms: float, steady_ms: float) -> float:
    """Returns how much longer a first step took than a steady one (s)."""
    return max(first_ms - steady_ms, 0.0) / 1e3
