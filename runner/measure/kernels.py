"""The kernels of one steady step, from a profiled pass apart from the timed one.

    measurement = measure_kernels(job, report=print)

The step is timed without the profiler first, then profiled a few times in the same process. The profiled step with the
median duration is broken down into its kernels (on a CPU its operators) by phase and named range. Times and calls are
those of that one step, so that they add up. Limits: a profiled step takes longer than a real one, and the row says by
how much; FLOPs and bytes follow from shapes (`runner.analysis.costs.operations`) and count for the longest of an
operator's kernels; kernels of compiled code have a phase, but no range.

The modules of an own model as named ranges, so that a profiler can tell to which of them a kernel belongs.

    with named_modules(step.workload): ...     # opens "module layers.*.mlp" around each call of such a module

Numbers in a path become a star, so that equal blocks are one range. The innermost module counts; what a module computes
between the calls of its own modules is its own.
"""

import gc
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from statistics import median
from typing import Any

from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from runner.errors import Skipped
from runner.job import Job, Measurement
from runner.measure import limits, precision
from runner.measure.compilation import CompilerLog
from runner.measure.device import Device
from runner.measure.model_step import ModelStep, is_compiled, require_attention
from runner.measure.timing import StepLimits, Steps, measure, time_step
from runner.measure.trace import Trace, break_down, events_of
from runner.models.ranges import MODULE_RANGE, is_under_nsys, listen_to_ranges, named_range
from runner.models.workload import Workload
from runner.schema import PHASES, ProfileCell, TraceRow
from runner.schema.titles import title

#: The profiled steps after a first one that does not count, of a step that is short and of one that is longer than
#: LONG_MS, whose times differ less; odd, so that one of them is the median.
STEPS, LONG_STEPS, LONG_MS = 5, 3, 200.0
LIMITS = StepLimits(warmup=3, min_steps=10, max_steps=30, seconds=2.0, min_slow_steps=3)


def measure_kernels(job: Job, report: Callable[[str], None]) -> Measurement:
    """Times and profiles one cell. `report` is called with each phase.

    Raises Skipped where this machine cannot profile the cell; errors of torch go through."""
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, ProfileCell)
    _check(cell, device)
    precision.apply(cell.precision, device)
    limits.reset_peaks(device)
    with _visible_kernels(cell, device):
        values, trace = _run_passes(cell, device, report=report)
    if device.type == "cuda" and not trace.kernels:
        raise Skipped("PyTorch's profiler saw no kernel: CUPTI is missing, or the driver does not allow it.")
    rows, sums = break_down(trace, job=job)
    # On CUDA only the host is slower under the profiler; on a CPU the operators are slower too.
    busy_share = sums["busy_ms"] / values["profiled_step_ms" if device.type == "cpu" else "unprofiled_step_ms"]
    host_bound_share = None if device.type == "cpu" else max(1 - busy_share, 0.0)
    row = TraceRow(
        run_id=job.run_id,
        cell_id=job.cell_id,
        origin="torch-profiler",
        title=title(cell),
        kernels=len(rows),
        kernel_ms=sums["kernel_ms"],
        steps=1,
    )
    values |= {**sums, "busy_share": busy_share, "host_bound_share": host_bound_share}
    return Measurement(values=values, details={"traces": [row], "kernels": rows})


