"""A recorded step's memory as rows: the peaks, the parts of the largest, the saved tensors, the timeline.

    peaks = phase_peaks(recorded, job); values = peak_values(recorded, peaks)      # recorded: a RecordedStep

Each part of the peak is the sum of its category's allocations that were alive then, and what CUDA's allocator rounds up
is the difference of two of its counters: no part is a remainder. The peak itself is the allocator's own count, so that
`residual_bytes` is what no part explains.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from runner.allowance import total_memory
from runner.analysis.timeline.rows import AboutTimeline, columns_of, timeline_rows
from runner.job import Job
from runner.measure.machine.device import Device
from runner.measure.memory.observer import Observer, Saved
from runner.measure.memory.timeline import MARK, PhaseMark, Recorded, StepTimeline
from runner.schema import PHASES, Category, MemoryCell, PhasePeakRow, SavedTensorRow
from runner.schema.titles import title

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
            totals = _totals(step.recorded, begin.at_ns, end.at_ns)
            peak, left = max(totals), totals[-1]
        rows.append(
            PhasePeakRow(
                run_id=job.run_id,
                cell_id=job.cell_id,
                phase=phase,
                peak_allocated_bytes=peak,
                peak_reserved_bytes=end.reserved,
                peak_driver_bytes=end.driver,
                end_allocated_bytes=left,
            )
        )
    return rows


def _totals(recorded: Recorded, begin_ns: int, end_ns: int) -> list[int]:
    """Returns the allocator's total when a phase began and after each of its events."""
    last = sum(event.at_ns < begin_ns for event in recorded.events) - 1
    before = [recorded.totals[last]] if last >= 0 else [0]
    events = zip(recorded.events, recorded.totals, strict=True)
    return before + [total for event, total in events if begin_ns <= event.at_ns <= end_ns]


def peak_values(step: RecordedStep, peaks: Sequence[PhasePeakRow]) -> dict[str, object]:
    """Returns the columns of the peak and its parts."""
    highest = max(peaks, key=lambda row: row.peak_allocated_bytes or 0)
    peak, requested = highest.peak_allocated_bytes, step.marks[1 + peaks.index(highest)].peak_requested
    assert peak is not None
    # What the allocator adds to the requested sizes, by the peaks of its two counters in the same phase.
    rounding = None if requested is None else peak - requested
    parts = dict.fromkeys(_PARTS, 0)
    column_of = {category: column for column, category in _PARTS.items()}
    for allocation in step.timeline.history.at_peak():
        if allocation.category in column_of:
            parts[column_of[allocation.category]] += allocation.bytes
    reserved = [row.peak_reserved_bytes for row in peaks if row.peak_reserved_bytes is not None]
    driver = [row.peak_driver_bytes for row in peaks if row.peak_driver_bytes is not None]
    return {
        "peak_phase": highest.phase,
        "peak_allocated_bytes": peak,
        "peak_reserved_bytes": max(reserved, default=None),
        "peak_driver_bytes": max(driver, default=None),
        **parts,
        "rounding_bytes": rounding,
        "fragmentation_bytes": _reserved_at_peak(step) - peak if reserved else None,
        "residual_bytes": peak - sum(parts.values()) - (rounding or 0),
    }


def _reserved_at_peak(step: RecordedStep) -> int:
    """Returns what the caching allocator had reserved when the step's total was largest, from the changes of its
    segments."""
    timeline, peak = step.timeline, step.timeline.history.peak
    past = timeline.events[: 0 if peak is None else peak + 1]
    count = timeline.before + sum(event.source != MARK for event in past)
    return sum(change for at, change in step.recorded.reserved if at < count)


# ------------------------------------------------------------------------------------------------- saved for backward


def saved_values(step: RecordedStep) -> dict[str, object]:
    """Returns the bytes that the forward pass saves for backward, without parameters: of the model and of its first
    block."""
    parameters = {note.address for note in step.observer.notes if note.category == "parameter"}
    forward = [item for item in step.observer.saved if item.at_ns <= step.marks[1].at_ns]
    saved = {item.address: item.bytes for item in forward if item.address not in parameters}
    of_block = sum(size for _, size in _block_saved(step)) if step.block else None
    return {"saved_bytes": sum(saved.values()), "block_saved_bytes": of_block}


def saved_tensors(step: RecordedStep, job: Job) -> list[SavedTensorRow]:
    """Returns what the first block saves, in order."""
    return [
        SavedTensorRow(
            run_id=job.run_id,
            cell_id=job.cell_id,
            position=position,
            operation=step.observer.operation_of(item),
            module=item.module,
            shape=item.shape,
            dtype=item.dtype,
            storage_bytes=size,
        )
        for position, (item, size) in enumerate(_block_saved(step))
    ]


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


# ------------------------------------------------------------------------------------------------------- the timeline


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
    about = AboutTimeline(
        run_id=job.run_id,
        cell_id=job.cell_id,
        origin="cuda-allocator" if cuda else "cpu-profiler",
        title=title(replace(job.cell, timeline=False)),
        device_bytes=torch.cuda.mem_get_info(device.torch)[1] if cuda else total_memory(),
    )
    return {**timeline_rows(columns, about)}
