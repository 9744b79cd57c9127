"""Where memory goes in a step: peaks and their parts, what is saved for backward, timelines, and what still fits."""

from dataclasses import dataclass

from runner.schema.choices import Attention, Category, Limited, Mode, Optimizer, Precision, TimelineOrigin, WeightsDtype
from runner.schema.columns import MAX_WHOLE, Cell, column, required
from runner.schema.runs import Detail, Row


@dataclass(frozen=True, kw_only=True)
class MemoryCell(Cell):
    """The memory of one steady Transformer step, after a real optimizer step in mode train."""

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
    attention: Attention = column("Attention", "", "Attention implementation by name.", "naive")
    optimizer: Optimizer = column("Optimizer", "", "AdamW implementation.", "foreach")
    checkpoint_blocks: int = column(
        "Checkpointing", "blocks", "Blocks recomputed together; 0 keeps all activations.", 0, least=0
    )
    timeline: bool = column(
        "Timeline", "", "Whether every allocation of the step is recorded, with its stack.", False, effort="least"
    )


@dataclass(frozen=True, kw_only=True)
class MemoryRow(MemoryCell, Row):
    """Peaks of a step and what the largest is made of. The parts are each counted; none is worked out as the rest."""

    peak_phase: str | None = column("Peak in", "", "Phase of the step in which the peak fell.")
    peak_allocated_bytes: int | None = column("Peak allocated", "bytes", "Peak of live tensors.")
    peak_reserved_bytes: int | None = column("Peak reserved", "bytes", "Peak held by the caching allocator; CUDA only.")
    peak_driver_bytes: int | None = column(
        "Peak on the device", "bytes", "Peak by the driver, context included; CUDA only."
    )
    parameters_bytes: int | None = column("Parameters", "bytes", "Parameters alive at the peak.")
    gradients_bytes: int | None = column("Gradients", "bytes", "Gradients alive at the peak.")
    optimizer_state_bytes: int | None = column("Optimizer state", "bytes", "AdamW's two moments alive at the peak.")
    activations_bytes: int | None = column("Activations", "bytes", "Saved for backward and alive at the peak.")
    autocast_copies_bytes: int | None = column(
        "Autocast copies", "bytes", "Half-width weight copies alive at the peak."
    )
    inputs_bytes: int | None = column("Inputs", "bytes", "Tokens, targets and tables alive at the peak.")
    temporaries_bytes: int | None = column("Temporaries", "bytes", "Alive at the peak and kept for nothing.")
    workspace_bytes: int | None = column(
        "Workspace", "bytes", "Held before the step and not the model's: scratch of libraries, step counters."
    )
    rounding_bytes: int | None = column(
        "Rounding",
        "bytes",
        "What CUDA's allocator adds to the sizes asked for, by its own counters, at the peak.",
        least=-MAX_WHOLE,
    )
    fragmentation_bytes: int | None = column(
        "Fragmentation", "bytes", "Reserved and not allocated at the peak; CUDA only.", least=-MAX_WHOLE
    )
    residual_bytes: int | None = column(
        "Unexplained", "bytes", "Peak allocated minus the parts that are tensors.", least=-MAX_WHOLE
    )
    predicted_peak_bytes: int | None = column("Predicted peak", "bytes", "Peak by the closed formulas.")
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
    build_seconds: float | None = column("Build time", "s", "Making the model, the optimizer and the data.")
    measure_seconds: float | None = column("Measuring time", "s", "The recorded steps.")


@dataclass(frozen=True, kw_only=True)
class PhasePeakRow(Detail):
    """Peaks of memory within one phase of a memory cell's step."""

    phase: str = required("Phase", "", "forward, loss, backward or optimizer.")
    peak_allocated_bytes: int | None = column("Peak allocated", "bytes", "Peak of live tensors within the phase.")
    peak_reserved_bytes: int | None = column("Peak reserved", "bytes", "Held by the caching allocator; CUDA only.")
    peak_driver_bytes: int | None = column("On the device", "bytes", "By the driver, context included; CUDA only.")
    end_allocated_bytes: int | None = column("Left at its end", "bytes", "Live tensors when the phase ended.")


@dataclass(frozen=True, kw_only=True)
class SavedTensorRow(Detail):
    """What one operation of a model's first block, or of an attention cell, keeps for backward. A checkpointed block
    keeps it no longer than its own backward pass takes."""

    position: int = required("Position", "", "Order of saving, from 0.")
    operation: str = required("Operation", "", "The operation whose backward needs it.")
    module: str | None = column("Module", "", "Path of the module that ran the operation.")
    tensor: str | None = column("Tensor", "", "queries, keys, values or output, where it is one; attention cells only.")
    shape: str = required("Shape", "", "Shape of the tensor, such as 4×128×768.")
    dtype: str = required("dtype", "", "dtype of the tensor.")
    storage_bytes: int = required("Size", "bytes", "Its storage; 0 where an earlier row holds the same storage.")


