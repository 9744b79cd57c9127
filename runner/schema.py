"""The contract: every table, every column, with its label, unit and meaning.

A *cell* is what was asked for (`StepCell`); a *row* is a cell with what came of it (`StepRow`). Everything else that
knows a column's name or type derives it from here: the DDL, `data/README.md`, axis titles, filters, tests.

    >>> from runner.schema import TABLES
    >>> [column.name for column in TABLES["timings"].columns if column.unit == "ms"]
    ['median_ms', 'mean_ms', 'std_ms', 'low_ms', 'high_ms', 'host_median_ms']

Standard library only, so that whoever reads rows needs neither torch nor DuckDB. Columns are only ever added: never
renamed, removed or retyped. Unknown is None (NULL), never 0, -1 or NaN. Times of day are naive UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from runner.columns import Cell, column, required
from runner.columns import Column as Column
from runner.columns import Table as Table
from runner.columns import new_id as new_id
from runner.columns import utc_now as utc_now

Mode = Literal["inference", "forward", "backward", "train"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
WeightsDtype = Literal["fp32", "bf16"]
Backend = Literal["eager", "compiled", "compiled-block", "compiled-reduce-overhead", "compiled-max-autotune"]
Attention = Literal["naive", "sdpa", "sdpa-math", "sdpa-flash", "sdpa-efficient", "sdpa-cudnn"]
Optimizer = Literal["foreach", "for-loop", "fused"]
Phase = Literal["forward", "loss", "backward", "optimizer", "forward_backward", "step"]
Status = Literal["ok", "oom", "timeout", "crashed", "error", "skipped"]
StoppedBy = Literal["interval", "max_steps", "max_seconds"]
Source = Literal["measured", "published"]
PlanState = Literal["waiting", "running", "done"]

#: The phases that one step of each mode passes through, in order. `forward_backward` and `step` are sums of them,
#: kept as phases of their own because medians do not add.
PHASES: Mapping[Mode, tuple[Phase, ...]] = {
    "inference": ("forward",),
    "forward": ("forward",),
    "backward": ("forward", "loss", "backward"),
    "train": ("forward", "loss", "backward", "optimizer"),
}

#: Statuses after which a cell counts as done; the others are tried again by the next sweep.
DONE: frozenset[Status] = frozenset({"ok", "oom", "skipped"})


@dataclass(frozen=True, kw_only=True)
class StepCell(Cell):
    """One end-to-end Transformer step."""

    d_model: int = required("Model width", "", "Width of the residual stream.")
    d_ff: int = required("Feed-forward width", "", "Inner width of the SwiGLU feed-forward layer.")
    layers: int = required("Layers", "", "Number of Transformer blocks.")
    heads: int = required("Heads", "", "Attention heads; each is d_model / heads wide.")
    vocabulary: int = column("Vocabulary", "tokens", "Size of the token vocabulary.", 10_000)
    batch: int = column("Batch", "sequences", "Sequences in one step.", 4)
    context: int = required("Context", "tokens", "Tokens of each sequence.")
    mode: Mode = required(
        "Mode",
        "",
        "inference: forward under no_grad; forward: with its graph; backward: forward, "
        "loss and backward; train: and the optimizer step.",
    )
    precision: Precision = required(
        "Precision",
        "",
        "fp32 is IEEE; tf32 rounds matrix products' inputs to 10 bits; "
        "bf16 and fp16 are autocast over the weights (fp16 with a gradient scaler).",
    )
    weights_dtype: WeightsDtype = column("Weights", "", "The dtype in which the parameters are held.", "fp32")
    backend: Backend = column("Backend", "", "eager, or what torch.compile was applied to and in which mode.", "eager")
    attention: Attention = column("Attention", "", "Attention implementation by name.", "naive")
    optimizer: Optimizer = column("Optimizer", "", "AdamW implementation.", "foreach")
    checkpoint_blocks: int = column(
        "Checkpointing", "blocks", "Blocks recomputed together in the backward pass; 0 keeps every activation.", 0
    )
    warmup_steps: int = column("Warm-up", "steps", "Steps run before the measured ones; their samples are kept too.", 5)
    min_steps: int = column("Steps, at least", "steps", "Measured steps before the cell may end.", 10)
    max_steps: int = column("Steps, at most", "steps", "Measured steps after which the cell ends.", 200)
    max_seconds: float = column(
        "Time, at most", "s", "Measuring time after which the cell ends, once it has its least number of steps.", 10.0
    )


@dataclass(frozen=True, kw_only=True)
class Row:
    """What came of a cell, whichever experiment asked. A failure keeps its whole key, the phase and the message."""

    run_id: UUID = required("Run", "", "The sweep that measured this row.")
    cell_id: UUID = required("Cell", "", "This row's own id (UUIDv7).")
    cell_key: str = required("Cell key", "", "Hash of what was asked for; repeats and rounds share it.")
    round: int = column("Round", "", "Which of the interleaved repetitions this is, from 0.", 0)
    status: Status = required("Status", "", "ok, or the way in which the cell ended without a result.")
    failed_phase: str | None = column("Failed in", "", "What the cell was doing when it failed.")
    message: str | None = column("Message", "", "Why the cell has no result, in one sentence or the error's own words.")
    started_at: datetime | None = column("Started", "", "When the cell's process was started (UTC).")
    cell_seconds: float | None = column("Cell time", "s", "From the start of the cell's process to its row.")
    ingested_at: datetime | None = column("Ingested", "", "When the row reached this file (UTC).")


@dataclass(frozen=True, kw_only=True)
class StepRow(StepCell, Row):
    """One measured end-to-end cell; its times are in `timings`, its raw samples in `samples`."""

    parameters: int | None = column("Parameters", "", "Number of trainable parameters, counted in the built model.")
    steps: int | None = column("Measured steps", "steps", "Measured steps; warm-up not counted.")
    stopped_by: StoppedBy | None = column(
        "Stopped by",
        "",
        "Why measuring ended: the interval of the median was narrow "
        "enough, or the limit on steps or seconds was reached.",
    )
    interval_share: float | None = column(
        "Interval / median", "", "Width of the 95 % interval of the median step, as a share of that median."
    )
    tokens_per_s: float | None = column("Throughput", "tokens/s", "Tokens of one step over the median step.")
    step_flops: int | None = column(
        "FLOPs of a step", "FLOP", "Matrix-product operations of one step, recomputation included, predicted."
    )
    flops_per_s: float | None = column("Achieved rate", "FLOP/s", "Predicted FLOPs over the median step.")
    mfu: float | None = column(
        "MFU",
        "",
        "Model FLOPs, recomputation not counted, per second of the median step, over the datasheet's dense peak for "
        "this precision; unknown where no datasheet figure is known.",
    )
    phase_sum_share: float | None = column(
        "Phases / step",
        "",
        "Median over steps of the sum of the phases divided by the host clock around the same synchronized step.",
    )
    build_seconds: float | None = column("Build time", "s", "Making the model, the optimizer and the data.")
    warmup_seconds: float | None = column("Warm-up time", "s", "The warm-up steps, compilation included.")
    measure_seconds: float | None = column("Measuring time", "s", "The measured steps.")
    compile_seconds: float | None = column(
        "Compile time", "s", "First step minus the median measured step; compiled cells only."
    )
    recompiles: int | None = column("Recompiles", "", "Graphs compiled after the warm-up; compiled cells only.")
    compiler_fallback: bool | None = column(
        "Fell back to eager", "", "Whether the compiler gave up on a frame and ran it eagerly; compiled cells only."
    )
    loss: float | None = column("Loss", "nats", "Cross-entropy of the last measured step.")
    logits_dtype: str | None = column("Logits dtype", "", "dtype of the model's output, read from the run.")
    matmul_precision: str | None = column(
        "Matmul precision", "", "What torch says of float32 matrix products after the run: ieee or tf32."
    )
    predicted_peak_bytes: int | None = column("Predicted peak", "bytes", "Peak memory predicted before the run.")
    peak_allocated_bytes: int | None = column("Peak allocated", "bytes", "Peak of live tensors (CUDA allocator).")
    peak_reserved_bytes: int | None = column("Peak reserved", "bytes", "Peak held by the CUDA caching allocator.")
    peak_resident_bytes: int | None = column("Peak resident", "bytes", "Peak resident memory of the worker process.")
    threads: int | None = column("Threads", "", "Threads that torch computes with.")
    omp_wait_policy: str | None = column(
        "OpenMP wait policy", "", "What idle OpenMP threads do; ACTIVE ones spin and slow their neighbours."
    )
    cpu_capability: str | None = column("CPU kernels", "", "Instruction set of torch's CPU kernels, read back.")
    other_cpu_share: float | None = column(
        "CPU taken by others",
        "",
        "Share of the machine's CPU time that other processes used while this cell was measured.",
    )


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One sweep on one machine."""

    run_id: UUID = required("Run", "", "This sweep (UUIDv7).")
    sweep_key: str = required("Sweep key", "", "Hash of what was asked and where; a sweep started again finds its run.")
    source: Source = column("Source", "", "measured here, or transcribed from a published table.", "measured")
    label: str | None = column("Label", "", "What the person who ran it called it.")
    preset: str | None = column("Preset", "", "The named plan it started from.")
    argv: str | None = column("Command", "", "The command line that ran it.")
    started_at: datetime | None = column("Started", "", "When the sweep began (UTC).")
    host: str | None = column("Host", "", "Name of the machine.")
    os: str | None = column("Operating system", "", "Operating system and kernel release.")
    device: str | None = column("Device", "", "cuda, cpu or mps.")
    device_name: str | None = column("Device name", "", "The GPU's or CPU's own name.")
    device_memory_bytes: int | None = column(
        "Device memory", "bytes", "Memory of the device; of the machine, on a CPU."
    )
    compute_capability: str | None = column("Compute capability", "", "NVIDIA's, such as 9.0.")
    driver: str | None = column("Driver", "", "GPU driver version.")
    cuda: str | None = column("CUDA", "", "CUDA version that torch was built for.")
    torch: str | None = column("torch", "", "Version of torch.")
    python: str | None = column("Python", "", "Version of Python.")
    stepscope: str | None = column("Stepscope", "", "Version of Stepscope.")
    git_commit: str | None = column("Commit", "", "Commit of the Stepscope checkout that ran.")
    git_dirty: bool | None = column("Uncommitted changes", "", "Whether that checkout had uncommitted changes.")
    cpu_name: str | None = column("CPU", "", "The processor's name.")
    cpu_cores: int | None = column("CPU cores", "", "Cores this process may run on.")
    cpu_flags: str | None = column("CPU flags", "", "The processor's vector and matrix instruction sets.")
    memory_bytes: int | None = column("Machine memory", "bytes", "Memory of the machine.")
    compiler: str | None = column("C++ compiler", "", "The compiler torch.compile uses on a CPU.")
    allocator: str | None = column("Allocator settings", "", "PYTORCH_ALLOC_CONF, read back.")
    threads: int | None = column("Threads", "", "Threads that torch computes with.")
    omp_wait_policy: str | None = column("OpenMP wait policy", "", "What idle OpenMP threads do.")
    ingested_at: datetime | None = column("Ingested", "", "When the row reached this file (UTC).")


