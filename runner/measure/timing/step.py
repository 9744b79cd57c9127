"""Measures one real step of a Transformer, phase by phase.

    measurement = measure_step(job, report=print)

The step is that of a training loop (`runner.measure.steps.model`). Warm-up steps are the same as timed ones.
"""

import time
from collections.abc import Callable, Sequence

from runner.job import Job, Measurement
from runner.measure.machine import limits, precision
from runner.measure.machine.device import Device
from runner.measure.machine.usage import GROWTH_STEPS, OtherProcesses, cpu_values, growth_per_step, read_memory
from runner.measure.steps.compiling import cache_in, compiler_cache, is_compiled
from runner.measure.steps.model import ModelStep, require_attention
from runner.measure.timing.compilation import CompilerLog, cold_and_warm, compiled_ahead, count_hits, gradient_error
from runner.measure.timing.rates import find_step_flops, rate_values
from runner.measure.timing.timing import StepLimits, Steps, measure
from runner.measure.timing.unwaited import measure_unwaited
from runner.models.ranges import listen_to_ranges, nsys_listener
from runner.schema import PHASES, StepCell


def measure_step(job: Job, report: Callable[[str], None]) -> Measurement:
    """Builds, warms up and measures one cell. `report` is called with each phase.

    Raises Skipped where this machine cannot run the cell; errors of torch go through."""
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, StepCell)
    require_attention(cell, device)
    precision.apply(cell.precision, device)
    with cache_in(job.compiled.folder) if job.compiled else compiler_cache(cell.compile_cache):
        return _measure(job, cell, device, report=report)


def _measure(job: Job, cell: StepCell, device: Device, *, report: Callable[[str], None]) -> Measurement:
    report("build")
    began = time.perf_counter()
    limits.reset_peaks(device)
    step = ModelStep(cell, device)
    device.synchronize()
    build_seconds = time.perf_counter() - began
    compiler, others = CompilerLog(), OtherProcesses()

    held = dict[int, int]()

    def between(number: int) -> None:
        step.between()
        if number in (0, cell.warmup_steps):
            compiler.warmed_up()
        if (measured := number - cell.warmup_steps) in GROWTH_STEPS:
            held[measured] = read_memory(device.torch)

    try:
        with listen_to_ranges(nsys_listener(device.type)):
            phases, bounds = PHASES[cell.mode], StepLimits.of(cell)
            steps = measure(step, device, phases=phases, limits=bounds, between=between, report=report)
        step.between()
        held[len(steps.measured)] = read_memory(device.torch)
        values = {  # of the measured steps, before others follow
            "parameters": sum(parameter.numel() for parameter in step.model.parameters()),
            "build_seconds": build_seconds,
            "loss": None if step.loss is None else step.loss.item(),
            "logits_dtype": step.logits_dtype,
            "matmul_precision": precision.read_back(device),
            "memory_growth_bytes": growth_per_step(held),
            **(cpu_values(others) if device.type == "cpu" else {}),
            **limits.peaks(device),
            **(compiler.values(steps) if is_compiled(cell.backend) else {}),
        }
        clocks = measure_unwaited(step, device, steps=steps, between=between)
    except BaseException:
        report(step.phase)
        raise
    flops = find_step_flops(job, cell, step.workload)
    values |= rate_values(steps, flops, job=job, clocks=clocks)
    details: dict[str, Sequence[object]] = {
        "timings": steps.timings(job.run_id, job.cell_id, clocks=clocks),
        "samples": steps.rows(job.run_id, job.cell_id),
    }
    if is_compiled(cell.backend):
        values |= _check_compiled(step, job, device, steps=steps, report=report)
    return Measurement(values=values, details=details)


def _check_compiled(
    step: ModelStep, job: Job, device: Device, *, steps: Steps, report: Callable[[str], None]
) -> dict[str, object]:
    """Compares the gradients with eager ones and, for a cell with an empty cache that was not compiled ahead, compiles
    once more."""
    cell, values = step.cell, dict[str, object]()
    if job.compiled and count_hits():
        values |= compiled_ahead(job.compiled, steps=steps)
    if cell.mode in ("backward", "train"):
        report("compare with eager")
        step.restart()
        values["compiled_gradient_error"] = gradient_error(step.gradients, is_random=cell.model_key is not None)
    if cell.compile_cache == "empty" and not values.get("compiled_at_once"):
        report("compile again")  # which takes seconds, and CUPTI makes its launches slower by microseconds
        values |= cold_and_warm(step, device, steps=steps, between=step.between)
    return values
