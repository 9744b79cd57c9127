"""The memory of one steady step: its peaks by phase, the parts of the largest, and the tensors saved for backward.

The recording begins before the model is built. A first real step makes the optimizer's state, and the second step is
the one that counts. Limits: recording takes a few times as long as the step, so nothing here is timed.

Each part of the peak is the sum of its category's allocations that were alive then, and what CUDA's allocator rounds up
is the difference of two of its counters: no part is a remainder. The peak itself is the allocator's own count, so that
`residual_bytes` is what no part explains.

One trial of a frontier: runs a step within the worker's memory limit and returns its peak.

    python -m runner sweep --experiment frontier --limit 2GiB

For attention it is one iteration; for a model the second step, because the first has no optimizer state yet. A step
that does not fit raises the allocator's error, which the worker turns into `oom`.

On CUDA fused attention is issued and not computed: over ten million tokens it would compute for a quarter of an hour,
in memory that grows with the tokens alone. The iteration is recorded as a CUDA graph, which allocates what the
iteration allocates when it runs (a `gpu` test compares the two), and is never replayed. FlexAttention must be compiled
at this length, which is impossible while a graph is recorded, so it runs with a mask that hides every block. Attention
that writes the scores to memory is computed, in seconds: recorded, one of four frontiers on an H200 was one step of 64
tokens smaller than what had run.
"""

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask

from runner.allowance import total_memory
from runner.analysis.costs.attention import FLEX_BLOCK
from runner.analysis.costs.steps import UNFUSED
from runner.analysis.timeline.allocations import columns_of, timeline_rows
from runner.errors import Skipped
from runner.job import Job, Measurement
from runner.measure import limits, precision
from runner.measure.attention import AttentionStep, require_runnable
from runner.measure.device import Device
from runner.measure.limits import storage_bytes
from runner.measure.model_step import ModelStep, require_attention
from runner.measure.observer import Observer, Saved, saved_rows
from runner.measure.timeline import MARK, CpuRecorder, CudaRecorder, PhaseMark, Recorded, StepTimeline, step_timeline
from runner.models.attention import causal_blocks, flex_of_blocks
from runner.models.workload import first_tensor, list_tensors
from runner.schema import PHASES, AttentionCell, Category, MemoryCell, PhasePeakRow, StepCell, step_of
from runner.schema.sizes import title

#: The columns of the peak's parts. `unknown` is part of the residual.
_PARTS: dict[str, Category] = {
    "parameters_bytes": "parameter",
    "gradients_bytes": "gradient",
    "optimizer_state_bytes": "optimizer state",
    "activations_bytes": "activation",
    "autocast_copies_bytes": "autocast copy",
    "inputs_bytes": "input",
    "temporaries_bytes": "temporary",
    "workspace_bytes": "workspace",
}


@dataclass(frozen=True, kw_only=True)
class RecordedStep:
    """Everything recorded of one step; `marks` are its beginning and the end of each phase."""

    observer: Observer
    recorded: Recorded
    timeline: StepTimeline
    marks: list[PhaseMark]
    residual_stream_bytes: int | None
    block: str | None
    build_seconds: float
    measure_seconds: float


def phase_peaks(step: RecordedStep, job: Job) -> list[PhasePeakRow]:
    """Returns one row a phase: on CUDA by the allocator's counters, on a CPU by its total after each event."""
    assert isinstance(job.cell, MemoryCell)
    rows = []
    for phase, (begin, end) in zip(PHASES[job.cell.mode], pairwise(step.marks), strict=True):
        peak, left = end.peak_allocated, end.allocated
        if peak is None:
            events = list(zip(step.recorded.events, step.recorded.totals, strict=True))
            before = [0, *(total for event, total in events if event.at_ns < begin.at_ns)][-1]
            totals = [before, *(total for event, total in events if begin.at_ns <= event.at_ns <= end.at_ns)]
            peak, left = max(totals), totals[-1]
        rows.append(
            PhasePeakRow(
                **job.ids,
                phase=phase,
                peak_allocated_bytes=peak,
                peak_reserved_bytes=end.reserved,
                peak_driver_bytes=end.driver,
                end_allocated_bytes=left,
            )
        )
    return rows