@dataclass(frozen=True, kw_only=True)
class TimelineRow(Detail):
    """One recorded memory timeline: a memory cell's, or one that somebody else recorded."""

    origin: TimelineOrigin = required("Origin", "", "Who recorded it.")
    title: str = required("Title", "", "The cell in words, or the imported file's name.")
    allocations: int = required("Allocations", "", "Number of allocations recorded.")
    duration_us: int = required("Duration", "µs", "From the first event to the last.")
    baseline_bytes: int = required("Held before", "bytes", "Live bytes when recording began, as they were asked for.")
    peak_bytes: int = required("Peak", "bytes", "Largest total of the recording, of bytes asked for.")
    peak_at_us: int = required("Peak at", "µs", "When the total was largest, since the first event.")
    lost_events: int = required("Lost events", "", "Frees whose allocation was no longer in the recorder's ring.")
    device_bytes: int | None = column("Device memory", "bytes", "Memory of the device, where it is known.")
    baseline_allocations: int | None = column(
        "Allocations held before", "", "Allocations that were there when recording began."
    )
    baseline_block_bytes: int | None = column(
        "Held before in blocks", "bytes", "What was there when recording began, in blocks of CUDA's caching allocator."
    )
    peak_block_bytes: int | None = column(
        "Peak in blocks",
        "bytes",
        "Largest total of the caching allocator's blocks, as torch.cuda.max_memory_allocated counts: sizes are rounded "
        "up, and what is left of a block and too small to cut off counts with it.",
    )


@dataclass(frozen=True, kw_only=True)
class AllocationRow(Detail):
    """One allocation of a timeline, from birth to death. Times are since the beginning of the timeline. Each event has
    a microsecond of its own, so that sums over rows come to the peak."""

    allocation: int = required("Allocation", "", "Order of birth, from 0.")
    address: int = required("Address", "", "Where it lies in the device's memory.")
    allocated_bytes: int = required(
        "Size", "bytes", "Bytes asked for; CUDA's allocator rounds them up to at least 512."
    )
    born_us: int = required("Born", "µs", "When it was allocated; 0 for what was there before.")
    died_us: int | None = column("Died", "µs", "When it was freed; unknown for what outlived the recording.")
    category: Category = required("Category", "", "What it is for.")
    phase: str | None = column("Phase", "", "Phase of the step it was born in.")
    operation: str | None = column("Operation", "", "The operation that allocated it.")
    module: str | None = column("Module", "", "Path of the module that ran it.")
    stack: int | None = column("Stack", "", "Its stack in `stacks`.")


@dataclass(frozen=True, kw_only=True)
class StackRow(Detail):
    """A Python stack that allocations of a timeline share."""

    stack: int = required("Stack", "", "Its number within the timeline.")
    frames: str = required("Frames", "", "One `file:line function` a line, innermost first.")


@dataclass(frozen=True, kw_only=True)
class MarkRow(Detail):
    """The beginning of a phase on a timeline."""

    at_us: int = required("At", "µs", "When it began, since the first event.")
    name: str = required("Phase", "", "The phase that begins here.")


@dataclass(frozen=True, kw_only=True)
class FrontierCell(Cell):
    """The question of the largest size that fits: of a sequence in single-head attention, or of a model's step."""

    limited: Limited = required(
        "What grows", "", "seq_len of single-head attention; context or batch of a model's step."
    )
    implementation: Attention = required("Implementation", "", "Attention implementation by name.")
    precision: Precision = required("Precision", "", "dtype of the tensors, or autocast for a model's step.")
    batch: int | None = column("Batch", "", "Sequences together; none where the batch is what grows.", None)
    d_head: int | None = column("Head width", "", "Single-head attention only.", None)
    causal: bool = column("Causal", "", "Whether a query sees only the keys up to its own position.", True)
    d_model: int | None = column("Model width", "", "A model's step only.", None)
    d_ff: int | None = column("Feed-forward width", "", "A model's step only.", None)
    layers: int | None = column("Layers", "", "A model's step only.", None)
    heads: int | None = column("Heads", "", "A model's step only.", None)
    vocabulary: int | None = column("Vocabulary", "tokens", "A model's step only.", None)
    context: int | None = column("Context", "tokens", "A model's step; none where the context is what grows.", None)
    mode: Mode = column("Mode", "", "A model's step only: what has to fit.", "train")
    limit_bytes: int = required("Memory limit", "bytes", "What it has to fit in.")
    step: int = column("Resolution", "", "Sizes tried are multiples of this.", 64, effort="least")


@dataclass(frozen=True, kw_only=True)
class FrontierRow(FrontierCell, Row):
    """The answer, by prediction and then bisection with real allocations."""

    predicted: int | None = column("Predicted largest", "", "Largest size by the closed formula.")
    largest: int | None = column("Largest that fits", "", "Largest size that ran.")
    smallest_failing: int | None = column("Smallest that fails", "", "Smallest size tried that ran out of memory.")
    largest_peak_bytes: int | None = column("Peak of the largest", "bytes", "Peak of the largest size that ran.")
    trials: int | None = column("Trials", "", "Sizes that were run.")
