"""Holds cells over their rounds: times of steps and of attention, the cost of compiling, sums and their errors; the
breakdown of steps into kernels and classes, per step; peaks with their parts, tensors saved for backward, largest
sizes, and recorded timelines.

The rounds of one cell are one result: the estimate of times (`times`), the median of other numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from runner.results.times import Clock, Estimate, PhaseTime
from runner.schema import AccumulationRow, AttentionCell, Bound, Cell, FloatName, KernelClass, NormStatistic, Phase
from runner.schema.kernels import ProfileCell
from runner.schema.memory import AllocationRow, MemoryCell, PhasePeakRow, TimelineRow
from runner.schema.steps import StepCell


@dataclass(frozen=True, kw_only=True)
class Result:
    """One cell on one machine, over its rounds. `status` is ok when any round is; `failed_phase` and `message` are
    those of the last that failed."""

    cell_id: UUID
    machine: str
    cell: Cell
    status: str = "ok"
    failed_phase: str | None = None
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class TimedResult(Result):
    """A result with its times by phase, which are empty when no round is ok. `bound` is what sets the time: the device,
    or the host that gives it work; None where that is not known."""

    cell_key: str
    torch: str | None
    bound: Bound | None = None
    times: Mapping[Phase, PhaseTime] = field(default_factory=dict)

    def time(self, phase: Phase, clock: Clock) -> Estimate | None:
        """Returns the time of a phase by a clock; None where it was not taken."""
        return self.times[phase].by(clock) if phase in self.times else None


@dataclass(frozen=True, kw_only=True)
class StepResult(TimedResult):
    """One end-to-end cell."""

    cell: StepCell
    run_id: UUID
    rounds: int
    parameters: int | None
    tokens_per_s: float | None
    mfu: float | None
    compile_seconds: float | None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    step_joules: float | None = None
    compile_threads: int | None = None

    @property
    def tokens(self) -> int:
        """The tokens of a step; its samples, where those have no length."""
        return self.cell.batch * max(self.cell.context, 1)

    @property
    def rate(self) -> float | None:
        """Tokens per second in a loop; where that was not timed, by the step alone. None without a time."""
        times = self.times.get("step")
        return self.tokens / (times.by("loop") or times.step).ms * 1e3 if times else None

    def mfu_at(self, rate: float) -> float | None:
        """Returns the MFU at another number of tokens per second; None where it is not known."""
        return self.mfu * rate / self.tokens_per_s if self.mfu and self.tokens_per_s else None


@dataclass(frozen=True, kw_only=True)
class AttentionResult(TimedResult):
    """One single-head attention cell, with the largest bytes and errors over its rounds. `machine_bytes` is the memory
    of the device; `device_bytes` of a cell that ran out is what the worker could take. `device` is the kind of device,
    such as cuda, and `device_name` its name."""

    cell: AttentionCell
    machine_bytes: int | None
    device: str | None
    device_name: str | None
    saved_bytes: int | None = None
    before_backward_bytes: int | None = None
    peak_allocated_bytes: int | None = None
    predicted_peak_bytes: int | None = None
    asked_bytes: int | None = None
    in_use_bytes: int | None = None
    device_bytes: int | None = None
    output_error: float | None = None
    gradient_error: float | None = None

    @property
    def is_fragmented(self) -> bool:
        """Whether it ran out of memory although what was asked for would have fit beside what was in use: the rest is
        held in pieces that are too small."""
        if not self.asked_bytes or self.in_use_bytes is None or not self.limit_bytes:
            return False
        return self.in_use_bytes + self.asked_bytes <= self.limit_bytes

    @property
    def limit_bytes(self) -> int | None:
        """The memory that the cell had to fit in."""
        return self.device_bytes or self.machine_bytes


@dataclass(frozen=True, kw_only=True)
class EarlyStep:
    """One whole step of a cell that was measured after other counts of warm-up steps as well."""

    cell_id: UUID
    machine: str
    cell: StepCell
    step: int
    is_warmup: bool
    step_ms: float


@dataclass(frozen=True, kw_only=True)
class PhaseSample:
    """One phase of one step of a cell. `step` counts from the start of the process, warm-up included."""

    round: int
    phase: Phase
    step: int
    is_warmup: bool
    duration_ms: float


@dataclass(frozen=True, kw_only=True)
class AccumulationResult(AccumulationRow):
    """A sum; `on_the_way` are its partial sums as (addends so far, sum so far)."""

    machine: str
    on_the_way: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class NormalizationResult:
    """A statistic in one dtype at one scale, over all blocks: the worst error and the largest shares."""

    statistic: NormStatistic
    computed_in: FloatName
    scale: float
    error: float | None
    overflowed_share: float
    underflowed_share: float


#: Words for the classes, in the order of stacking.
CLASS_WORDS: Mapping[KernelClass, str] = {
    "matmul": "matrix products",
    "attention": "fused attention",
    "softmax": "softmax",
    "normalisation": "normalization",
    "elementwise": "elementwise",
    "reduction": "reductions",
    "optimizer": "optimizer",
    "copy or cast": "copies and casts",
    "communication": "communication",
    "other": "other",
}


@dataclass(frozen=True, kw_only=True)
class KernelPart:
    """The time of one class of kernels in one phase and, where asked for, in one named range."""

    phase: str
    scope: str = ""
    kernel_class: KernelClass
    calls: float
    device_ms: float
    flops: int | None


@dataclass(frozen=True, kw_only=True)
class Kernel(KernelPart):
    """One kernel of one trace in one phase, over the ranges that launched it."""

    kernel: str
    moved_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class KernelTrace(Result):
    """One profiled cell on a machine of the kind `device`, with its kernels: summed by phase and class, by the model's
    named ranges, and one by one. On a CPU they are operators."""

    cell: ProfileCell
    device: str | None = None
    unprofiled_step_ms: float | None = None
    overhead_share: float | None = None
    busy_share: float | None = None
    host_bound_share: float | None = None
    attributed_share: float | None = None
    parts: tuple[KernelPart, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    ranges: tuple[KernelPart, ...] = ()


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
    predicted_peak_bytes: int | None
    residual_stream_bytes: int | None
    saved_bytes: int | None
    block_saved_bytes: int | None
    parts: dict[str, int | None]
    phases: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LiveAllocation(AllocationRow):
    """One allocation that is alive at a moment, with the stack that made it, and how many are `alike`: equal in size,
    purpose, phase, operation and stack, and of one module, whatever its block."""

    frames: str | None = None
    alike: int = 1


@dataclass(frozen=True, kw_only=True)
class MemoryPart:
    """The bytes of one category at a moment."""

    category: str
    held_bytes: int
    allocations: int


@dataclass(frozen=True, kw_only=True)
class Timeline(TimelineRow):
    """One recorded timeline. `label` is its name, unique in the file; `cell` is what was measured, None if imported.
    Where they are read: its phases with when they begin, and the largest allocations of the recording that were alive
    at its peak, the largest first."""

    label: str
    machine: str
    cell: MemoryCell | None = None
    phases: tuple[PhasePeakRow, ...] = ()
    begins_us: Mapping[str, int] = field(default_factory=dict)
    largest: tuple[LiveAllocation, ...] = ()