def peak_values(step: RecordedStep, peaks: Sequence[PhasePeakRow]) -> dict[str, object]:
    highest = max(peaks, key=lambda row: row.peak_allocated_bytes or 0)
    peak, requested = highest.peak_allocated_bytes, step.marks[1 + peaks.index(highest)].peak_requested
    assert peak is not None
    # What the allocator adds to the requested sizes, by the peaks of its two counters in the same phase.
    rounding = None if requested is None else peak - requested
    alive = list(step.timeline.history.at_peak())
    parts = {name: sum(one.bytes for one in alive if one.category == category) for name, category in _PARTS.items()}
    # What the caching allocator had reserved when the step's total was largest, by its segments' changes.
    last = -1 if step.timeline.history.peak is None else step.timeline.history.peak
    count = step.timeline.before + sum(event.source != MARK for event in step.timeline.events[: last + 1])
    reserved_then = sum(change for at, change in step.recorded.reserved if at < count)
    reserved = [row.peak_reserved_bytes for row in peaks if row.peak_reserved_bytes is not None]
    driver = [row.peak_driver_bytes for row in peaks if row.peak_driver_bytes is not None]
    return {
        "peak_phase": highest.phase,
        "peak_allocated_bytes": peak,
        "peak_reserved_bytes": max(reserved, default=None),
        "peak_driver_bytes": max(driver, default=None),
        **parts,
        "rounding_bytes": rounding,
        "fragmentation_bytes": reserved_then - peak if reserved else None,
        "residual_bytes": peak - sum(parts.values()) - (rounding or 0),
    }


def _block_saved(step: RecordedStep) -> list[tuple[Saved, int]]:
    """Returns the first block's saved tensors without parameters and tables, each with the bytes of its storage, which
    are 0 where it is repeated. A checkpointed block saves them when backward runs it again."""
    known = {note.address for note in step.observer.notes if note.category in ("parameter", "input")}
    listed = list[tuple[Saved, int]]()
    for item in step.observer.saved:
        if step.block and item.module and f"{item.module}.".startswith(f"{step.block}."):
            if item.address not in known or any(item.address == other.address for other, _ in listed):
                listed.append((item, 0 if item.address in known else item.bytes))
            known.add(item.address)
    return listed


def timeline_details(step: RecordedStep, job: Job, *, device: Device) -> dict[str, Sequence[object]]:
    """Returns the rows of the timeline: every allocation, its stack, and where the phases begin."""
    assert isinstance(job.cell, MemoryCell)
    timeline, cuda = step.timeline, device.type == "cuda"
    columns = columns_of(
        timeline.history,
        stacks=step.observer.stacks.texts,
        marks=list(zip(timeline.starts, PHASES[job.cell.mode], strict=False)),
        phased=True,
    )
    if cuda:
        peak = max((mark.peak_allocated or 0 for mark in step.marks[1:]), default=0)
        columns["timeline"] |= {"baseline_block_bytes": step.marks[0].allocated, "peak_block_bytes": peak or None}
    return timeline_rows(
        columns,
        **job.ids,
        origin="cuda-allocator" if cuda else "cpu-profiler",
        title=title(replace(job.cell, timeline=False)),
        device_bytes=torch.cuda.mem_get_info(device.torch)[1] if cuda else total_memory(),
    )


#: The most steps until one does not overflow: a scaler begins at 2^16 and halves at every overflow.
MAX_FIRST_STEPS = 20


def measure_memory(job: Job, report: Callable[[str], None]) -> Measurement:
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, MemoryCell)
    require_attention(cell, device)
    precision.apply(cell.precision, device)
    limits.reset_peaks(device)
    recorded = _record(step_of(cell), device, report=report)
    peaks = phase_peaks(recorded, job)
    of_block = [(recorded.observer.operation_of(item), item, size) for item, size in _block_saved(recorded)]
    rows: dict[str, Sequence[object]] = {"phase_peaks": peaks, "saved_tensors": saved_rows(job, of_block, {})}
    parameters = {note.address for note in recorded.observer.notes if note.category == "parameter"}
    forward = [item for item in recorded.observer.saved if item.at_ns <= recorded.marks[1].at_ns]
    saved = {item.address: item.bytes for item in forward if item.address not in parameters}
    values = {
        **peak_values(recorded, peaks),
        "saved_bytes": sum(saved.values()),
        "block_saved_bytes": sum(size for *_, size in of_block) if recorded.block else None,
        "residual_stream_bytes": recorded.residual_stream_bytes,
        "build_seconds": recorded.build_seconds,
        "measure_seconds": recorded.measure_seconds,
    }
    if cell.timeline:
        rows |= timeline_details(recorded, job, device=device)
    return Measurement(values=values, details=rows)


