"""Holds cells over their rounds: times of steps and of attention, the cost of compiling, sums and their errors.

The rounds of one cell are one result: the estimate of times (`times`), the median of other numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from runner.results.times import PhaseTime
from runner.schema import (
    AccumulationRow,
    AttentionCell,
    Bound,
    Cell,
    FloatName,
    NormStatistic,
    NumericsRow,
    Phase,
    StepCell,
)


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
    predicted_saved_bytes: int | None = None
    predicted_peak_bytes: int | None = None
    tensor_bytes: int | None = None
    asked_bytes: int | None = None
    in_use_bytes: int | None = None
    device_bytes: int | None = None
    output_error: float | None = None
    gradient_error: float | None = None
    tolerance: float | None = None
    compile_seconds: float | None = None

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
class AccumulationResult:
    """A sum; `on_the_way` are its partial sums as (addends so far, sum so far)."""

    row: AccumulationRow
    machine: str
    on_the_way: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class NormalizationResult:
    """A statistic in one dtype at one scale, over all blocks: the worst error and the mean shares."""

    statistic: NormStatistic
    computed_in: FloatName
    scale: float
    error: float | None
    overflowed_share: float
    underflowed_share: float


@dataclass(frozen=True, kw_only=True)
class PrecisionResult:
    """One precision of one model, on one machine."""

    row: NumericsRow
    machine: str


@dataclass(frozen=True, kw_only=True)
class ExploredCell(Result):
    """One measure of a cell. `value` is in the measure's unit, None for every `status` but ok."""

    cell: Any
    source: str | None
    rounds: int
    value: float | None
    low: float | None = None
    high: float | None = None
