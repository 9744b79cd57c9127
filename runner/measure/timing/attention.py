"""Measures single-head attention, forward and backward.

    measurement = measure_attention(job, report=print)

Timing comes first, and the traced step is the last of it; memory, saved bytes and errors are passes of their own. An
iteration is the implementation's forward pass, then the backward pass from a fixed random gradient. Gradients are
dropped between iterations, outside the clock.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from runner.analysis.costs import attention as accounting
from runner.job import Job, Measurement, RanOut
from runner.measure.machine import limits as memory
from runner.measure.machine import precision
from runner.measure.machine.allocations import CountedAllocations, LiveTensors, is_out_of_memory, parse_refusal
from runner.measure.machine.device import Device
from runner.measure.memory.saved import saved_tensors
from runner.measure.numerics.reference import TOLERANCE, reference, relative_error
from runner.measure.steps.attention import AttentionStep, is_compiled, require_runnable
from runner.measure.timing.clocks import Clocks
from runner.measure.timing.compilation import CompilerLog
from runner.measure.timing.loop import StepEnd
from runner.measure.timing.timing import StepLimits, Steps, measure
from runner.measure.timing.unwaited import measure_unwaited
from runner.schema import AttentionCell

SEED = 0
#: The longest sequence that is compared with float64 on a CPU, where comparing would take longer than measuring.
MAX_COMPARED_ON_CPU = 2048
#: The size of the buffer that empties the L2 cache, in multiples of the cache.
L2_SIZES = 4
#: The measured iterations after which the time limit may end a cell.
MIN_SLOW_STEPS = 3


def measure_attention(job: Job, report: Callable[[str], None]) -> Measurement:
    """Builds, warms up and measures one cell. `report` is called with each phase.

    Raises Skipped where this machine cannot run the cell, RanOut with the row's bytes where memory runs out; other
    errors of torch go through."""
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, AttentionCell)
    require_runnable(cell, device)
    precision.apply(cell.precision, device)
    report("build")
    began = time.perf_counter()
    step = AttentionStep(cell, device)
    device.synchronize()
    build_seconds = time.perf_counter() - began
    try:
        steps, clocks = _time(step, device, report)
    except Exception as error:
        report(step.phase)
        if not is_out_of_memory(error):
            raise
        message = f"{type(error).__name__}: {error}"
    else:
        report("memory")
        memory_values = _measure_memory(step, device)
        saved = saved_tensors(step.run, step.inputs, job=job)
        report("errors")
        values = {
            **_predict(cell, device),
            "build_seconds": build_seconds,
            **_rates(cell, steps),
            "unwaited_seconds": clocks.seconds,
            "bound": clocks.bound,
            "device_share": clocks.device_share,
            **steps.usage,
            **memory_values,
            "saved_bytes": sum(row.storage_bytes for row in saved),
            **_errors(step, device),
        }
        details: dict[str, Sequence[object]] = {
            "timings": steps.timings(job.run_id, job.cell_id, clocks=clocks),
            "samples": steps.rows(job.run_id, job.cell_id),
            "saved_tensors": saved,
        }
        return Measurement(values=values, details=details)
    # Here the error is gone, and with it the tensors that its traceback kept alive.
    raise RanOut(message, values={**_predict(cell, device), **_out_of_memory_values(step, message, job=job)})


def _out_of_memory_values(step: AttentionStep, message: str, *, job: Job) -> Mapping[str, int]:
    """Returns the bytes requested, in use and on the device when an iteration ran out of memory. A CPU's allocator
    names only the first, so the iteration runs once more there, to count what is alive when it fails again."""
    values = parse_refusal(message)
    if job.device == "cpu":
        step.drop_gradients()
        values["in_use_bytes"] = _count_in_use(step)
        if job.limit_bytes is not None:
            values["device_bytes"] = job.limit_bytes
    return values


def _count_in_use(step: AttentionStep) -> int:
    live = LiveTensors(step.held_bytes)
    try:
        with live:
            step(lambda: None)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    return live.in_use_bytes


def _time(step: AttentionStep, device: Device, report: Callable[[str], None]) -> tuple[Steps, Clocks]:
    """Times the iterations that are waited for, and those that are not. The buffer that empties the cache lives no
    longer than this, so that no peak holds it."""
    cell, flush = step.cell, None
    if cell.cache == "cold":  # overwriting a buffer several times the size of the L2 cache empties the cache
        size = torch.cuda.get_device_properties(device.torch).L2_cache_size * L2_SIZES
        flush = torch.empty(size, dtype=torch.uint8, device=device.torch)

    def between(number: int) -> None:
        step.drop_gradients()
        if flush is not None:
            flush.zero_()

    limits = StepLimits.of(cell, min_slow_steps=min(MIN_SLOW_STEPS, cell.min_steps))
    steps = measure(step, device, phases=("forward", "backward"), limits=limits, between=between, report=report)
    ends: StepEnd = "next step" if flush is None else "last phase"
    return steps, measure_unwaited(step, device, steps=steps, between=between, ends=ends)


def _measure_memory(step: AttentionStep, device: Device) -> dict[str, int | None]:
    """Returns the live bytes between the passes, and the peaks, of one more iteration."""
    step.drop_gradients()
    if device.type == "cuda":
        between: list[int] = []
        memory.reset_peaks(device)
        step(lambda: between.append(torch.cuda.memory_allocated(device.torch)))
        peaks = memory.peaks(device)
        names = ("peak_allocated_bytes", "peak_reserved_bytes")
        return {"before_backward_bytes": between[0], **{name: peaks[name] for name in names}}
    if device.type != "cpu":
        return {}
    with CountedAllocations(step.held_bytes) as counted:
        step(counted.mark)
    return {"before_backward_bytes": counted.at_marks[0], "peak_allocated_bytes": counted.peak_bytes}


def _errors(step: AttentionStep, device: Device) -> dict[str, float | None]:
    """Returns the errors against float64; nothing where comparing would take too long."""
    cell = step.cell
    if device.type != "cuda" and (device.type != "cpu" or cell.seq_len > MAX_COMPARED_ON_CPU):
        return {}
    return {**compute_errors(step), "tolerance": TOLERANCE[cell.precision]}


def compute_errors(step: AttentionStep) -> dict[str, float]:
    """Returns the relative errors of the output and of the worst gradient of one iteration."""
    step.drop_gradients()
    output = step.run(*step.inputs)
    output.backward(step.grad)  # type: ignore[no-untyped-call]
    expected = reference(*step.inputs, step.grad, causal=step.cell.causal)
    gradients = []
    for tensor, gradient in zip(step.inputs, expected[1:], strict=True):
        assert tensor.grad is not None
        gradients.append(relative_error(tensor.grad, gradient))
    return {"output_error": relative_error(output, expected.output), "gradient_error": max(gradients)}


def _predict(cell: AttentionCell, device: Device) -> dict[str, int]:
    """Returns the columns that follow from the cell alone."""
    kind: Any = device.type
    return {
        "forward_flops": accounting.forward_flops(cell),
        "tensor_bytes": accounting.square_bytes(cell),
        "predicted_saved_bytes": accounting.saved_bytes(cell, device=kind),
    }


def _rates(cell: AttentionCell, steps: Steps) -> Mapping[str, object]:
    forward, backward = (
        statistics.median(duration for duration, _ in steps.series(phase)[steps.warmup :]) / 1e3
        for phase in steps.phases
    )
    return {
        "steps": len(steps.measured),
        "stopped_by": steps.stopped_by,
        "forward_flops_per_s": accounting.forward_flops(cell) / forward,
        "backward_flops_per_s": accounting.backward_flops(cell) / backward,
        "forward_bytes_per_s": accounting.forward_bytes(cell) / forward,
        "warmup_seconds": steps.warmup_seconds,
        "measure_seconds": steps.measure_seconds,
        "compile_seconds": CompilerLog().values(steps)["compile_seconds"] if is_compiled(cell) else None,
    }
