"""What a step's time is made of: a profiled pass, its traces, and their kernels (operators, on a CPU)."""

from dataclasses import dataclass

from runner.schema.choices import (
    Attention,
    Backend,
    KernelClass,
    Mode,
    Optimizer,
    Precision,
    TraceOrigin,
    WeightsDtype,
)
from runner.schema.columns import Cell, column, required
from runner.schema.runs import Detail, Row


@dataclass(frozen=True, kw_only=True)
class ProfileCell(Cell):
    """One end-to-end Transformer step under the profiler, after the same step without it."""

    d_model: int = required("Model width", "", "Width of the residual stream.")
    d_ff: int = required("Feed-forward width", "", "Inner width of the SwiGLU feed-forward layer.")
    layers: int = required("Layers", "", "Number of Transformer blocks.")
    heads: int = required("Heads", "", "Attention heads; each is d_model / heads wide.")
    vocabulary: int = column("Vocabulary", "tokens", "Size of the token vocabulary.", 10_000)
    batch: int = column("Batch", "sequences", "Sequences in one step.", 4)
    context: int = required("Context", "tokens", "Tokens of each sequence.")
    mode: Mode = required("Mode", "", "inference, forward with its graph, backward, or the whole training step.")
    precision: Precision = required("Precision", "", "fp32, tf32, or bf16 and fp16 as autocast over the weights.")
    weights_dtype: WeightsDtype = column("Weights", "", "The dtype in which the parameters are held.", "fp32")
    backend: Backend = column("Backend", "", "eager, or what torch.compile was applied to and in which mode.", "eager")
    attention: Attention = column("Attention", "", "Attention implementation by name.", "naive")
    optimizer: Optimizer = column("Optimizer", "", "AdamW implementation.", "foreach")
    checkpoint_blocks: int = column(
        "Checkpointing", "blocks", "Blocks recomputed together; 0 keeps all activations.", 0, least=0
    )


@dataclass(frozen=True, kw_only=True)
class ProfileRow(ProfileCell, Row):
    """What the profiled pass says of a step; its kernels are in `kernels`. Whatever is said of kernels is of one step,
    the profiled one with the median duration, so that it adds up."""

    steps: int | None = column("Profiled steps", "steps", "Steps under the profiler, of which the median one counts.")
    unprofiled_step_ms: float | None = column(
        "Step, unprofiled", "ms", "Median of the same step just before, without the profiler, in the same process."
    )
    profiled_step_ms: float | None = column(
        "Step, profiled", "ms", "Median of the steps under the profiler. Never shown as the step's time."
    )
    overhead_share: float | None = column(
        "Profiling overhead", "", "Profiled step over unprofiled step, minus 1; what profiling cost."
    )
    kernel_ms: float | None = column(
        "Kernel time", "ms", "Sum of the times of all kernels of one step; of all operators, each its own, on a CPU."
    )
    busy_ms: float | None = column(
        "Device busy", "ms", "Time of one step in which at least one kernel ran; overlapping kernels count once."
    )
    busy_share: float | None = column(
        "Device busy share", "", "Device busy over the unprofiled step; on a CPU, over the profiled step."
    )
    host_bound_share: float | None = column(
        "Host-bound share", "", "1 minus the busy share: the device waits for the host. Unknown on a CPU."
    )
    attributed_share: float | None = column(
        "Attributed", "", "Share of the kernel time that is known to belong to a phase."
    )
    kernel_calls: int | None = column("Kernels", "", "Kernels launched by one step; operators, on a CPU.")
    graph_breaks: int | None = column("Graph breaks", "", "Where the compiler split the graph; compiled cells only.")
    recompiles: int | None = column("Recompiles", "", "Graphs compiled after the warm-up; compiled cells only.")
    predicted_peak_bytes: int | None = column("Predicted peak", "bytes", "Peak memory predicted before the run.")
    build_seconds: float | None = column("Build time", "s", "Making the model, the optimizer and the data.")
    measure_seconds: float | None = column("Measuring time", "s", "The unprofiled and the profiled steps.")


@dataclass(frozen=True, kw_only=True)
class TraceRow(Detail):
    """One trace with kernels in `kernels`: a profiled cell's, or one that somebody else recorded."""

    origin: TraceOrigin = required("Origin", "", "Who recorded it.")
    title: str = required("Title", "", "The cell in words, or the imported file's name.")
    kernels: int = required("Different kernels", "", "Rows of this trace in `kernels`.")
    kernel_ms: float = required("Kernel time", "ms", "Sum over its kernels, per step where steps are known.")
    steps: int | None = column("Steps", "steps", "Steps that times and calls were divided by; unknown: by none.")


@dataclass(frozen=True, kw_only=True)
class KernelRow(Detail):
    """One kernel within one phase and one named range of a trace, per step. On a CPU: one operator, its own time."""

    phase: str = required("Phase", "", "forward, loss, backward, optimizer; `unknown` where nothing says so.")
    scope: str = required(
        "Range", "", "The innermost named range that launched it, or whose backward it is; empty for none."
    )
    kernel: str = required("Kernel", "", "The kernel's own name; the operator's, on a CPU.")
    kernel_class: KernelClass = required("Class", "", "What kind of work it does.")
    calls: float = required("Calls", "", "Launches per step.", least=0)
    device_ms: float = required("Time", "ms", "Time on the device per step, all calls together.")
    operator: str | None = column("Operator", "", "The PyTorch operator that launched it.")
    flops: int | None = column(
        "FLOPs",
        "FLOP",
        "Operations of all its calls in one step, where shapes say so: 2 m k n of a matrix product, 5 an element of "
        "softmax, 4 of its backward, 1 of a sum or product; fused attention as FlashAttention counts, half if causal.",
    )
    moved_bytes: int | None = column(
        "Bytes moved", "bytes", "Inputs read once and outputs written once, where the shapes say so."
    )
