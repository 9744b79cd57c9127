"""The rows that answers are made of, by kind: those of one file and one selection.

rows = read(path, Selection(mode="train"), needs=("every_step",))        # runner.store.read
rows = Rows(every_step=(StepResult(…),))                                 # a test makes them by hand
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runner.results.cells import AttentionResult, StepResult
from runner.results.kernels import Kernel, KernelPart, KernelTrace
from runner.results.memory import Frontier, LiveAllocation, Peak, PhasePeak, Timeline
from runner.results.numerics import AccumulationResult, NormalizationResult
from runner.results.runs import RunSummary
from runner.schema import DtypeRow, NumericsRow


@dataclass(frozen=True, kw_only=True)
class Traced:
    """One profiled cell with its kernels: summed by phase and class, and one by one."""

    trace: KernelTrace
    parts: tuple[KernelPart, ...]
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, kw_only=True)
class RunSteps:
    """One run and what it measured, whatever later runs measured again."""

    run: RunSummary
    steps: tuple[StepResult, ...]


@dataclass(frozen=True, kw_only=True)
class SavedTensor:
    """A tensor that one operation keeps for backward: its shape with its dtype, and the bytes that it alone keeps.
    `tensor` is its name, where it has one."""

    operation: str
    module: str
    tensor: str | None
    shape: str
    size: int


@dataclass(frozen=True, kw_only=True)
class SavedCell:
    """What the first block of a memory cell, or an attention cell, keeps for backward."""

    cell_id: UUID
    machine: str
    cell: Any
    tensors: tuple[SavedTensor, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TimelineDetails:
    """One memory timeline: its phases with when they begin, and the largest allocations of the recording that were
    alive at its peak, the largest first."""

    timeline: Timeline
    phases: tuple[PhasePeak, ...] = ()
    begins_us: Mapping[str, int]
    largest: tuple[LiveAllocation, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Precise:
    """One pass of a model in one precision, beside the reference: its errors, the dtypes read from it, and statistics
    of normalization over its residual streams."""

    row: NumericsRow
    machine: str
    dtypes: tuple[DtypeRow, ...] = ()
    normalization: tuple[NormalizationResult, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows by kind; empty for what a question does not need."""

    steps: tuple[StepResult, ...] = ()
    every_step: tuple[StepResult, ...] = ()
    attention: tuple[AttentionResult, ...] = ()
    peaks: tuple[Peak, ...] = ()
    traced: tuple[Traced, ...] = ()
    runs: tuple[RunSummary, ...] = ()
    by_run: tuple[RunSteps, ...] = ()
    saved: tuple[SavedCell, ...] = ()
    recorded: tuple[TimelineDetails, ...] = ()
    frontiers: tuple[Frontier, ...] = ()
    sums: tuple[AccumulationResult, ...] = ()
    precise: tuple[Precise, ...] = ()
