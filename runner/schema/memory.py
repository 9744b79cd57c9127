"""The memory of a step: peaks and their parts, tensors saved for backward, timelines, the largest size that fits."""

from dataclasses import dataclass, field

from runner.schema import axes
from runner.schema.axes import ModelCell
from runner.schema.cells import BuiltRow, Cell, Detail, Row
from runner.schema.choices import Attention, Category, Limited, Mode, Precision, TimelineOrigin
from runner.schema.columns import MAX_WHOLE, column, describe


@dataclass(frozen=True, kw_only=True)
class MemoryCell(ModelCell):
    """The memory of one steady Transformer step, after a real optimizer step in mode train."""

    TITLE = "{context} · {mode} · {precision}"

    timeline: bool = column(
        "Timeline", "", "Whether every allocation is recorded, with its stack.", flag=axes.TIMELINE, default=False
    )


@dataclass(frozen=True, kw_only=True)
class MemoryRow(MemoryCell, BuiltRow):
    """The peaks of a step and the parts of the largest. Each part is counted; none is computed as the remainder."""

    peak_phase: str | None = column("Peak in", "", "Phase of the step in which the peak fell.")
    peak_allocated_bytes: int | None = column("Peak allocated", "bytes", "Peak of live tensors.")
    peak_reserved_bytes: int | None = column("Peak reserved", "bytes", "Peak held by the caching allocator; CUDA only.")
    peak_driver_bytes: int | None = column(
        "Peak on the device", "bytes", "Peak by the driver, with its context; CUDA only."
    )
    parameters_bytes: int | None = column("Parameters", "bytes", "Parameters alive at the peak.")
    gradients_bytes: int | None = column("Gradients", "bytes", "Gradients alive at the peak.")
    optimizer_state_bytes: int | None = column("Optimizer state", "bytes", "AdamW's two moments alive at the peak.")
    activations_bytes: int | None = column("Activations", "bytes", "Saved for backward and alive at the peak.")
    autocast_copies_bytes: int | None = column(
        "Autocast copies", "bytes", "Half-width copies of weights alive at the peak."
    )
    inputs_bytes: int | None = column("Inputs", "bytes", "Tokens, targets and tables alive at the peak.")
    temporaries_bytes: int | None = column("Temporaries", "bytes", "Alive at the peak and kept for nothing.")
    workspace_bytes: int | None = column(
        "Workspace", "bytes", "Held before the step, not by the model: scratch, step counters."
    )
    rounding_bytes: int | None = column(
        "Rounding",
        "bytes",
        "What CUDA's allocator adds to the sizes asked for, by its own counters, at the peak.",
        least=-MAX_WHOLE,
    )
    fragmentation_bytes: int | None = column(
        "Fragmentation", "bytes", "Reserved and not in use at the peak; CUDA only.", least=-MAX_WHOLE
    )
    residual_bytes: int | None = column("Unexplained", "bytes", "Peak minus all parts.", least=-MAX_WHOLE)
    residual_stream_bytes: int | None = column("One residual stream", "bytes", "B T d_model elements, as measured.")
    saved_bytes: int | None = column(
        "Saved for backward",
        "bytes",
        "Storages that autograd kept from the forward pass to the backward pass, each counted once.",
    )
    block_saved_bytes: int | None = column(
        "Saved by one block",
        "bytes",
        "The same for the first block alone; where it is checkpointed, what it saves when backward runs it again.",
    )


@dataclass(frozen=True, kw_only=True)
class PhasePeakRow(Detail):
    """Peaks of memory within one phase of a memory cell's step."""

    phase: str = field(metadata=describe("Phase", "", "forward, loss, backward or optimizer."))
    peak_allocated_bytes: int | None = column("Peak allocated", "bytes", "Peak of live tensors within the phase.")
    peak_reserved_bytes: int | None = column("Peak reserved", "bytes", "Held by the caching allocator; CUDA only.")
    peak_driver_bytes: int | None = column("On the device", "bytes", "By the driver, context included; CUDA only.")
    end_allocated_bytes: int | None = column("Left at its end", "bytes", "Live tensors when the phase ended.")


@dataclass(frozen=True, kw_only=True)
class SavedTensorRow(Detail):
    """One tensor that an operation of a model's first block, or of an attention cell, keeps for backward. A
    checkpointed block keeps it only during its own backward pass."""

    position: int = field(metadata=describe("Position", "", "Order of saving, from 0."))
    operation: str = field(metadata=describe("Operation", "", "The operation whose backward needs it."))
    module: str | None = column("Module", "", "Path of the module that ran the operation.")
    tensor: str | None = column("Tensor", "", "queries, keys, values or output, where it is one; attention cells only.")
    shape: str = field(metadata=describe("Shape", "", "Shape of the tensor, such as 4×128×768."))
    dtype: str = field(metadata=describe("dtype", "", "dtype of the tensor."))
    storage_bytes: int = field(metadata=describe("Size", "bytes", "Its storage; 0 if an earlier row holds the same."))