def _record(cell: StepCell, device: Device, *, report: Callable[[str], None]) -> RecordedStep:
    """Builds the model, runs a first step, and records the second."""
    report("build")
    if device.type == "mps":
        raise Skipped("PyTorch keeps no history of allocations on MPS.")
    recorder = CudaRecorder(device) if device.type == "cuda" else CpuRecorder()
    began, marks = time.perf_counter(), list[PhaseMark]()
    with recorder:
        step = ModelStep(cell, device)
        build_seconds, began = time.perf_counter() - began, time.perf_counter()
        observer = Observer(step.model)
        widths, block = list[int](), next(iter(step.workload.blocks), None)

        def record_width(module: nn.Module, args: Any, output: Any) -> None:
            if (stream := first_tensor(output)) is not None:
                widths.append(stream.untyped_storage().nbytes())

        def end_phase() -> None:
            if step.phase == "backward":
                gradients = [parameter.grad for parameter in step.model.parameters() if parameter.grad is not None]
                observer.note(gradients, "gradient")
            marks.append(recorder.mark())

        try:
            report("first step")
            _run_first_step(step)
            device.synchronize()
            report("recorded step")
            hook = step.model.get_submodule(block).register_forward_hook(record_width) if block else nullcontext()
            with hook, observer:
                observer.note(step.model.parameters(), "parameter")
                observer.note([*step.workload.inputs, *step.model.buffers()], "input")
                # The optimizer's step counters count as workspace.
                observer.note([tensor for tensor in _list_state(step) if tensor.ndim], "optimizer state")
                marks.append(recorder.mark())
                step(end_phase)
        except BaseException:
            report(step.phase or "build")
            raise
        device.synchronize()
    recorded = recorder.recorded()
    return RecordedStep(
        observer=observer,
        recorded=recorded,
        timeline=step_timeline(recorded, marks=marks, observer=observer),
        marks=marks,
        residual_stream_bytes=widths[0] if widths else None,
        block=block,
        build_seconds=build_seconds,
        measure_seconds=time.perf_counter() - began,
    )


def _run_first_step(step: ModelStep) -> None:
    """Runs a real step and keeps only the optimizer's state. It is repeated while the gradient scaler skips the
    optimizer, until the scale has come down."""
    for _ in range(MAX_FIRST_STEPS):
        step(lambda: None)
        step.loss = None  # which would stay alive
        step.between()
        if step.optimizer is None or step.optimizer.state:
            return
    raise Skipped(f"{MAX_FIRST_STEPS} steps in {step.cell.precision} overflowed, so the optimizer never took one.")


def _list_state(step: ModelStep) -> list[Tensor]:
    states = step.optimizer.state.values() if step.optimizer else ()
    return [tensor for state in states for tensor in list_tensors(state)]


def measure_trial(job: Job, report: Callable[[str], None]) -> Measurement:
    """Runs the job's cell once; the only value is `peak_allocated_bytes`. Raises Skipped where it cannot run."""
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, AttentionCell | StepCell)
    precision.apply(cell.precision, device)
    if device.type == "cpu":
        limits.free_at_once()
    report("build")
    step: AttentionStep | ModelStep
    if isinstance(cell, AttentionCell):
        require_runnable(cell, device)
        step = AttentionStep(cell, device)
        held = step.held_bytes
    else:
        step = ModelStep(cell, device)
        report("first step")
        step(lambda: None)
        step.between()
        held = storage_bytes(
            [*step.model.parameters(), *step.model.buffers(), *step.workload.inputs, *_list_state(step)]
        )
    try:
        peak = _measure_peak(step, device, held=held, report=report)
    except BaseException:
        report(step.phase)
        raise
    return Measurement(values={"peak_allocated_bytes": peak}, details={})


def _measure_peak(
    step: AttentionStep | ModelStep, device: Device, *, held: int, report: Callable[[str], None]
) -> int | None:
    """Returns the peak of live bytes in one step, including the `held` bytes before it."""
    if device.type == "cpu":
        report("step")
        with CpuRecorder() as recorder:
            step(lambda: None)
        return held + max([0, *recorder.recorded().totals])
    is_recorded = False
    if device.type == "cuda" and isinstance(step, AttentionStep):
        is_recorded = step.cell.implementation not in ("flex", *UNFUSED)
        if step.cell.implementation == "flex":
            mask_everything(step, device)
            step(lambda: None)  # compiling takes memory of its own
            step.drop_gradients()
    limits.reset_peaks(device)
    report("step")
    # Libraries may load their kernels while a graph is recorded, which only `relaxed` allows.
    with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="relaxed") if is_recorded else nullcontext():
        step(lambda: None)
    device.synchronize()
    return limits.peaks(device)["peak_allocated_bytes"]


def mask_everything(step: AttentionStep, device: Device) -> None:
    """Gives FlexAttention a mask of the cell's size that hides every block."""
    length = step.cell.seq_len
    if step.cell.causal:
        blocks = causal_blocks(length, device.torch)
        causal_blocks.cache_clear()  # the next caller needs the real mask
    else:  # one block of everything, as PyTorch makes without a mask
        one, which = (torch.zeros(size, dtype=torch.int32, device=device.torch) for size in ((1, 1, 1), (1, 1, 1, 1)))
        block = -(-length // FLEX_BLOCK) * FLEX_BLOCK
        blocks = BlockMask.from_kv_blocks(one, which, BLOCK_SIZE=block, seq_lengths=(length, length))
    for count in (blocks.kv_num_blocks, blocks.full_kv_num_blocks, blocks.q_num_blocks, blocks.full_q_num_blocks):
        if count is not None:
            count.zero_()
    step.run = functools.partial(flex_of_blocks, blocks=blocks)
