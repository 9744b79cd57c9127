"""What the time of one steady step is made of: a profiled pass, apart from the timed one.

    measurement = measure_kernels(job, report=print)

The step of the cell is timed without the profiler first, then profiled a few times in the same process. The profiled
step with the median duration is taken apart: its kernels, on a CPU its operators, by phase and named range. Times and
calls are that one step's, so that they add up. Limits: profiled time is longer than real time, and by how much is in
the row; FLOPs and bytes follow from shapes (`runner.analysis.costs.operations`) and go to the longest of an operator's
kernels; kernels of compiled code know their phase, but no range.
"""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from torch.profiler import ProfilerActivity, profile, record_function

from runner.errors import Skipped
from runner.job import Job, Measurement
from runner.measure.machine import precision
from runner.measure.machine.device import Device
from runner.measure.memory import limits
from runner.measure.profiling.rows import break_down
from runner.measure.profiling.trace import Trace, events_of
from runner.measure.timing.compilation import CompilerLog, is_compiled
from runner.measure.timing.step import ModelStep
from runner.measure.timing.timing import StepLimits, Steps, measure, time_step
from runner.models.attention import unavailable
from runner.models.ranges import is_under_nsys, listen_to_ranges
from runner.schema import PHASES, ProfileCell, StepCell, TraceRow
from runner.schema.titles import title

#: Profiled steps that count, an odd number, so that one of them is the median; one goes before them.
STEPS = 5
LIMITS = StepLimits(warmup=5, least=10, most=30, seconds=3.0, fewest=3)


@dataclass(frozen=True, kw_only=True)
class Passes:
    """The step without the profiler and with it: its median time (ms) by the host's clock, and what was recorded of
    the step that took it."""

    steps: Steps
    profiled_step_ms: float
    trace: Trace
    compiled: Mapping[str, object]
    build_seconds: float
    measure_seconds: float


def measure_kernels(job: Job, report: Callable[[str], None]) -> Measurement:
    """Times and profiles one cell. `report` is told what is being done.

    Raises Skipped where this machine cannot profile the cell; whatever torch raises goes through."""
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, ProfileCell)
    _check(cell, device)
    precision.apply(cell.precision, device)
    limits.reset_peaks(device)
    with _visible_kernels(cell, device):
        passes = _passes(cell, device, report=report)
    if device.type == "cuda" and not passes.trace.kernels:
        raise Skipped("PyTorch's profiler saw no kernel: CUPTI is missing, or the driver does not allow it.")
    rows, found = break_down(passes.trace, job=job)
    traced = TraceRow(
        run_id=job.run_id,
        cell_id=job.cell_id,
        origin="torch-profiler",
        title=title(cell),
        kernels=len(rows),
        kernel_ms=found["kernel_ms"],
        steps=1,
    )
    values = {**found, **_values(passes, busy_ms=found["busy_ms"], device=device)}
    return Measurement(values=values, details={"traces": [traced], "kernels": rows})


def _passes(cell: ProfileCell, device: Device, *, report: Callable[[str], None]) -> Passes:
    report("build")
    began = time.perf_counter()
    step = ModelStep(step_cell(cell), device)
    device.synchronize()
    built, compiler = time.perf_counter(), CompilerLog()
    try:
        steps = _unprofiled(step, device, compiler=compiler, report=report)
        report("profile")
        profiled_step_ms, trace = _profiled(step, device)
    except BaseException:
        report(step.phase or "profile")
        raise
    return Passes(
        steps=steps,
        profiled_step_ms=profiled_step_ms,
        trace=trace,
        compiled=compiler.values(steps) if is_compiled(cell.backend) else {},
        build_seconds=built - began,
        measure_seconds=time.perf_counter() - built,
    )


def _values(passes: Passes, *, busy_ms: float, device: Device) -> dict[str, object]:
    """Columns of the row. On CUDA a kernel takes as long with the profiler as without, and what the host adds is no
    part of the real step; on a CPU operators are slower too, and nobody waits for anybody."""
    profiled_ms, unprofiled_ms = passes.profiled_step_ms, passes.steps.summary.median
    busy_share = busy_ms / (profiled_ms if device.type == "cpu" else unprofiled_ms)
    return {
        "steps": STEPS,
        "unprofiled_step_ms": unprofiled_ms,
        "profiled_step_ms": profiled_ms,
        "overhead_share": profiled_ms / unprofiled_ms - 1,
        "busy_share": busy_share,
        "host_bound_share": None if device.type == "cpu" else max(1 - busy_share, 0.0),
        "graph_breaks": passes.compiled.get("graph_breaks"),
        "recompiles": passes.compiled.get("recompiles"),
        "build_seconds": passes.build_seconds,
        "measure_seconds": passes.measure_seconds,
    }


def step_cell(cell: ProfileCell) -> StepCell:
    """The step that is profiled."""
    return StepCell(**{name: getattr(cell, name) for name in ProfileCell.names()})


def _check(cell: ProfileCell, device: Device) -> None:
    reason = unavailable(cell.attention, device.type, dtype=precision.product_dtype(cell.precision))
    if device.type == "mps":
        reason = "PyTorch's profiler sees no kernels on MPS."
    if device.type == "cuda" and is_under_nsys():
        reason = "Under nsys PyTorch's profiler sees no kernels; nsys itself records those of the other experiments."
    if reason:
        raise Skipped(reason)


@contextmanager
def _visible_kernels(cell: ProfileCell, device: Device) -> Iterator[None]:
    """In here torch.compile makes loops that the profiler sees, also for a CPU; on CUDA it sees them anyway."""
    if device.type == "cpu" and is_compiled(cell.backend):
        import torch._inductor.config as inductor  # a second that no other cell need wait for

        with inductor.patch({"cpp.enable_kernel_profile": True}):
            yield
    else:
        yield


def _unprofiled(step: ModelStep, device: Device, *, compiler: CompilerLog, report: Callable[[str], None]) -> Steps:
    def between(number: int) -> None:
        step.between()
        if number in (0, LIMITS.warmup):
            compiler.warmed_up()

    return measure(step, device, phases=PHASES[step.cell.mode], limits=LIMITS, between=between, report=report)


def _profiled(step: ModelStep, device: Device) -> tuple[float, Trace]:
    """(the median of the profiled steps in ms, what was recorded of the step that took it). The first step pays for
    starting the profiler, and does not count."""
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
    times: list[float] = []
    gc.collect()
    gc.disable()
    try:
        with listen_to_ranges(record_function), profile(activities=activities, record_shapes=True) as profiler:
            for _ in range(1 + STEPS):
                step.between()
                times.append(time_step(step, device, phases=len(PHASES[step.cell.mode])).step_ms)
    finally:
        gc.enable()
    middle = median(times[1:])
    return middle, Trace(events_of(profiler, step=times.index(middle, 1)))