def _run_passes(cell: ProfileCell, device: Device, *, report: Callable[[str], None]) -> tuple[dict[str, Any], Trace]:
    """Runs the step without the profiler and with it. Returns columns of the row, and the trace of the profiled step
    with the median time."""
    report("build")
    began = time.perf_counter()
    step = ModelStep(cell.step(), device)
    device.synchronize()
    built, compiler = time.perf_counter(), CompilerLog()
    try:
        steps = _time(step, device, compiler=compiler, report=report)
        report("profile")
        profiled = LONG_STEPS if steps.summary.median > LONG_MS else STEPS
        profiled_ms, trace = _profile(step, device, steps=profiled)
    except BaseException:
        report(step.phase or "profile")
        raise
    unprofiled_ms = steps.summary.median
    compiled = compiler.values(steps) if is_compiled(cell.backend) else {}
    return {
        "steps": profiled,
        "unprofiled_step_ms": unprofiled_ms,
        "profiled_step_ms": profiled_ms,
        "overhead_share": profiled_ms / unprofiled_ms - 1,
        "graph_breaks": compiled.get("graph_breaks"),
        "recompiles": compiled.get("recompiles"),
        "build_seconds": built - began,
        "measure_seconds": time.perf_counter() - built,
    }, trace


def _check(cell: ProfileCell, device: Device) -> None:
    if device.type == "mps":
        raise Skipped("PyTorch's profiler sees no kernels on MPS.")
    if device.type == "cuda" and is_under_nsys():
        seen = "nsys itself records those of the other experiments"
        raise Skipped(f"Under nsys PyTorch's profiler sees no kernels; {seen}.")
    require_attention(cell, device)


@contextmanager
def _visible_kernels(cell: ProfileCell, device: Device) -> Iterator[None]:
    """Lets torch.compile make kernels for a CPU that the profiler sees, as it does on CUDA anyway."""
    if device.type == "cpu" and is_compiled(cell.backend):
        import torch._inductor.config as inductor  # takes a second, which no other cell needs

        with inductor.patch({"cpp.enable_kernel_profile": True}):
            yield
    else:
        yield


def _time(step: ModelStep, device: Device, *, compiler: CompilerLog, report: Callable[[str], None]) -> Steps:
    def between(number: int) -> None:
        step.between()
        if number in (0, LIMITS.warmup):
            compiler.warmed_up()

    return measure(step, device, phases=PHASES[step.cell.mode], limits=LIMITS, between=between, report=report)


def _watch_modules(step: ModelStep) -> AbstractContextManager[None]:
    """Returns the context that makes an own model's modules ranges; ours has ranges in its code, and compiled code has
    none."""
    is_watched = step.cell.model_key is not None and not is_compiled(step.cell.backend)
    return named_modules(step.workload) if is_watched else nullcontext()


def _profile(step: ModelStep, device: Device, *, steps: int) -> tuple[float, Trace]:
    """Returns the median time of the profiled steps (ms) and the trace of the step that took it. The first step, which
    starts the profiler, does not count."""
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
    times: list[float] = []
    gc.collect()
    gc.disable()
    try:
        with (
            _watch_modules(step),
            listen_to_ranges(record_function),
            profile(activities=activities, record_shapes=True) as profiler,
        ):
            for _ in range(1 + steps):
                step.between()
                times.append(time_step(step, device, phases=len(PHASES[step.cell.mode])).step_ms)
    finally:
        gc.enable()
    middle = median(times[1:])
    return middle, Trace(events_of(profiler, step=times.index(middle, 1)))


@contextmanager
def named_modules(workload: Workload) -> Iterator[None]:
    """Makes every call of a module a range in here."""
    with ExitStack() as hooks:
        for path, module in workload.model.named_modules():
            if path:
                _watch(hooks, module, f"{MODULE_RANGE}{star_numbers(path)}")
        yield


def star_numbers(path: str) -> str:
    """Returns a path with a star for each number: `layers.*.mlp` for `layers.3.mlp`."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)", "*", path)


def _watch(hooks: ExitStack, module: nn.Module, name: str) -> None:
    running: list[AbstractContextManager[object]] = []

    def enter(module: nn.Module, arguments: Any) -> None:
        running.append(named_range(name))
        running[-1].__enter__()

    def leave(module: nn.Module, arguments: Any, output: Any) -> None:
        running.pop().__exit__(None, None, None)

    hooks.callback(module.register_forward_pre_hook(enter).remove)
    hooks.callback(module.register_forward_hook(leave, always_call=True).remove)
