"""The breakdown of a step's time: a profiled pass, its traces, and their kernels (operators, on a CPU)."""

from dataclasses import dataclass
from typing import Annotated

from runner.schema import axes
from runner.schema.axes import Model
from runner.schema.cells import Cell, Detail, Row
from runner.schema.choices import KernelClass, TraceOrigin
from runner.schema.columns import Column
from runner.schema.steps import StepCell
from runner.schema.tables import Table


@dataclass(frozen=True, kw_only=True)
class ProfileCell(Model, Cell):
    """One end-to-end Transformer step under the profiler, after the same step without it."""

    TITLE = "{context} · {mode} · {precision} · {backend}"

    batch: axes.Batch = 4
    context: axes.Context
    mode: axes.Mode
    precision: axes.Precision
    weights_dtype: axes.Weights = "fp32"
    backend: axes.Backend = "eager"
    attention: axes.Attention = "naive"
    optimizer: axes.Optimizer = "foreach"
    checkpoint_blocks: axes.Checkpointing = 0

    def step(self) -> StepCell:
        """Returns the profiled step as an end-to-end step."""
        return StepCell(**{name: getattr(self, name) for name in ProfileCell.names()})


@dataclass(frozen=True, kw_only=True)
class ProfileRow(ProfileCell, Row):
    """The results of the profiled pass of a step; its kernels are in `kernels`. All numbers about kernels are those of
    one step, the profiled one with the median duration, so that they add up."""

    steps: Annotated[
        int | None, Column("Profiled steps", "steps", "Steps under the profiler, of which the median one counts.")
    ] = None
    unprofiled_step_ms: Annotated[
        float | None,
        Column(
            "Step, unprofiled", "ms", "Median of the same step just before, without the profiler, in the same process."
        ),
    ] = None
    profiled_step_ms: Annotated[
        float | None,
        Column("Step, profiled", "ms", "Median of the steps under the profiler. Never shown as the step's time."),
    ] = None
    overhead_share: Annotated[
        float | None,
        Column("Profiling overhead", "", "Profiled step over unprofiled step, minus 1; what profiling cost."),
    ] = None
    kernel_ms: Annotated[
        float | None,
        Column(
            "Kernel time",
            "ms",
            "Sum of the times of all kernels of one step; of all operators, each its own, on a CPU.",
        ),
    ] = None
    busy_ms: Annotated[
        float | None,
        Column(
            "Device busy", "ms", "Time of one step in which at least one kernel ran; overlapping kernels count once."
        ),
    ] = None
    busy_share: Annotated[
        float | None,
        Column("Device busy share", "", "Device busy over the unprofiled step; on a CPU, over the profiled step."),
    ] = None
    host_bound_share: Annotated[
        float | None,
        Column("Host-bound share", "", "1 minus the busy share: the device waits for the host. Unknown on a CPU."),
    ] = None
    attributed_share: Annotated[
        float | None, Column("Attributed", "", "Share of the kernel time that is known to belong to a phase.")
    ] = None
    kernel_calls: Annotated[int | None, Column("Kernels", "", "Kernels launched by one step; operators, on a CPU.")] = (
        None
    )
    graph_breaks: Annotated[
        int | None, Column("Graph breaks", "", "Where the compiler split the graph; compiled cells only.")
    ] = None
    recompiles: Annotated[
        int | None, Column("Recompiles", "", "Graphs compiled after the warm-up; compiled cells only.")
    ] = None
    predicted_peak_bytes: Annotated[
        int | None, Column("Predicted peak", "bytes", "Peak memory predicted before the run.")
    ] = None
    build_seconds: Annotated[
        float | None, Column("Build time", "s", "Making the model, the optimizer and the data.")
    ] = None
    measure_seconds: Annotated[
        float | None, Column("Measuring time", "s", "The unprofiled and the profiled steps.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class TraceRow(Detail):
    """One trace with kernels in `kernels`: that of a profiled cell, or an imported one."""

    origin: Annotated[TraceOrigin, Column("Origin", "", "Who recorded it.")]
    title: Annotated[str, Column("Title", "", "The cell in words, or the imported file's name.")]
    kernels: Annotated[int, Column("Different kernels", "", "Rows of this trace in `kernels`.")]
    kernel_ms: Annotated[float, Column("Kernel time", "ms", "Sum over its kernels, per step where steps are known.")]
    steps: Annotated[
        int | None, Column("Steps", "steps", "Steps that times and calls were divided by; unknown: by none.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class KernelRow(Detail):
    """One kernel within one phase and one named range of a trace, per step. On a CPU, an operator with its own time."""

    phase: Annotated[str, Column("Phase", "", "forward, loss, backward, optimizer; `unknown` where nothing says so.")]
    scope: Annotated[
        str, Column("Range", "", "The innermost named range that launched it, or whose backward it is; empty for none.")
    ]
    kernel: Annotated[str, Column("Kernel", "", "The kernel's own name; the operator's, on a CPU.")]
    kernel_class: Annotated[KernelClass, Column("Class", "", "What kind of work it does.")]
    calls: Annotated[float, Column("Calls", "", "Launches per step.", least=0)]
    device_ms: Annotated[float, Column("Time", "ms", "Time on the device per step, all calls together.")]
    operator: Annotated[str | None, Column("Operator", "", "The PyTorch operator that launched it.")] = None
    flops: Annotated[
        int | None,
        Column(
            "FLOPs",
            "FLOP",
            "Operations of all its calls in one step, where shapes say so: 2 m k n of a matrix product, 5 "
            "an element of "
            "softmax, 4 of its backward, 1 of a sum or product; fused attention as FlashAttention counts, "
            "half if causal.",
        ),
    ] = None
    moved_bytes: Annotated[
        int | None,
        Column("Bytes moved", "bytes", "Inputs read once and outputs written once, where the shapes say so."),
    ] = None


TABLES = (
    Table(
        name="profiles",
        row=ProfileRow,
        unique=("cell_id",),
        doc="What a profiled pass says of a step.",
        words="profiled steps",
        numbers="unprofiled_step_ms profiled_step_ms overhead_share kernel_ms busy_share host_bound_share "
        "attributed_share",
        first="round",
    ),
    Table(name="traces", row=TraceRow, unique=("cell_id",), doc="One trace whose kernels are listed."),
    Table(
        name="kernels",
        row=KernelRow,
        unique=("cell_id", "phase", "scope", "kernel"),
        doc="Every kernel of a trace, by phase and named range; operators, on a CPU.",
    ),
)
