"""Defines single-head attention: the cell and its row."""

from dataclasses import dataclass, field

from runner.schema import axes
from runner.schema.cells import Cell, TimedRow
from runner.schema.choices import Attention, AttentionBackend, Cache, Precision
from runner.schema.columns import column, describe


@dataclass(frozen=True, kw_only=True)
class AttentionCell(Cell):
    """Attention over tensors of shape (batch, 1, seq_len, d_head), forward and backward, in the precision's dtype."""

    TITLE = "{implementation} · S {seq_len} · d {d_head} · {precision} · {backend}"

    implementation: Attention = field(
        metadata=describe("Implementation", "", "Implementation, by name.", flag=axes.ATTENTIONS)
    )
    backend: AttentionBackend = column("Backend", "", "eager, or torch.compile.", flag=axes.BACKENDS, default="eager")
    batch: int = column("Batch", "", "Independent problems computed together.", flag=axes.BATCHES, default=8)
    seq_len: int = field(metadata=describe("Sequence length", "tokens", "Length of Q, K and V.", flag=axes.SEQ_LENS))
    d_head: int = field(metadata=describe("Head width", "", "Width of each query, key and value.", flag=axes.D_HEADS))
    precision: Precision = field(metadata=describe("Precision", "", "dtype of tensors, or tf32.", flag=axes.PRECISIONS))
    causal: bool = column("Causal", "", "Whether a query sees only earlier keys.", flag=axes.CAUSAL, default=True)
    cache: Cache = column(
        "Cache", "", "cold: the L2 cache is emptied before every step; hot: it is not.", flag=axes.CACHE, default="hot"
    )
    warmup_steps: int = column(
        "Warm-up", "steps", "Steps run before the measured ones.", least=0, flag=axes.WARMUP, default=5
    )
    min_steps: int = column(
        "Iterations, at least", "steps", "Measured steps before the cell may end.", flag=axes.STEPS, default=100
    )
    max_steps: int = column(
        "Iterations, at most", "steps", "Measured steps after which it ends.", flag=axes.MAX_STEPS, default=100
    )
    max_seconds: float = column(
        "Time, at most", "s", "Measuring time after which it ends all the same.", flag=axes.MAX_SECONDS, default=30.0
    )


@dataclass(frozen=True, kw_only=True)
class AttentionRow(AttentionCell, TimedRow):
    """One measured attention cell; its times are in `timings`, phases forward and backward."""

    forward_flops: int | None = column("Forward FLOPs", "FLOP", "4 B S² d, half if causal (as FlashAttention counts).")
    forward_flops_per_s: float | None = column("Forward rate", "FLOP/s", "Forward FLOPs over the median forward time.")
    backward_flops_per_s: float | None = column("Backward rate", "FLOP/s", "2.5 × forward FLOPs over its median.")
    forward_bytes_per_s: float | None = column(
        "Forward bandwidth", "bytes/s", "Queries, keys, values read once and the output written once, over the median."
    )
    saved_bytes: int | None = column("Saved for backward", "bytes", "Storages that autograd kept, each counted once.")
    before_backward_bytes: int | None = column("In use before backward", "bytes", "Live tensors between the passes.")
    predicted_saved_bytes: int | None = column("Predicted saved", "bytes", "Saved bytes by the closed formula.")
    tensor_bytes: int | None = column("One S×S tensor", "bytes", "Scores of all problems: B S² elements.")
    asked_bytes: int | None = column("Asked for", "bytes", "The allocation that failed; cells out of memory only.")
    in_use_bytes: int | None = column("In use then", "bytes", "Live tensors when it failed; cells out of memory only.")
    device_bytes: int | None = column("On the device", "bytes", "Memory of the device, or the limit of a CPU worker.")
    output_error: float | None = column("Output error", "", "‖out − ref‖ / ‖ref‖ against a row-chunked float64 result.")
    gradient_error: float | None = column("Gradient error", "", "The largest of the same for the three gradients.")
    tolerance: float | None = column("Tolerance", "", "What those errors may be for this precision.")
    largest_error: float | None = column(
        "Largest error", "", "Largest error of an entry over the reference's largest entry."
    )
    naive_error: float | None = column(
        "Naive error", "", "The same of naive attention, where an own implementation was checked."
    )
