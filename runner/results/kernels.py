"""Holds the breakdown of steps: traces, their kernels, and the time by class. Times and calls are per step."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from runner.schema import KernelClass, KernelRow, ProfileCell, ProfileRow, TraceOrigin

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
class KernelTrace:
    """One profiled cell, or one imported trace (`cell` is None, and so is whatever only a profiled pass knows)."""

    cell_id: UUID
    run_id: UUID
    machine: str
    device: str | None
    label: str | None
    origin: TraceOrigin | None
    title: str | None
    kernel_ms: float | None
    steps: int | None
    cell: ProfileCell | None = None
    status: str = "ok"
    failed_phase: str | None = None
    message: str | None = None
    unprofiled_step_ms: float | None = None
    profiled_step_ms: float | None = None
    profiled_steps: int | None = None
    overhead_share: float | None = None
    busy_ms: float | None = None
    busy_share: float | None = None
    host_bound_share: float | None = None
    attributed_share: float | None = None
    kernel_calls: int | None = None
    graph_breaks: int | None = None
    recompiles: int | None = None


@dataclass(frozen=True, kw_only=True)
class KernelPart:
    """The time of one class of kernels in one phase and, where asked for, in one named range."""

    phase: str
    scope: str
    kernel_class: KernelClass
    calls: float
    device_ms: float
    flops: int | None


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One kernel of one trace in one phase, over the ranges that launched it. `operator` and `scope` name the one
    that took most of its time."""

    phase: str
    kernel: str
    kernel_class: KernelClass
    calls: float
    device_ms: float
    flops: int | None
    moved_bytes: int | None
    operator: str | None
    scope: str


@dataclass(frozen=True, kw_only=True)
class Profiled:
    """One profiled step and its kernels, the longest first."""

    row: ProfileRow
    kernels: tuple[KernelRow, ...]
