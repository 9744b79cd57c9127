"""Defines single-head attention: the cell and its row."""

from dataclasses import dataclass
from typing import Annotated

from runner.schema import axes
from runner.schema.cells import Cell, TimedRow
from runner.schema.choices import Attention, AttentionBackend, Cache, Precision, StoppedBy
from runner.schema.columns import Column
from runner.schema.tables import Table


@dataclass(frozen=True, kw_only=True)
class AttentionCell(Cell):
    """Attention over tensors of shape (batch, 1, seq_len, d_head), forward and backward, in the precision's dtype."""

    TITLE = "{implementation} · S {seq_len} · d {d_head} · {precision} · {backend}"

    implementation: Annotated[
        Attention, Column("Implementation", "", "Attention implementation by name.", flag=axes.ATTENTION)
    ]
    backend: Annotated[
        AttentionBackend, Column("Backend", "", "eager, or the implementation under torch.compile.", flag=axes.BACKENDS)
    ] = "eager"
    batch: Annotated[int, Column("Batch", "", "Independent problems computed together.", flag=axes.BATCH)] = 8
    seq_len: Annotated[
        int, Column("Sequence length", "tokens", "Length of queries, keys and values.", flag=axes.SEQ_LENS)
    ]
    d_head: Annotated[int, Column("Head width", "", "Width of each query, key and value.", flag=axes.D_HEADS)]
    precision: Annotated[
        Precision, Column("Precision", "", "dtype of the tensors; fp32 is IEEE, tf32 its own.", flag=axes.PRECISIONS)
    ]
    causal: Annotated[
        bool, Column("Causal", "", "Whether a query sees only the keys up to its own position.", flag=axes.CAUSAL)
    ] = True
    cache: Annotated[
        Cache,
        Column("Cache", "", "cold: the L2 cache is emptied before every iteration; hot: it is not.", flag=axes.CACHE),
    ] = "hot"
    warmup_steps: Annotated[
        int,
        Column(
            "Warm-up", "steps", "Iterations run before the measured ones.", effort="most", least=0, flag=axes.WARMUP
        ),
    ] = 5
    min_steps: Annotated[
        int,
        Column(
            "Iterations, at least",
            "steps",
            "Measured iterations before the cell may end.",
            effort="most",
            flag=axes.STEPS,
        ),
    ] = 100
    max_steps: Annotated[
        int,
        Column(
            "Iterations, at most",
            "steps",
            "Measured iterations after which the cell ends.",
            effort="most",
            flag=axes.MAX_STEPS,
        ),
    ] = 100
    max_seconds: Annotated[
        float,
        Column(
            "Time, at most",
            "s",
            "Measuring time after which the cell ends all the same.",
            effort="most",
            flag=axes.MAX_SECONDS,
        ),
    ] = 30.0


@dataclass(frozen=True, kw_only=True)
class AttentionRow(AttentionCell, TimedRow):
    """One measured attention cell; its times are in `timings`, phases forward and backward."""

    steps: Annotated[
        int | None, Column("Measured iterations", "steps", "Measured iterations; warm-up not counted.")
    ] = None
    stopped_by: Annotated[StoppedBy | None, Column("Stopped by", "", "Why measuring ended.")] = None
    forward_flops: Annotated[
        int | None, Column("Forward FLOPs", "FLOP", "4 B S² d, halved if causal (as FlashAttention counts).")
    ] = None
    forward_flops_per_s: Annotated[
        float | None, Column("Forward rate", "FLOP/s", "Forward FLOPs over the median forward time.")
    ] = None
    backward_flops_per_s: Annotated[
        float | None, Column("Backward rate", "FLOP/s", "2.5 × forward FLOPs over its median.")
    ] = None
    forward_bytes_per_s: Annotated[
        float | None,
        Column(
            "Forward bandwidth",
            "bytes/s",
            "Queries, keys, values read once and the output written once, over the median.",
        ),
    ] = None
    saved_bytes: Annotated[
        int | None, Column("Saved for backward", "bytes", "Storages that autograd kept, each counted once.")
    ] = None
    before_backward_bytes: Annotated[
        int | None, Column("In use before backward", "bytes", "Live tensors between the passes.")
    ] = None
    peak_allocated_bytes: Annotated[
        int | None, Column("Peak allocated", "bytes", "Peak of live tensors over both passes.")
    ] = None
    peak_reserved_bytes: Annotated[
        int | None, Column("Peak reserved", "bytes", "Peak held by the CUDA caching allocator.")
    ] = None
    predicted_saved_bytes: Annotated[
        int | None, Column("Predicted saved", "bytes", "Saved bytes by the closed formula.")
    ] = None
    predicted_peak_bytes: Annotated[
        int | None, Column("Predicted peak", "bytes", "Peak bytes by the closed formula.")
    ] = None
    tensor_bytes: Annotated[int | None, Column("One S×S tensor", "bytes", "Scores of all problems: B S² elements.")] = (
        None
    )
    asked_bytes: Annotated[
        int | None, Column("Asked for", "bytes", "The allocation that failed; cells out of memory only.")
    ] = None
    in_use_bytes: Annotated[
        int | None, Column("In use then", "bytes", "Live tensors when it failed; cells out of memory only.")
    ] = None
    device_bytes: Annotated[
        int | None, Column("On the device", "bytes", "Memory of the device, or the limit of a CPU worker.")
    ] = None
    output_error: Annotated[
        float | None, Column("Output error", "", "‖out − ref‖ / ‖ref‖ against a row-chunked float64 result.")
    ] = None
    gradient_error: Annotated[
        float | None, Column("Gradient error", "", "The largest of the same for the three gradients.")
    ] = None
    tolerance: Annotated[float | None, Column("Tolerance", "", "What those errors may be for this precision.")] = None
    build_seconds: Annotated[float | None, Column("Build time", "s", "Making the tensors.")] = None
    warmup_seconds: Annotated[
        float | None, Column("Warm-up time", "s", "The warm-up iterations, compilation included.")
    ] = None
    measure_seconds: Annotated[float | None, Column("Measuring time", "s", "The measured iterations.")] = None
    unwaited_seconds: Annotated[
        float | None, Column("Loop's time", "s", "The iterations of the loop, and the one traced for the device time.")
    ] = None
    compile_seconds: Annotated[
        float | None, Column("Compile time", "s", "First iteration minus the median one; compiled only.")
    ] = None


TABLES = (
    Table(
        name="attention",
        row=AttentionRow,
        unique=("cell_id",),
        doc="One single-head attention cell.",
        words="attention",
        numbers="peak_allocated_bytes saved_bytes before_backward_bytes predicted_peak_bytes device_bytes "
        "in_use_bytes asked_bytes output_error gradient_error tolerance",
        timed=True,
        whole="forward_backward",
    ),
)
