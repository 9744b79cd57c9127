"""What was seen of a step's memory, as rows: peaks, what the largest is made of, what backward needs, the timeline.

    peaks = phase_peaks(found, job); values = peak_values(found, peaks)      # found: a RecordedStep

Each part of the peak is the sum of the allocations of its category that were alive at the peak, and what CUDA's
allocator rounds up is the difference of two of its counters: none is worked out as the rest. The peak itself is the
allocator's own count, so that `residual_bytes` says what was not found.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import psutil
import torch

from runner.analysis.timeline.rows import About, columns_of, timeline_rows
from runner.job import Job
from runner.measure.machine.device import Device
from runner.measure.memory.observer import Observer, Saved
from runner.measure.memory.timeline import MARK, PhaseMark, Recorded, StepTimeline
from runner.schema import PHASES, Category, MemoryCell, PhasePeakRow, SavedTensorRow
from runner.schema.titles import title

#: The columns that hold the parts of the peak. `unknown` is left to the residual.
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
FIRST_BLOCK = "blocks.0"


@dataclass(frozen=True, kw_only=True)
class RecordedStep:
    """One step and everything that was seen of it; `marks` are its beginning and the end of each phase."""

    observer: Observer
    recorded: Recorded
    timeline: StepTimeline
    marks: list[PhaseMark]
    residual_stream_bytes: int
    build_seconds: float
    measure_seconds: float


def phase_peaks(found: RecordedStep, job: Job) -> list[PhasePeakRow]:
    """One row a phase: on CUDA by the allocator's counters, on a CPU by its total after each event."""
    assert isinstance(job.cell, MemoryCell)
    rows = []
    for phase, (begin, end) in zip(PHASES[job.cell.mode], pairwise(found.marks), strict=True):
        peak, left = end.peak_allocated, end.allocated
        if peak is None:
            totals = _totals(found.recorded, begin.at_ns, end.at_ns)
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
    """The allocator's total when a phase began and after each of its events."""
    last = sum(event.at_ns < begin_ns for event in recorded.events) - 1
    before = [recorded.totals[last]] if last >= 0 else [0]
    events = zip(recorded.events, recorded.totals, strict=True)
    return before + [total for event, total in events if begin_ns <= event.at_ns <= end_ns]


def peak_values(found: RecordedStep, peaks: Sequence[PhasePeakRow]) -> dict[str, object]:
    """The columns of the peak and its parts."""
    highest = max(peaks, key=lambda row: row.peak_allocated_bytes or 0)
    rounding = _rounding(highest.peak_allocated_bytes, found.marks[1 + peaks.index(highest)].peak_requested)
    assert highest.peak_allocated_bytes is not None
    parts = dict.fromkeys(_PARTS, 0)
    column_of = {category: column for column, category in _PARTS.items()}
    for life in found.timeline.history.at_peak():
        if life.category in column_of:
            parts[column_of[life.category]] += life.bytes
    reserved = [row.peak_reserved_bytes for row in peaks if row.peak_reserved_bytes is not None]
    driver = [row.peak_driver_bytes for row in peaks if row.peak_driver_bytes is not None]
    return {
        "peak_phase": highest.phase,
        "peak_allocated_bytes": highest.peak_allocated_bytes,
        "peak_reserved_bytes": max(reserved, default=None),
        "peak_driver_bytes": max(driver, default=None),
        **parts,
        "rounding_bytes": rounding,
        "fragmentation_bytes": _reserved_at_peak(found) - highest.peak_allocated_bytes if reserved else None,
        "residual_bytes": highest.peak_allocated_bytes - sum(parts.values()) - (rounding or 0),
    }


def _rounding(allocated: int | None, requested: int | None) -> int | None:
    """What the allocator adds to the sizes asked for, by the peaks of its two counters in the same phase."""
    return None if allocated is None or requested is None else allocated - requested


def _reserved_at_peak(found: RecordedStep) -> int:
    """What the caching allocator held when the step's total was largest, from its segments' comings and goings."""
    timeline, peak = found.timeline, found.timeline.history.peak
    seen = timeline.events[: 0 if peak is None else peak + 1]
    happened = timeline.before + sum(event.source != MARK for event in seen)
    return sum(change for at, change in found.recorded.reserved if at < happened)


# ------------------------------------------------------------------------------------------------- saved for backward


def saved_values(found: RecordedStep) -> dict[str, object]:
    """Bytes that the forward pass keeps for backward, the parameters not counted: of the model, of its first block."""
    parameters = {note.address for note in found.observer.notes if note.category == "parameter"}
    saved = {item.address: item.bytes for item in _saved_forward(found) if item.address not in parameters}
    return {"saved_bytes": sum(saved.values()), "block_saved_bytes": sum(size for _, size in _block_saved(found))}


def saved_tensors(found: RecordedStep, job: Job) -> list[SavedTensorRow]:
    """What the first block keeps, in the order of keeping."""
    return [
        SavedTensorRow(
            run_id=job.run_id,
            cell_id=job.cell_id,
            position=position,
            operation=found.observer.operation_of(item),
            module=item.module,
            shape="×".join(map(str, item.shape)) or "1",
            dtype=item.dtype,
            storage_bytes=size,
        )
        for position, (item, size) in enumerate(_block_saved(found))
    ]


def _saved_forward(found: RecordedStep) -> list[Saved]:
    return [item for item in found.observer.saved if item.at_ns <= found.marks[1].at_ns]


def _block_saved(found: RecordedStep) -> list[tuple[Saved, int]]:
    """The first block's saved tensors but for the parameters and tables that are there anyway, each with the bytes of
    its storage; 0 from its second mention on. A checkpointed block keeps them when backward runs it again."""
    known = {note.address for note in found.observer.notes if note.category in ("parameter", "input")}
    listed = list[tuple[Saved, int]]()
    for item in found.observer.saved:
        if item.module and f"{item.module}.".startswith(f"{FIRST_BLOCK}."):
            if item.address not in known or any(item.address == other.address for other, _ in listed):
                listed.append((item, 0 if item.address in known else item.bytes))
            known.add(item.address)
    return listed


# ------------------------------------------------------------------------------------------------------- the timeline


def timeline_details(found: RecordedStep, job: Job, *, device: Device) -> dict[str, Sequence[object]]:
    """The rows of the timeline: every allocation, its stack, and where the phases begin."""
    assert isinstance(job.cell, MemoryCell)
    timeline, cuda = found.timeline, device.type == "cuda"
    columns = columns_of(
        timeline.history,
        stacks=found.observer.stacks.texts,
        marks=list(zip(timeline.starts, PHASES[job.cell.mode], strict=False)),
        phased=True,
    )
    about = About(
        run_id=job.run_id,
        cell_id=job.cell_id,
        origin="cuda-allocator" if cuda else "cpu-profiler",
        title=title(replace(job.cell, timeline=False)),
        device_bytes=torch.cuda.mem_get_info(device.torch)[1] if cuda else psutil.virtual_memory().total,
    )
    return {**timeline_rows(columns, about)}
