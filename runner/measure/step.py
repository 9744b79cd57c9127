"""Measures one real step of a Transformer, phase by phase.

The step is that of a training loop (`runner.measure.model_step`). Warm-up steps are the same as timed ones.

From its times and its operations follow throughput, operations a second, and the share of the device's peak. Operations
are those of our formulas; of an own model, those that PyTorch counts. For that the model is built once more on the meta
device, where tensors have shapes and no numbers, so that counting costs no memory. A model that looks at its numbers,
as a mixture of experts does, cannot run there. The counter knows matrix products, convolutions and fused attention
(torch.utils.flop_counter); like our formulas it counts a multiply and an add as two, and the square of scores whole.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode as _Counter

from runner.analysis.costs import hardware
from runner.analysis.costs import steps as costs
from runner.job import Job, Measurement
from runner.measure import limits, precision
from runner.measure.compilation import CompilerLog, cold_and_warm, gradient_error
from runner.measure.device import Device
from runner.measure.device_time import measure_unwaited
from runner.measure.limits import GROWTH_STEPS, OtherProcesses, growth_per_step, read_memory
from runner.measure.model_step import ModelStep, compiler_cache, is_compiled, require_attention
from runner.measure.timing import Clocks, StepLimits, Steps, interval_share, measure
from runner.models.given import own_workload
from runner.models.ranges import is_under_nsys, listen_to_ranges
from runner.models.workload import Workload
from runner.schema import PHASES, FlopsSource, StepCell
from runner.schema.own import PassFlops


def measure_step(job: Job, report: Callable[[str], None]) -> Measurement:
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, StepCell)
    require_attention(cell, device)
    precision.apply(cell.precision, device)
    with compiler_cache(cell.compile_cache):
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
        # Where `nsys profile` watches this process, it is told the ranges.
        is_watched = device.type == "cuda" and is_under_nsys()
        with listen_to_ranges(torch.cuda.nvtx.range if is_watched else None):
            phases, bounds = PHASES[cell.mode], StepLimits.of(cell)
            steps = measure(step, device, phases=phases, limits=bounds, between=between, report=report)
        step.between()
        held[len(steps.measured)] = read_memory(device.torch)
        values: dict[str, object] = {  # of the measured steps, before others follow
            "parameters": sum(parameter.numel() for parameter in step.model.parameters()),
            "build_seconds": build_seconds,
            "loss": None if step.loss is None else step.loss.item(),
            "logits_dtype": step.logits_dtype,
            "matmul_precision": precision.read_back(device),
            "memory_growth_bytes": growth_per_step(held),
            **limits.peaks(device),
            **(compiler.values(steps) if is_compiled(cell.backend) else {}),
        }
        if device.type == "cpu":  # what explains differences between rows of the same cell
            values |= {"threads": torch.get_num_threads(), "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY")}
            values |= {"cpu_capability": torch.backends.cpu.get_cpu_capability(), "other_cpu_share": others.share()}
        clocks = measure_unwaited(step, device, steps=steps, between=between)
    except BaseException:
        report(step.phase)
        raise
    values |= rate_values(steps, job, cell, step.workload, clocks=clocks)
    details: dict[str, Sequence[object]] = {
        "timings": steps.timings(job.run_id, job.cell_id, clocks=clocks),
        "samples": steps.rows(job.run_id, job.cell_id),
    }
    if is_compiled(cell.backend) and cell.mode in ("backward", "train"):
        report("compare with eager")
        step.restart()
        values["compiled_gradient_error"] = gradient_error(step.gradients, is_random=cell.model_key is not None)
    if is_compiled(cell.backend) and cell.compile_cache == "empty":
        report("compile again")  # which takes seconds, and CUPTI makes its launches slower by microseconds
        values |= cold_and_warm(step, device, steps=steps, between=step.between)
    return Measurement(values=values, details=details)


def rate_values(steps: Steps, job: Job, cell: StepCell, workload: Workload, *, clocks: Clocks) -> dict[str, object]:
    """Returns what follows from the times, by column of the row. Rates are those of a loop, where that was timed."""
    # The operations of the step, and those of them that the model needs, without what a checkpoint repeats.
    flops: int | None = None
    of_model: int | None = None
    if cell.model_key is None:
        flops = costs.step_flops(cell)
        of_model = flops - costs.recomputed_flops(cell)
    else:
        model = job.flops or count_cell(replace(cell, checkpoint_blocks=0), None)
        whole = count_cell(cell, workload) if cell.checkpoint_blocks or model is None else model
        if whole is not None:
            flops, of_model = whole.of_mode(cell.mode), (model or whole).of_mode(cell.mode)
    source: FlopsSource = "formula" if cell.model_key is None else "counter"
    seconds = clocks.loop_ms.get("step", steps.summary.median) / 1e3
    peak = hardware.peak_flops(job.device_name, cell.precision)
    return {
        **steps.values(clocks),
        "interval_share": interval_share(steps.summary),
        "tokens_per_s": cell.batch * cell.context / seconds if cell.context else None,
        "samples_per_s": cell.batch / seconds,
        "step_flops": flops,
        "flops_source": None if flops is None else source,
        "flops_per_s": None if flops is None else flops / seconds,
        "mfu": None if of_model is None or not peak else of_model / seconds / peak,
        "phase_sum_share": steps.phase_sum_share,
        "step_joules": clocks.joules,
    }


def grouped_product_flops(a: Sequence[int], b: Sequence[int], *others: object, **named: object) -> int:
    """Returns the operations of products of rows in groups, each with a matrix of its own: (rows, k) by (groups, k, n),
    and the gradients of both. Every row is in one group, so the groups' sizes do not matter."""
    *groups, rows, inner = a
    count = groups[0] if groups and len(b) == 3 else 1
    return 2 * count * rows * inner * b[-1]


#: What mixtures of experts multiply with and the counter does not know.
_MORE = {torch.ops.aten._grouped_mm: grouped_product_flops} if hasattr(torch.ops.aten, "_grouped_mm") else {}


def count_passes(workload: Workload) -> PassFlops:
    """Counts one forward pass with its loss, and its backward pass where anything can be differentiated. The gradients
    are dropped afterwards."""
    # The meta device and a CPU have fused attention that the counter does not know, and has none of it to count.
    fused = workload.inputs[0].is_cuda
    with (
        nullcontext() if fused else sdpa_kernel(SDPBackend.MATH),
        _Counter(display=False, custom_mapping=_MORE) as counter,
    ):
        output = workload.run()
        forward = counter.get_total_flops()
        loss = workload.loss(output)
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        total = counter.get_total_flops()
    workload.model.zero_grad()
    return PassFlops(forward=forward, backward=total - forward)


def count_cell(cell: StepCell, built: Workload | None) -> PassFlops | None:
    """Counts the passes of an own model's cell, checkpointing included: on the meta device or, where that fails, with
    the workload that was `built` and measured. None where neither works."""
    plain = replace(cell, attention="sdpa") if cell.attention.startswith("sdpa") else cell
    with contextlib.suppress(Exception):
        return count_passes(own_workload(plain, device=torch.device("meta")))
    if built is not None:
        with contextlib.suppress(Exception), torch.compiler.set_stance("force_eager"):
            return count_passes(built)
    return None


def reason_of(error: BaseException) -> str:
    """Returns the first line of why something cannot be counted without data."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]
