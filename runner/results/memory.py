"""Holds the contents of memory: peaks with their parts, tensors saved for backward, largest sizes, and recorded
timelines."""

from dataclasses import dataclass, field
from uuid import UUID

from runner.results.cells import Result
from runner.schema import FrontierCell, MemoryCell


@dataclass(frozen=True, kw_only=True)
class Peak(Result):
    """One memory cell on a machine of the kind `device`, whose device is called `device_name`. `parts` are bytes by
    category, None where they were not counted; `phases` are peaks of live tensors."""

    cell: MemoryCell
    machine_bytes: int | None
    device: str | None
    device_name: str | None
    peak_phase: str | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    peak_driver_bytes: int | None
    predicted_peak_bytes: int | None
    residual_stream_bytes: int | None
    saved_bytes: int | None
    block_saved_bytes: int | None
    parts: dict[str, int | None]
    phases: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PhasePeak:
    """Peaks within one phase of a memory cell, in bytes; None where they were not counted."""

    phase: str
    allocated: int | None
    reserved: int | None
    driver: int | None
    left: int | None


@dataclass(frozen=True, kw_only=True)
class SavedOperation:
    """The tensors that one operation of the first block keeps for backward. Each piece of memory counts once."""

    operation: str
    module: str | None
    shapes: str
    tensors: int
    kept_bytes: int


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """The largest sequence, context or batch that fits, and the prediction."""

    cell_id: UUID
    cell: FrontierCell
    status: str
    predicted: int | None
    largest: int | None
    smallest_failing: int | None
    largest_peak_bytes: int | None
    trials: int | None


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One recorded timeline. `label` is its name, unique in the file; `cell` is the measured cell, None for an imported
    timeline."""

    cell_id: UUID
    run_id: UUID
    title: str
    label: str
    machine: str
    origin: str
    allocations: int
    duration_us: int
    baseline_bytes: int
    peak_bytes: int
    peak_at_us: int
    lost_events: int
    device_bytes: int | None
    baseline_allocations: int | None = None
    baseline_block_bytes: int | None = None
    peak_block_bytes: int | None = None
    cell: MemoryCell | None = None


@dataclass(frozen=True, kw_only=True)
class MemoryPart:
    """The bytes of one category at a moment."""

    category: str
    held_bytes: int
    allocations: int


@dataclass(frozen=True, kw_only=True)
class LiveAllocation:
    """One allocation that is alive at a moment, with the stack that made it."""

    allocation: int
    allocated_bytes: int
    category: str
    phase: str | None
    module: str | None
    operation: str | None
    born_us: int
    died_us: int | None
    frames: str | None
