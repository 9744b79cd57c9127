"""Defines what belongs to any sweep and any cell: the run, timings and samples, ceilings, the plan, the telemetry."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from uuid import UUID

from runner.schema.cells import Detail
from runner.schema.choices import Ceiling, Moment, Phase, PlanState, Precision, Source, Status
from runner.schema.columns import Column
from runner.schema.tables import Table


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One sweep on one machine."""

    run_id: Annotated[UUID, Column("Run", "", "This sweep (UUIDv7).")]
    sweep_key: Annotated[
        str, Column("Sweep key", "", "Hash of what was asked and where; a sweep started again finds its run.")
    ]
    source: Annotated[
        Source, Column("Source", "", "measured here, transcribed from a published table, or imported.")
    ] = "measured"
    label: Annotated[str | None, Column("Label", "", "What the person who ran it called it.")] = None
    preset: Annotated[str | None, Column("Preset", "", "The named plan it started from.")] = None
    argv: Annotated[str | None, Column("Command", "", "The command line that ran it.")] = None
    started_at: Annotated[datetime | None, Column("Started", "", "When the sweep began (UTC).")] = None
    host: Annotated[str | None, Column("Host", "", "Name of the machine.")] = None
    os: Annotated[str | None, Column("Operating system", "", "Operating system and kernel release.")] = None
    device: Annotated[str | None, Column("Device", "", "cuda, cpu or mps.")] = None
    device_name: Annotated[str | None, Column("Device name", "", "The GPU's or CPU's own name.")] = None
    device_memory_bytes: Annotated[
        int | None, Column("Device memory", "bytes", "Memory of the device; on a CPU, of the machine or its container.")
    ] = None
    compute_capability: Annotated[str | None, Column("Compute capability", "", "NVIDIA's, such as 9.0.")] = None
    driver: Annotated[str | None, Column("Driver", "", "GPU driver version.")] = None
    cuda: Annotated[str | None, Column("CUDA", "", "CUDA version that torch was built for.")] = None
    torch: Annotated[str | None, Column("torch", "", "Version of torch.")] = None
    python: Annotated[str | None, Column("Python", "", "Version of Python.")] = None
    stepscope: Annotated[str | None, Column("Stepscope", "", "Version of Stepscope.")] = None
    git_commit: Annotated[str | None, Column("Commit", "", "Commit of the Stepscope checkout that ran.")] = None
    git_dirty: Annotated[
        bool | None, Column("Uncommitted changes", "", "Whether that checkout had uncommitted changes.")
    ] = None
    cpu_name: Annotated[str | None, Column("CPU", "", "The processor's name.")] = None
    cpu_cores: Annotated[
        int | None,
        Column("CPU cores", "", "Cores this process may run on, as far as its container's quota pays for them."),
    ] = None
    cpu_flags: Annotated[str | None, Column("CPU flags", "", "The processor's vector and matrix instruction sets.")] = (
        None
    )
    memory_bytes: Annotated[int | None, Column("Machine memory", "bytes", "Memory of the machine.")] = None
    compiler: Annotated[str | None, Column("C++ compiler", "", "The compiler torch.compile uses on a CPU.")] = None
    allocator: Annotated[
        str | None,
        Column("Allocator settings", "", "PYTORCH_ALLOC_CONF or, on a CPU, glibc's MALLOC_ variables; read back."),
    ] = None
    threads: Annotated[int | None, Column("Threads", "", "Threads that torch computes with.")] = None
    omp_wait_policy: Annotated[str | None, Column("OpenMP wait policy", "", "What idle OpenMP threads do.")] = None
    ingested_at: Annotated[datetime | None, Column("Ingested", "", "When the row reached this file (UTC).")] = None


