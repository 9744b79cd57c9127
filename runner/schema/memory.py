"""Where memory goes in a step: peaks and their parts, what is saved for backward, timelines, and what still fits."""

from dataclasses import dataclass
from typing import Annotated

from runner.schema.choices import Attention, Category, Limited, Mode, Optimizer, Precision, TimelineOrigin, WeightsDtype
from runner.schema.columns import MAX_WHOLE, Cell, Column
from runner.schema.runs import Detail, Row


@dataclass(frozen=True, kw_only=True)
class MemoryCell(Cell):
    """The memory of one steady Transformer step, after a real optimizer step in mode train."""

    d_model: Annotated[int, Column("Model width", "", "Width of the residual stream.")]
    d_ff: Annotated[int, Column("Feed-forward width", "", "Inner width of the SwiGLU feed-forward layer.")]
    layers: Annotated[int, Column("Layers", "", "Number of Transformer blocks.")]
    heads: Annotated[int, Column("Heads", "", "Attention heads; each is d_model / heads wide.")]
    vocabulary: Annotated[int, Column("Vocabulary", "tokens", "Size of the token vocabulary.")] = 10_000
    batch: Annotated[int, Column("Batch", "sequences", "Sequences in one step.")] = 4
    context: Annotated[int, Column("Context", "tokens", "Tokens of each sequence.")]
    mode: Annotated[
        Mode, Column("Mode", "", "inference, forward with its graph, backward, or the whole training step.")
    ]
    precision: Annotated[
        Precision, Column("Precision", "", "fp32, tf32, or bf16 and fp16 as autocast over the weights.")
    ]
    weights_dtype: Annotated[WeightsDtype, Column("Weights", "", "The dtype in which the parameters are held.")] = (
        "fp32"
    )
    attention: Annotated[Attention, Column("Attention", "", "Attention implementation by name.")] = "naive"
    optimizer: Annotated[Optimizer, Column("Optimizer", "", "AdamW implementation.")] = "foreach"
    checkpoint_blocks: Annotated[
        int, Column("Checkpointing", "blocks", "Blocks recomputed together; 0 keeps all activations.", least=0)
    ] = 0
    timeline: Annotated[
        bool,
        Column("Timeline", "", "Whether every allocation of the step is recorded, with its stack.", effort="least"),
    ] = False


@dataclass(frozen=True, kw_only=True)
class MemoryRow(MemoryCell, Row):
    """Peaks of a step and what the largest is made of. The parts are each counted; none is worked out as the rest."""

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
    """What one operation of a model's first block, or of an attention cell, keeps for backward. A checkpointed block
    keeps it no longer than its own backward pass takes."""

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
    """One recorded memory timeline: a memory cell's, or one that somebody else recorded."""

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


@dataclass(frozen=True, kw_only=True)
class FrontierCell(Cell):
    """The question of the largest size that fits: of a sequence in single-head attention, or of a model's step."""

    limited: Annotated[
        Limited, Column("What grows", "", "seq_len of single-head attention; context or batch of a model's step.")
    ]
    implementation: Annotated[Attention, Column("Implementation", "", "Attention implementation by name.")]
    precision: Annotated[Precision, Column("Precision", "", "dtype of the tensors, or autocast for a model's step.")]
    batch: Annotated[int | None, Column("Batch", "", "Sequences together; none where the batch is what grows.")] = None
    d_head: Annotated[int | None, Column("Head width", "", "Single-head attention only.")] = None
    causal: Annotated[bool, Column("Causal", "", "Whether a query sees only the keys up to its own position.")] = True
    d_model: Annotated[int | None, Column("Model width", "", "A model's step only.")] = None
    d_ff: Annotated[int | None, Column("Feed-forward width", "", "A model's step only.")] = None
    layers: Annotated[int | None, Column("Layers", "", "A model's step only.")] = None
    heads: Annotated[int | None, Column("Heads", "", "A model's step only.")] = None
    vocabulary: Annotated[int | None, Column("Vocabulary", "tokens", "A model's step only.")] = None
    context: Annotated[
        int | None, Column("Context", "tokens", "A model's step; none where the context is what grows.")
    ] = None
    mode: Annotated[Mode, Column("Mode", "", "A model's step only: what has to fit.")] = "train"
    limit_bytes: Annotated[int, Column("Memory limit", "bytes", "What it has to fit in.")]
    step: Annotated[int, Column("Resolution", "", "Sizes tried are multiples of this.", effort="least")] = 64


@dataclass(frozen=True, kw_only=True)
class FrontierRow(FrontierCell, Row):
    """The answer, by prediction and then bisection with real allocations."""

    predicted: Annotated[int | None, Column("Predicted largest", "", "Largest size by the closed formula.")] = None
    largest: Annotated[int | None, Column("Largest that fits", "", "Largest size that ran.")] = None
    smallest_failing: Annotated[
        int | None, Column("Smallest that fails", "", "Smallest size tried that ran out of memory.")
    ] = None
    largest_peak_bytes: Annotated[
        int | None, Column("Peak of the largest", "bytes", "Peak of the largest size that ran.")
    ] = None
    trials: Annotated[int | None, Column("Trials", "", "Sizes that were run.")] = None
