"""The breakdown of a step's time: a profiled pass, its traces, and their kernels (operators, on a CPU)."""

from dataclasses import dataclass, field

from runner.schema import axes
from runner.schema.axes import ModelCell
from runner.schema.cells import BuiltRow, Detail
from runner.schema.choices import Backend, KernelClass, TraceOrigin
from runner.schema.columns import column, describe


@dataclass(frozen=True, kw_only=True)
class ProfileCell(ModelCell):
    """One end-to-end Transformer step under the profiler, after the same step without it."""

    TITLE = "{context} · {mode} · {precision} · {backend}"

    backend: Backend = column("Backend", "", "eager, or what is compiled and how.", flag=axes.BACKENDS, default="eager")


@dataclass(frozen=True, kw_only=True)
class ProfileRow(ProfileCell, BuiltRow):
    """The results of the profiled pass of a step; its kernels are in `kernels`. All numbers about kernels are those of
    one step, the profiled one with the median duration, so that they add up."""

    steps: int | None = column("Profiled steps", "steps", "Steps under the profiler, of which the median one counts.")
    unprofiled_step_ms: float | None = column(
        "Step, unprofiled", "ms", "Median of the same step just before, without the profiler, in the same process."
    )
    profiled_step_ms: float | None = column(
        "Step, profiled", "ms", "Median step under the profiler; never shown as the step's time."
    )
    overhead_share: float | None = column("Profiling overhead", "", "Profiled step over the unprofiled one, minus 1.")
    kernel_ms: float | None = column("Kernel time", "ms", "Sum over the kernels of a step; over operators, on a CPU.")
    busy_ms: float | None = column("Device busy", "ms", "Time of a step in which at least one kernel ran.")
    busy_share: float | None = column(
        "Device busy share", "", "Busy time over the unprofiled step; on a CPU, the profiled one."
    )
    host_bound_share: float | None = column(
        "Host-bound share", "", "1 - busy share: the GPU waits for the host. GPU only."
    )
    attributed_share: float | None = column("Attributed", "", "Share of the kernel time whose phase is known.")
    kernel_calls: int | None = column("Kernels", "", "Kernels launched by one step; operators, on a CPU.")
    graph_breaks: int | None = column("Graph breaks", "", "Where the compiler split the graph; compiled cells only.")
    recompiles: int | None = column("Recompiles", "", "Graphs compiled after the warm-up; compiled cells only.")


@dataclass(frozen=True, kw_only=True)
class TraceRow(Detail):
    """One trace with kernels in `kernels`: that of a profiled cell, or an imported one."""

    origin: TraceOrigin = field(metadata=describe("Origin", "", "Who recorded it."))
    title: str = field(metadata=describe("Title", "", "The cell in words, or the imported file's name."))
    kernels: int = field(metadata=describe("Different kernels", "", "Its rows in `kernels`, without copies and sets."))
    kernel_ms: float = field(metadata=describe("Kernel time", "ms", "Sum over its kernels, per step where known."))
    steps: int | None = column("Steps", "steps", "Steps that times and calls were divided by; unknown: by none.")
    step_ms: float | None = column("Step, traced", "ms", "Mean time of its steps on the host, under the profiler.")
    busy_ms: float | None = column("Device busy", "ms", "Time a step in which at least one kernel or copy ran.")
    gap_ms: float | None = column("Launch gaps", "ms", "Time a step in which the device waits between two kernels.")


@dataclass(frozen=True, kw_only=True)
class KernelRow(Detail):
    """One kernel within one phase and one named range of a trace, per step. On a CPU, an operator with its own time."""

    phase: str = field(metadata=describe("Phase", "", "forward, loss, backward, optimizer, or `unknown`."))
    scope: str = field(metadata=describe("Range", "", "The innermost range that it, or its forward, ran in; or empty."))
    kernel: str = field(metadata=describe("Kernel", "", "The kernel's own name; the operator's, on a CPU."))
    kernel_class: KernelClass = field(metadata=describe("Class", "", "What kind of work it does."))
    calls: float = field(metadata=describe("Calls", "", "Launches per step.", least=0))
    device_ms: float = field(metadata=describe("Time", "ms", "Time on the device per step, all calls together."))
    operator: str | None = column("Operator", "", "The PyTorch operator that launched it.")
    flops: int | None = column(
        "FLOPs",
        "FLOP",
        "Operations of all its calls in one step, where shapes say so: 2 m k n of a matrix product, 5 an element of "
        "softmax, 4 of its backward, 1 of a sum or product; fused attention as FlashAttention counts, half if causal.",
    )
    moved_bytes: int | None = column("Bytes moved", "bytes", "Inputs and outputs, each once, where shapes say so.")