@dataclass(frozen=True, kw_only=True)
class TimingRow:
    """One phase of one cell, summed up over its measured steps."""

    run_id: UUID = required("Run", "", "The sweep that measured it.")
    cell_id: UUID = required("Cell", "", "The cell it belongs to.")
    phase: Phase = required("Phase", "", "Phase of the step; forward_backward and step are sums taken step by step.")
    n: int | None = column("Samples", "steps", "Measured steps; warm-up not counted.")
    median_ms: float | None = column("Median", "ms", "Median over the measured steps.")
    mean_ms: float | None = column("Mean", "ms", "Mean over the measured steps.")
    std_ms: float | None = column("Std", "ms", "Sample standard deviation (n - 1).")
    low_ms: float | None = column("Median, low", "ms", "Lower end of the median's 95 % interval, by order statistics.")
    high_ms: float | None = column(
        "Median, high", "ms", "Upper end of the median's 95 % interval, by order statistics."
    )
    host_median_ms: float | None = column(
        "Host median",
        "ms",
        "Median by the host's clock: for `step`, around the "
        "synchronized step; for a phase, until the host had issued its work.",
    )
    clock: str | None = column("Clock", "", "cuda-event, mps-event or host.")


@dataclass(frozen=True, kw_only=True)
class SampleRow:
    """One phase of one step, warm-up steps included."""

    run_id: UUID = required("Run", "", "The sweep that measured it.")
    cell_id: UUID = required("Cell", "", "The cell it belongs to.")
    phase: Phase = required("Phase", "", "Phase of the step.")
    step: int = required("Step", "", "Which step since the process began, from 0; warm-up counts.")
    is_warmup: bool = required("Warm-up", "", "Whether the step was one of the warm-up steps.")
    duration_ms: float = required("Time", "ms", "Time of the phase by the clock that `timings` names.")
    host_ms: float | None = column("Host time", "ms", "Time of the phase by the host's clock.")


