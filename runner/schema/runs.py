"""Defines what belongs to any sweep and any cell: the run, timings, samples, ceilings, the plan, telemetry, notes."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from runner.schema.cells import Detail
from runner.schema.choices import Ceiling, Moment, NoteKind, Phase, PlanState, Precision, Source, Status
from runner.schema.columns import column, describe


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One sweep on one machine."""

    run_id: UUID = field(metadata=describe("Run", "", "This sweep (UUIDv7)."))
    sweep_key: str = field(metadata=describe("Sweep key", "", "Hash of what is asked and where; finds the run again."))
    source: Source = column("Source", "", "measured here, a published table, or imported.", default="measured")
    label: str | None = column("Label", "", "What the person who ran it called it.", longest=1000)
    preset: str | None = column("Preset", "", "The named plan it started from.")
    argv: str | None = column("Command", "", "The command line that ran it.")
    started_at: datetime | None = column("Started", "", "When the sweep began (UTC).")
    host: str | None = column("Host", "", "Name of the machine.")
    os: str | None = column("Operating system", "", "Operating system and kernel release.")
    device: str | None = column("Device", "", "cuda, cpu or mps.")
    device_name: str | None = column("Device name", "", "The GPU's or CPU's own name.")
    device_uuid: str | None = column("Device UUID", "", "The GPU's own number; two of one host may have one name.")
    places: int | None = column("Places", "", "GPUs of this host that one sweep used at once (`--engine ray`).")
    device_memory_bytes: int | None = column(
        "Device memory", "bytes", "Memory of the GPU; on a CPU, of the machine or its container."
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
    cpu_cores: int | None = column("CPU cores", "", "Cores that this process and its container may use.")
    cpu_flags: str | None = column("CPU flags", "", "The processor's vector and matrix instruction sets.")
    memory_bytes: int | None = column("Machine memory", "bytes", "Memory of the machine.")
    compiler: str | None = column("C++ compiler", "", "The compiler torch.compile uses on a CPU.")
    allocator: str | None = column("Allocator settings", "", "PYTORCH_ALLOC_CONF; on a CPU, glibc's MALLOC_ ones.")
    threads: int | None = column("Threads", "", "Threads that torch computes with.")
    omp_wait_policy: str | None = column("OpenMP wait policy", "", "What idle OpenMP threads do.")
    ingested_at: datetime | None = column("Ingested", "", "When the row reached this file (UTC).")


@dataclass(frozen=True, kw_only=True)
class TimingRow(Detail):
    """One phase of one cell, summed up over its measured steps."""

    phase: Phase = field(metadata=describe("Phase", "", "Phase of the step, or the sum forward_backward or step."))
    n: int | None = column("Samples", "steps", "Measured steps; warm-up not counted.")
    median_ms: float | None = column("Median", "ms", "Median over the measured steps.")
    mean_ms: float | None = column("Mean", "ms", "Mean over the measured steps.")
    std_ms: float | None = column("Std", "ms", "Sample standard deviation (n - 1).")
    low_ms: float | None = column("Median, low", "ms", "Lower end of the median's 95% interval, by order statistics.")
    high_ms: float | None = column("Median, high", "ms", "Upper end of the median's 95% interval, by order statistics.")
    host_median_ms: float | None = column(
        "Host median",
        "ms",
        "Median by the host's clock: for `step`, around the synchronized step; for a phase, until the host had issued "
        "its work.",
    )
    clock: str | None = column("Clock", "", "cuda-event, mps-event or host.")
    loop_ms: float | None = column(
        "Median in a loop",
        "ms",
        "Median over steps that follow each other without waiting, as in training; CUDA only. Elsewhere the call "
        "returns when its work is done, so that a loop takes what its steps take.",
    )
    device_ms: float | None = column(
        "Device time",
        "ms",
        "What the device needs if it never waits for the host: its kernels, traced, and the gap that a CUDA graph "
        "leaves between two; CUDA only.",
    )
    undisturbed_ms: float | None = column(
        "Undisturbed",
        "ms",
        "10th percentile over the measured steps; CPU only. Neighbors of a CPU only add time, so that it differs less "
        "from process to process than the median.",
    )


@dataclass(frozen=True, kw_only=True)
class SampleRow(Detail):
    """One phase of one step, warm-up steps included."""

    phase: Phase = field(metadata=describe("Phase", "", "Phase of the step."))
    step: int = field(metadata=describe("Step", "", "Which step since the process began, from 0; warm-up counts."))
    is_warmup: bool = field(metadata=describe("Warm-up", "", "Whether the step was one of the warm-up steps."))
    duration_ms: float = field(metadata=describe("Time", "ms", "Time of the phase by the clock that `timings` names."))
    host_ms: float | None = column("Host time", "ms", "Time of the phase by the host's clock.")


@dataclass(frozen=True, kw_only=True)
class TelemetryRow(Detail):
    """The GPU at one moment of a cell, as the driver sees it; NVIDIA only."""

    at_seconds: float = field(
        metadata=describe("Time into the cell", "s", "Time since the cell's process was started.")
    )
    sm_clock_mhz: int | None = column("SM clock", "MHz", "Clock of the multiprocessors.")
    memory_clock_mhz: int | None = column("Memory clock", "MHz", "Clock of the memory.")
    power_watts: float | None = column("Power", "W", "Power drawn by the board.")
    temperature_celsius: int | None = column("Temperature", "°C", "Temperature of the GPU.", least=-273)
    throttle_reasons: str | None = column("Throttled by", "", "Why the clocks were held down, comma separated.")
    foreign_processes: int | None = column("Foreign processes", "", "Processes on the GPU that are not this cell's.")


@dataclass(frozen=True, kw_only=True)
class CeilingRow:
    """The highest measured rate of products or of copies on this machine, at the start or the end of a sweep."""

    run_id: UUID = field(metadata=describe("Run", "", "The sweep that measured it."))
    moment: Moment = field(metadata=describe("Moment", "", "Before the first cell or after the last."))
    name: str = field(metadata=describe("Ceiling", "", "matmul and its precision, or copy."))
    ceiling: Ceiling = field(metadata=describe("What", "", "Product of two n×n matrices, or a copy on the device."))
    precision: Precision | None = column("Precision", "", "dtype of the matrices; none for a copy.")
    size: int | None = column("Size", "", "n of the n×n matrices, or bytes copied, that was fastest of those tried.")
    flops_per_s: float | None = column("Rate", "FLOP/s", "2 n³ over the median time.")
    bytes_per_s: float | None = column("Bandwidth", "bytes/s", "Bytes read and bytes written over the median time.")
    interval_share: float | None = column(
        "Interval / median", "", "Width of the median's 95% interval, as a share of it."
    )
    datasheet_flops_per_s: float | None = column("Datasheet rate", "FLOP/s", "The dense peak its document states.")
    datasheet_bytes_per_s: float | None = column("Datasheet bandwidth", "bytes/s", "What its document states.")
    datasheet: str | None = column("Datasheet", "", "Title of that document.")
    ingested_at: datetime | None = column("Ingested", "", "When the row reached this file (UTC).")


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One cell of a sweep that is running or was interrupted. It is stored in the spool, not in the file."""

    run_id: UUID = field(metadata=describe("Run", "", "The sweep that owes it."))
    position: int = field(metadata=describe("Position", "", "Place in the order of measuring, from 0."))
    experiment: str = field(metadata=describe("Experiment", "", "The experiment that asked for it."))
    cell_key: str = field(metadata=describe("Cell key", "", "Hash of what is asked for."))
    round: int = field(metadata=describe("Round", "", "Which of the interleaved repetitions."))
    title: str = field(metadata=describe("Cell to measure", "", "The cell in words."))
    state: PlanState = field(metadata=describe("State", "", "waiting, running or done."))
    status: Status | None = column("Status", "", "How it ended, once done.")
    seconds: float | None = column("Time", "s", "Measured once done, predicted before.")
    heartbeat_at: datetime | None = column("Heartbeat", "", "When the sweep last said that it is alive (UTC).")


@dataclass(frozen=True, kw_only=True)
class NoteRow:
    """One note on a run or one of its cells: a note, a name, a tag, the baseline, a hidden run. Rows are only ever
    added, so that files merge: taking back a note adds a row, too."""

    note_id: UUID = field(metadata=describe("Note", "", "This note (UUIDv7)."))
    run_id: UUID = field(metadata=describe("Run", "", "The run that it is about, or that measured the cell."))
    noted_cell_id: UUID | None = column("Noted cell", "", "The cell that it is about; none for a run.")
    kind: NoteKind = column(
        "Kind",
        "",
        "A note, the run's name, a tag, the pinned baseline, a hidden run, or what is taken back.",
        default="note",
    )
    text: str | None = column("Text", "", "What was said: the note, the name or the tag.", longest=10_000)
    removed_note_id: UUID | None = column("Takes back", "", "The note that a removal takes back.")
    written_at: datetime | None = column("Written", "", "When it was said (UTC).")
    ingested_at: datetime | None = column("Ingested", "", "When the row reached this file (UTC).")