@dataclass(frozen=True, kw_only=True)
class TimelineRow(Detail):
    """One recorded memory timeline: that of a memory cell, or an imported one."""

    origin: TimelineOrigin = field(metadata=describe("Origin", "", "Who recorded it."))
    title: str = field(metadata=describe("Title", "", "The cell in words, or the imported file's name."))
    allocations: int = field(metadata=describe("Allocations", "", "Number of allocations recorded."))
    duration_us: int = field(metadata=describe("Duration", "µs", "From the first event to the last."))
    baseline_bytes: int = field(metadata=describe("Held before", "bytes", "Live bytes asked for when it began."))
    peak_bytes: int = field(metadata=describe("Peak", "bytes", "Largest total of the recording, of bytes asked for."))
    peak_at_us: int = field(metadata=describe("Peak at", "µs", "When the total was largest, since the first event."))
    lost_events: int = field(metadata=describe("Lost events", "", "Frees whose allocation had left the ring."))
    device_bytes: int | None = column("Device memory", "bytes", "Memory of the device, where it is known.")
    baseline_allocations: int | None = column("Allocations held before", "", "Those alive when recording began.")
    baseline_block_bytes: int | None = column(
        "Held before in blocks", "bytes", "What was there when recording began, in blocks of CUDA's caching allocator."
    )
    peak_block_bytes: int | None = column(
        "Peak in blocks",
        "bytes",
        "Largest total of the caching allocator's blocks, as torch.cuda.max_memory_allocated counts: sizes are rounded"
        " up, and what is left of a block and too small to cut off counts with it.",
    )


@dataclass(frozen=True, kw_only=True)
class AllocationRow(Detail):
    """One allocation of a timeline, from birth to death. Times are since the beginning of the timeline. Each event has
    a microsecond of its own, so that sums over rows come to the peak."""

    allocation: int = field(metadata=describe("Allocation", "", "Order of birth, from 0."))
    address: int = field(metadata=describe("Address", "", "Where it lies in the device's memory."))
    allocated_bytes: int = field(metadata=describe("Size", "bytes", "Bytes asked for; CUDA's allocator rounds up."))
    born_us: int = field(metadata=describe("Born", "µs", "When it was allocated; 0 for what was there before."))
    died_us: int | None = column("Died", "µs", "When it was freed; unknown for what outlived the recording.")
    category: Category = field(metadata=describe("Category", "", "What it is for."))
    phase: str | None = column("Phase", "", "Phase of the step it was born in.")
    operation: str | None = column("Operation", "", "The operation that allocated it.")
    module: str | None = column("Module", "", "Path of the module that ran it.")
    stack: int | None = column("Stack", "", "Its stack in `stacks`.")


@dataclass(frozen=True, kw_only=True)
class StackRow(Detail):
    """A Python stack that allocations of a timeline share."""

    stack: int = field(metadata=describe("Stack", "", "Its number within the timeline."))
    frames: str = field(metadata=describe("Frames", "", "One `file:line function` a line, innermost first."))


@dataclass(frozen=True, kw_only=True)
class MarkRow(Detail):
    """The beginning of a phase on a timeline."""

    at_us: int = field(metadata=describe("At", "µs", "When it began, since the first event."))
    name: str = field(metadata=describe("Phase", "", "The phase that begins here."))


@dataclass(frozen=True, kw_only=True)
class FrontierCell(Cell):
    """A search for the largest sequence in single-head attention, or the largest context or batch of a model's step,
    that fits in memory."""

    limited: Limited = field(metadata=describe("What grows", "", "seq_len of attention; context or batch of a step."))
    implementation: Attention = field(metadata=describe("Implementation", "", "Implementation, by name."))
    precision: Precision = field(metadata=describe("Precision", "", "dtype of the tensors; autocast, of a model."))
    batch: int | None = column("Batch", "", "Sequences together; none where the batch is what grows.")
    d_head: int | None = column("Head width", "", "Single-head attention only.")
    causal: bool = column("Causal", "", "Whether a query sees only earlier keys.", default=True)
    d_model: int | None = column("Model width", "", "A model's step only.")
    d_ff: int | None = column("Feed-forward width", "", "A model's step only.")
    layers: int | None = column("Layers", "", "A model's step only.")
    heads: int | None = column("Heads", "", "A model's step only.")
    vocabulary: int | None = column("Vocabulary", "tokens", "A model's step only.")
    context: int | None = column("Context", "tokens", "A model's step; none where the context is what grows.")
    mode: Mode = column("Mode", "", "A model's step only: what has to fit.", default="train")
    model: str | None = column("Own model", "", "Where an own model comes from; unknown for the Transformer.")
    model_key: str | None = column("Own model's key", "", "Hash of an own model's source.")
    limit_bytes: int = field(metadata=describe("Memory limit", "bytes", "What it has to fit in."))
    step: int = column("Resolution", "", "Sizes tried are multiples of this.", effort="least", default=64)


@dataclass(frozen=True, kw_only=True)
class FrontierRow(FrontierCell, Row):
    """The largest size, found by a prediction and then by bisection with real allocations."""

    predicted: int | None = column("Predicted largest", "", "Largest size by the closed formula.")
    largest: int | None = column("Largest that fits", "", "Largest size that ran.")
    smallest_failing: int | None = column("Smallest that fails", "", "Smallest size tried that ran out of memory.")
    largest_peak_bytes: int | None = column("Peak of the largest", "bytes", "Peak of the largest size that ran.")
    trials: int | None = column("Trials", "", "Sizes that were run.")