@dataclass(frozen=True, kw_only=True)
class TelemetryRow:
    """The GPU at one moment of a cell, as the driver sees it; NVIDIA only."""

    run_id: UUID = required("Run", "", "The sweep that measured it.")
    cell_id: UUID = required("Cell", "", "The cell it belongs to.")
    at_seconds: float = required("Time into the cell", "s", "Seconds since the cell's process was started.")
    sm_clock_mhz: int | None = column("SM clock", "MHz", "Clock of the multiprocessors.")
    memory_clock_mhz: int | None = column("Memory clock", "MHz", "Clock of the memory.")
    power_watts: float | None = column("Power", "W", "Power drawn by the board.")
    temperature_celsius: int | None = column("Temperature", "°C", "Temperature of the GPU.")
    throttle_reasons: str | None = column(
        "Throttled by", "", "Why the clocks were held down, comma separated; empty if not."
    )
    foreign_processes: int | None = column("Foreign processes", "", "Processes on the GPU that are not this cell's.")


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One cell of a sweep that is running or was interrupted. Lives in the spool, beside the file."""

    run_id: UUID = required("Run", "", "The sweep that owes it.")
    position: int = required("Position", "", "Place in the order of measuring, from 0.")
    experiment: str = required("Experiment", "", "The experiment that asked for it.")
    cell_key: str = required("Cell key", "", "Hash of what is asked for.")
    round: int = required("Round", "", "Which of the interleaved repetitions.")
    title: str = required("Cell to measure", "", "The cell in words.")
    state: PlanState = required("State", "", "waiting, running or done.")
    status: Status | None = column("Status", "", "How it ended, once done.")
    seconds: float | None = column("Time", "s", "Measured once done, predicted before.")
    heartbeat_at: datetime | None = column("Heartbeat", "", "When the sweep last said that it is alive (UTC).")


TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table(name="runs", row=RunRow, unique=("run_id",), doc="One sweep on one machine."),
        Table(name="steps", row=StepRow, unique=("cell_id",), doc="One end-to-end Transformer cell."),
        Table(name="timings", row=TimingRow, unique=("cell_id", "phase"), doc="One phase of a cell, summed up."),
        Table(
            name="samples",
            row=SampleRow,
            unique=("cell_id", "phase", "step"),
            doc="Every step of every phase, warm-up included.",
        ),
        Table(
            name="telemetry",
            row=TelemetryRow,
            unique=("cell_id", "at_seconds"),
            doc="Clocks, power, temperature and neighbors on an NVIDIA GPU while a cell was measured.",
        ),
        Table(
            name="plan",
            row=PlanRow,
            unique=("run_id", "position"),
            stored=False,
            doc="The cells a running or interrupted sweep still owes, and its heartbeat.",
        ),
    )
}


def table_of(cell: Cell) -> Table:
    """The table whose rows answer such a cell."""
    return next(table for table in TABLES.values() if issubclass(table.row, type(cell)))