@dataclass(frozen=True, kw_only=True)
class TimingRow(Detail):
    """One phase of one cell, summed up over its measured steps."""

    phase: Annotated[
        Phase, Column("Phase", "", "Phase of the step; forward_backward and step are sums taken step by step.")
    ]
    n: Annotated[int | None, Column("Samples", "steps", "Measured steps; warm-up not counted.")] = None
    median_ms: Annotated[float | None, Column("Median", "ms", "Median over the measured steps.")] = None
    mean_ms: Annotated[float | None, Column("Mean", "ms", "Mean over the measured steps.")] = None
    std_ms: Annotated[float | None, Column("Std", "ms", "Sample standard deviation (n - 1).")] = None
    low_ms: Annotated[
        float | None, Column("Median, low", "ms", "Lower end of the median's 95% interval, by order statistics.")
    ] = None
    high_ms: Annotated[
        float | None, Column("Median, high", "ms", "Upper end of the median's 95% interval, by order statistics.")
    ] = None
    host_median_ms: Annotated[
        float | None,
        Column(
            "Host median",
            "ms",
            "Median by the host's clock: for `step`, around the "
            "synchronized step; for a phase, until the host had issued its work.",
        ),
    ] = None
    clock: Annotated[str | None, Column("Clock", "", "cuda-event, mps-event or host.")] = None
    loop_ms: Annotated[
        float | None,
        Column(
            "Median in a loop",
            "ms",
            "Median over steps that follow each other without waiting, as in training; CUDA only. Elsewhere the call "
            "returns when its work is done, so that a loop takes what its steps take.",
        ),
    ] = None
    device_ms: Annotated[
        float | None,
        Column(
            "Device time",
            "ms",
            "What the device needs if it never waits for the host: its kernels, traced, and the gap that a CUDA graph "
            "leaves between two; CUDA only.",
        ),
    ] = None
    undisturbed_ms: Annotated[
        float | None,
        Column(
            "Undisturbed",
            "ms",
            "10th percentile over the measured steps; CPU only. Neighbors of a CPU only add time, so that it differs "
            "less from process to process than the median.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SampleRow(Detail):
    """One phase of one step, warm-up steps included."""

    phase: Annotated[Phase, Column("Phase", "", "Phase of the step.")]
    step: Annotated[int, Column("Step", "", "Which step since the process began, from 0; warm-up counts.")]
    is_warmup: Annotated[bool, Column("Warm-up", "", "Whether the step was one of the warm-up steps.")]
    duration_ms: Annotated[float, Column("Time", "ms", "Time of the phase by the clock that `timings` names.")]
    host_ms: Annotated[float | None, Column("Host time", "ms", "Time of the phase by the host's clock.")] = None


@dataclass(frozen=True, kw_only=True)
class TelemetryRow(Detail):
    """The GPU at one moment of a cell, as the driver sees it; NVIDIA only."""

    at_seconds: Annotated[float, Column("Time into the cell", "s", "Seconds since the cell's process was started.")]
    sm_clock_mhz: Annotated[int | None, Column("SM clock", "MHz", "Clock of the multiprocessors.")] = None
    memory_clock_mhz: Annotated[int | None, Column("Memory clock", "MHz", "Clock of the memory.")] = None
    power_watts: Annotated[float | None, Column("Power", "W", "Power drawn by the board.")] = None
    temperature_celsius: Annotated[int | None, Column("Temperature", "°C", "Temperature of the GPU.", least=-273)] = (
        None
    )
    throttle_reasons: Annotated[
        str | None, Column("Throttled by", "", "Why the clocks were held down, comma separated; empty if not.")
    ] = None
    foreign_processes: Annotated[
        int | None, Column("Foreign processes", "", "Processes on the GPU that are not this cell's.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class CeilingRow:
    """The highest measured rate of products or of copies on this machine, at the start or the end of a sweep."""

    run_id: Annotated[UUID, Column("Run", "", "The sweep that measured it.")]
    moment: Annotated[Moment, Column("Moment", "", "Before the first cell or after the last.")]
    name: Annotated[str, Column("Ceiling", "", "matmul and its precision, or copy.")]
    ceiling: Annotated[Ceiling, Column("What", "", "Matrix product of two n×n, or a copy within the device's memory.")]
    precision: Annotated[Precision | None, Column("Precision", "", "dtype of the matrices; none for a copy.")] = None
    size: Annotated[
        int | None, Column("Size", "", "n of the n×n matrices, or bytes copied, that was fastest of those tried.")
    ] = None
    flops_per_s: Annotated[float | None, Column("Rate", "FLOP/s", "2 n³ over the median time.")] = None
    bytes_per_s: Annotated[
        float | None, Column("Bandwidth", "bytes/s", "Bytes read and bytes written over the median time.")
    ] = None
    interval_share: Annotated[
        float | None, Column("Interval / median", "", "Width of the median's 95% interval over it.")
    ] = None
    datasheet_flops_per_s: Annotated[
        float | None, Column("Datasheet rate", "FLOP/s", "The dense peak its document states.")
    ] = None
    datasheet_bytes_per_s: Annotated[
        float | None, Column("Datasheet bandwidth", "bytes/s", "What its document states.")
    ] = None
    datasheet: Annotated[str | None, Column("Datasheet", "", "Title of that document.")] = None
    ingested_at: Annotated[datetime | None, Column("Ingested", "", "When the row reached this file (UTC).")] = None


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One cell of a sweep that is running or was interrupted. It is stored in the spool, not in the file."""

    run_id: Annotated[UUID, Column("Run", "", "The sweep that owes it.")]
    position: Annotated[int, Column("Position", "", "Place in the order of measuring, from 0.")]
    experiment: Annotated[str, Column("Experiment", "", "The experiment that asked for it.")]
    cell_key: Annotated[str, Column("Cell key", "", "Hash of what is asked for.")]
    round: Annotated[int, Column("Round", "", "Which of the interleaved repetitions.")]
    title: Annotated[str, Column("Cell to measure", "", "The cell in words.")]
    state: Annotated[PlanState, Column("State", "", "waiting, running or done.")]
    status: Annotated[Status | None, Column("Status", "", "How it ended, once done.")] = None
    seconds: Annotated[float | None, Column("Time", "s", "Measured once done, predicted before.")] = None
    heartbeat_at: Annotated[
        datetime | None, Column("Heartbeat", "", "When the sweep last said that it is alive (UTC).")
    ] = None


TABLES = (
    Table(name="runs", row=RunRow, unique=("run_id",), doc="One sweep on one machine."),
    Table(name="timings", row=TimingRow, unique=("cell_id", "phase"), doc="One phase of a cell, summed up."),
    Table(
        name="samples",
        row=SampleRow,
        unique=("cell_id", "phase", "step"),
        doc="Every step of every phase, warm-up included.",
    ),
    Table(
        name="ceilings",
        row=CeilingRow,
        unique=("run_id", "moment", "name"),
        doc="Measured matrix rate per precision and copy bandwidth, at a sweep's start and end.",
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
