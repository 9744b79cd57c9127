"""What every table of cells shares: the run, the way a cell ended, its timings and samples, the plan, the telemetry."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from runner.schema.choices import Ceiling, Moment, Phase, PlanState, Precision, Source, Status
from runner.schema.columns import column, required


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
class RunRow:
    """One sweep on one machine."""

    run_id: UUID = required("Run", "", "This sweep (UUIDv7).")
    sweep_key: str = required("Sweep key", "", "Hash of what was asked and where; a sweep started again finds its run.")
    source: Source = column("Source", "", "measured here, transcribed from a published table, or imported.", "measured")
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
class Detail:
    """A row that belongs to a cell and came with it: its times, its samples, its allocations."""

    run_id: UUID = required("Run", "", "The run of the cell that it belongs to.")
    cell_id: UUID = required("Cell", "", "The cell, or the imported timeline, that it belongs to.")


@dataclass(frozen=True, kw_only=True)
class TimingRow(Detail):
    """One phase of one cell, summed up over its measured steps."""

    phase: Phase = required("Phase", "", "Phase of the step; forward_backward and step are sums taken step by step.")
    n: int | None = column("Samples", "steps", "Measured steps; warm-up not counted.")
    median_ms: float | None = column("Median", "ms", "Median over the measured steps.")
    mean_ms: float | None = column("Mean", "ms", "Mean over the measured steps.")
    std_ms: float | None = column("Std", "ms", "Sample standard deviation (n - 1).")
    low_ms: float | None = column("Median, low", "ms", "Lower end of the median's 95% interval, by order statistics.")
    high_ms: float | None = column("Median, high", "ms", "Upper end of the median's 95% interval, by order statistics.")
    host_median_ms: float | None = column(
        "Host median",
        "ms",
        "Median by the host's clock: for `step`, around the "
        "synchronized step; for a phase, until the host had issued its work.",
    )
    clock: str | None = column("Clock", "", "cuda-event, mps-event or host.")


@dataclass(frozen=True, kw_only=True)
class SampleRow(Detail):
    """One phase of one step, warm-up steps included."""

    phase: Phase = required("Phase", "", "Phase of the step.")
    step: int = required("Step", "", "Which step since the process began, from 0; warm-up counts.")
    is_warmup: bool = required("Warm-up", "", "Whether the step was one of the warm-up steps.")
    duration_ms: float = required("Time", "ms", "Time of the phase by the clock that `timings` names.")
    host_ms: float | None = column("Host time", "ms", "Time of the phase by the host's clock.")


@dataclass(frozen=True, kw_only=True)
class TelemetryRow(Detail):
    """The GPU at one moment of a cell, as the driver sees it; NVIDIA only."""

    at_seconds: float = required("Time into the cell", "s", "Seconds since the cell's process was started.")
    sm_clock_mhz: int | None = column("SM clock", "MHz", "Clock of the multiprocessors.")
    memory_clock_mhz: int | None = column("Memory clock", "MHz", "Clock of the memory.")
    power_watts: float | None = column("Power", "W", "Power drawn by the board.")
    temperature_celsius: int | None = column("Temperature", "°C", "Temperature of the GPU.", least=-273)
    throttle_reasons: str | None = column(
        "Throttled by", "", "Why the clocks were held down, comma separated; empty if not."
    )
    foreign_processes: int | None = column("Foreign processes", "", "Processes on the GPU that are not this cell's.")


@dataclass(frozen=True, kw_only=True)
class CeilingRow:
    """The fastest that this machine was seen to multiply or to copy, at the start or the end of a sweep."""

    run_id: UUID = required("Run", "", "The sweep that measured it.")
    moment: Moment = required("Moment", "", "Before the first cell or after the last.")
    name: str = required("Ceiling", "", "matmul and its precision, or copy.")
    ceiling: Ceiling = required("What", "", "Matrix product of two n×n, or a copy within the device's memory.")
    precision: Precision | None = column("Precision", "", "dtype of the matrices; none for a copy.")
    size: int | None = column("Size", "", "n of the n×n matrices, or bytes copied, that was fastest of those tried.")
    flops_per_s: float | None = column("Rate", "FLOP/s", "2 n³ over the median time.")
    bytes_per_s: float | None = column("Bandwidth", "bytes/s", "Bytes read and bytes written over the median time.")
    interval_share: float | None = column("Interval / median", "", "Width of the median's 95% interval over it.")
    datasheet_flops_per_s: float | None = column("Datasheet rate", "FLOP/s", "The dense peak its document states.")
    datasheet_bytes_per_s: float | None = column("Datasheet bandwidth", "bytes/s", "What its document states.")
    datasheet: str | None = column("Datasheet", "", "Title of that document.")
    ingested_at: datetime | None = column("Ingested", "", "When the row reached this file (UTC).")


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
