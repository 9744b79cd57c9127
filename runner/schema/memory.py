"""The memory of a step: peaks and their parts, tensors saved for backward, and timelines."""

from dataclasses import dataclass
from typing import Annotated

from runner.schema import axes
from runner.schema.axes import Model
from runner.schema.cells import Cell, Detail, Row
from runner.schema.choices import Category, TimelineOrigin
from runner.schema.columns import MAX_WHOLE, Column
from runner.schema.tables import Table


@dataclass(frozen=True, kw_only=True)
class MemoryCell(Model, Cell):
    """The memory of one steady Transformer step, after a real optimizer step in mode train."""

    TITLE = "{context} · {mode} · {precision}"

    batch: axes.Batch = 4
    context: axes.Context
    mode: axes.Mode
    precision: axes.Precision
    weights_dtype: axes.Weights = "fp32"
    attention: axes.Attention = "naive"
    optimizer: axes.Optimizer = "foreach"
    checkpoint_blocks: axes.Checkpointing = 0
    timeline: Annotated[
        bool,
        Column(
            "Timeline",
            "",
            "Whether every allocation of the step is recorded, with its stack.",
            effort="least",
            flag=axes.TIMELINE,
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class MemoryRow(MemoryCell, Row):
    """The peaks of a step and the parts of the largest. Each part is counted; none is computed as the remainder."""

    peak_phase: Annotated[str | None, Column("Peak in", "", "Phase of the step in which the peak fell.")] = None
    peak_allocated_bytes: Annotated[int | None, Column("Peak allocated", "bytes", "Peak of live tensors.")] = None
    peak_reserved_bytes: Annotated[
        int | None, Column("Peak reserved", "bytes", "Peak held by the caching allocator; CUDA only.")
    ] = None
    peak_driver_bytes: Annotated[
        int | None, Column("Peak on the device", "bytes", "Peak by the driver, context included; CUDA only.")
    ] = None
    parameters_bytes: Annotated[int | None, Column("Parameters", "bytes", "Parameters alive at the peak.")] = None
    gradients_bytes: Annotated[int | None, Column("Gradients", "bytes", "Gradients alive at the peak.")] = None
    optimizer_state_bytes: Annotated[
        int | None, Column("Optimizer state", "bytes", "AdamW's two moments alive at the peak.")
    ] = None
    activations_bytes: Annotated[
        int | None, Column("Activations", "bytes", "Saved for backward and alive at the peak.")
    ] = None
    autocast_copies_bytes: Annotated[
        int | None, Column("Autocast copies", "bytes", "Half-width weight copies alive at the peak.")
    ] = None
    inputs_bytes: Annotated[int | None, Column("Inputs", "bytes", "Tokens, targets and tables alive at the peak.")] = (
        None
    )
    temporaries_bytes: Annotated[
        int | None, Column("Temporaries", "bytes", "Alive at the peak and kept for nothing.")
    ] = None
    workspace_bytes: Annotated[
        int | None,
        Column("Workspace", "bytes", "Held before the step and not the model's: scratch of libraries, step counters."),
    ] = None
    rounding_bytes: Annotated[
        int | None,
        Column(
            "Rounding",
            "bytes",
            "What CUDA's allocator adds to the sizes asked for, by its own counters, at the peak.",
            least=-MAX_WHOLE,
        ),
    ] = None
    fragmentation_bytes: Annotated[
        int | None,
        Column("Fragmentation", "bytes", "Reserved and not allocated at the peak; CUDA only.", least=-MAX_WHOLE),
    ] = None
    residual_bytes: Annotated[
        int | None, Column("Unexplained", "bytes", "Peak allocated minus the parts that are tensors.", least=-MAX_WHOLE)
    ] = None
    predicted_peak_bytes: Annotated[int | None, Column("Predicted peak", "bytes", "Peak by the closed formulas.")] = (
        None
    )
    residual_stream_bytes: Annotated[
        int | None, Column("One residual stream", "bytes", "B T d_model elements, as measured.")
    ] = None
    saved_bytes: Annotated[
        int | None,
        Column(
            "Saved for backward",
            "bytes",
            "Storages that autograd kept from the forward pass to the backward pass, each counted once.",
        ),
    ] = None
    block_saved_bytes: Annotated[
        int | None,
        Column(
            "Saved by one block",
            "bytes",
            "The same for the first block alone; where it is checkpointed, what it saves when backward runs it again.",
        ),
    ] = None
    build_seconds: Annotated[
        float | None, Column("Build time", "s", "Making the model, the optimizer and the data.")
    ] = None
    measure_seconds: Annotated[float | None, Column("Measuring time", "s", "The recorded steps.")] = None


@dataclass(frozen=True, kw_only=True)
class PhasePeakRow(Detail):
    """Peaks of memory within one phase of a memory cell's step."""

    phase: Annotated[str, Column("Phase", "", "forward, loss, backward or optimizer.")]
    peak_allocated_bytes: Annotated[
        int | None, Column("Peak allocated", "bytes", "Peak of live tensors within the phase.")
    ] = None
    peak_reserved_bytes: Annotated[
        int | None, Column("Peak reserved", "bytes", "Held by the caching allocator; CUDA only.")
    ] = None
    peak_driver_bytes: Annotated[
        int | None, Column("On the device", "bytes", "By the driver, context included; CUDA only.")
    ] = None
    end_allocated_bytes: Annotated[
        int | None, Column("Left at its end", "bytes", "Live tensors when the phase ended.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class SavedTensorRow(Detail):
    """One tensor that an operation of a model's first block, or of an attention cell, keeps for backward. A
    checkpointed block keeps it only during its own backward pass."""

    position: Annotated[int, Column("Position", "", "Order of saving, from 0.")]
    operation: Annotated[str, Column("Operation", "", "The operation whose backward needs it.")]
    module: Annotated[str | None, Column("Module", "", "Path of the module that ran the operation.")] = None
    tensor: Annotated[
        str | None, Column("Tensor", "", "queries, keys, values or output, where it is one; attention cells only.")
    ] = None
    shape: Annotated[str, Column("Shape", "", "Shape of the tensor, such as 4×128×768.")]
    dtype: Annotated[str, Column("dtype", "", "dtype of the tensor.")]
    storage_bytes: Annotated[
        int, Column("Size", "bytes", "Its storage; 0 where an earlier row holds the same storage.")
    ]


@dataclass(frozen=True, kw_only=True)
class TimelineRow(Detail):
    """One recorded memory timeline: that of a memory cell, or an imported one."""

    origin: Annotated[TimelineOrigin, Column("Origin", "", "Who recorded it.")]
    title: Annotated[str, Column("Title", "", "The cell in words, or the imported file's name.")]
    allocations: Annotated[int, Column("Allocations", "", "Number of allocations recorded.")]
    duration_us: Annotated[int, Column("Duration", "µs", "From the first event to the last.")]
    baseline_bytes: Annotated[
        int, Column("Held before", "bytes", "Live bytes when recording began, as they were asked for.")
    ]
    peak_bytes: Annotated[int, Column("Peak", "bytes", "Largest total of the recording, of bytes asked for.")]
    peak_at_us: Annotated[int, Column("Peak at", "µs", "When the total was largest, since the first event.")]
    lost_events: Annotated[
        int, Column("Lost events", "", "Frees whose allocation was no longer in the recorder's ring.")
    ]
    device_bytes: Annotated[
        int | None, Column("Device memory", "bytes", "Memory of the device, where it is known.")
    ] = None
    baseline_allocations: Annotated[
        int | None, Column("Allocations held before", "", "Allocations that were there when recording began.")
    ] = None
    baseline_block_bytes: Annotated[
        int | None,
        Column(
            "Held before in blocks",
            "bytes",
            "What was there when recording began, in blocks of CUDA's caching allocator.",
        ),
    ] = None
    peak_block_bytes: Annotated[
        int | None,
        Column(
            "Peak in blocks",
            "bytes",
            "Largest total of the caching allocator's blocks, as torch.cuda.max_memory_allocated counts: "
            "sizes are rounded "
            "up, and what is left of a block and too small to cut off counts with it.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class AllocationRow(Detail):
    """One allocation of a timeline, from birth to death. Times are since the beginning of the timeline. Each event has
    a microsecond of its own, so that sums over rows come to the peak."""

    allocation: Annotated[int, Column("Allocation", "", "Order of birth, from 0.")]
    address: Annotated[int, Column("Address", "", "Where it lies in the device's memory.")]
    allocated_bytes: Annotated[
        int, Column("Size", "bytes", "Bytes asked for; CUDA's allocator rounds them up to at least 512.")
    ]
    born_us: Annotated[int, Column("Born", "µs", "When it was allocated; 0 for what was there before.")]
    died_us: Annotated[
        int | None, Column("Died", "µs", "When it was freed; unknown for what outlived the recording.")
    ] = None
    category: Annotated[Category, Column("Category", "", "What it is for.")]
    phase: Annotated[str | None, Column("Phase", "", "Phase of the step it was born in.")] = None
    operation: Annotated[str | None, Column("Operation", "", "The operation that allocated it.")] = None
    module: Annotated[str | None, Column("Module", "", "Path of the module that ran it.")] = None
    stack: Annotated[int | None, Column("Stack", "", "Its stack in `stacks`.")] = None


@dataclass(frozen=True, kw_only=True)
class StackRow(Detail):
    """A Python stack that allocations of a timeline share."""

    stack: Annotated[int, Column("Stack", "", "Its number within the timeline.")]
    frames: Annotated[str, Column("Frames", "", "One `file:line function` a line, innermost first.")]


@dataclass(frozen=True, kw_only=True)
class MarkRow(Detail):
    """The beginning of a phase on a timeline."""

    at_us: Annotated[int, Column("At", "µs", "When it began, since the first event.")]
    name: Annotated[str, Column("Phase", "", "The phase that begins here.")]


TABLES = (
    Table(
        name="memory",
        row=MemoryRow,
        unique=("cell_id",),
        doc="The memory of one Transformer step.",
        words="memory of steps",
        numbers="peak_phase peak_allocated_bytes peak_reserved_bytes predicted_peak_bytes parameters_bytes "
        "gradients_bytes optimizer_state_bytes activations_bytes autocast_copies_bytes inputs_bytes "
        "temporaries_bytes workspace_bytes rounding_bytes residual_bytes fragmentation_bytes "
        "block_saved_bytes residual_stream_bytes",
        first="timeline, round",
    ),
    Table(
        name="phase_peaks",
        row=PhasePeakRow,
        unique=("cell_id", "phase"),
        doc="Peaks within each phase of a memory cell.",
    ),
    Table(
        name="saved_tensors",
        row=SavedTensorRow,
        unique=("cell_id", "position"),
        doc="What each operation of one block saves for backward.",
    ),
    Table(name="timelines", row=TimelineRow, unique=("cell_id",), doc="One recorded memory timeline."),
    Table(
        name="allocations",
        row=AllocationRow,
        unique=("cell_id", "allocation"),
        doc="Every allocation of a timeline, from birth to death.",
    ),
    Table(
        name="stacks",
        row=StackRow,
        unique=("cell_id", "stack"),
        doc="The Python stacks of a timeline's allocations.",
    ),
    Table(name="marks", row=MarkRow, unique=("cell_id", "at_us"), doc="Where the phases of a timeline begin."),
)
