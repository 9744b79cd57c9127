"""The values that a column of text may hold. Each type is a `Literal`, so that a misspelled value is a type error."""

from collections.abc import Mapping
from typing import Literal

Mode = Literal["inference", "forward", "backward", "train"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
WeightsDtype = Literal["fp32", "bf16"]
Backend = Literal[
    "eager", "compiled", "compiled-block", "compiled-reduce-overhead", "compiled-max-autotune", "cuda-graphs"
]
CompileCache = Literal["shared", "empty"]
Attention = Literal[
    "naive", "sdpa", "sdpa-math", "sdpa-flash", "sdpa-efficient", "sdpa-flash3", "sdpa-flash4", "sdpa-cudnn", "flex"
]
#: The attention of a whole model; `own` is that of a user's own model.
ModelAttention = Literal[Attention, "own"]
AttentionBackend = Literal["eager", "compiled"]
Cache = Literal["hot", "cold"]
Optimizer = Literal["foreach", "for-loop", "fused"]
Loss = Literal["cross-entropy"]
Phase = Literal["forward", "loss", "backward", "optimizer", "forward_backward", "step"]
Status = Literal["ok", "oom", "timeout", "crashed", "error", "skipped", "wrong"]
Bound = Literal["host", "device"]
FlopsSource = Literal["formula", "counter"]
StoppedBy = Literal["interval", "max_steps", "max_seconds"]
Source = Literal["measured", "published", "imported"]
Limited = Literal["seq_len", "context", "batch"]
TimelineOrigin = Literal["cuda-allocator", "cpu-profiler", "imported"]
Category = Literal[
    "parameter", "gradient", "optimizer state", "activation", "autocast copy", "input", "temporary", "workspace",
    "unknown",
]  # fmt: skip
TraceOrigin = Literal["torch-profiler", "nsys"]
KernelClass = Literal[
    "matmul", "attention", "softmax", "normalisation", "elementwise", "reduction", "optimizer", "copy or cast",
    "communication", "other",
]  # fmt: skip
FloatName = Literal["fp64", "fp32", "bf16", "fp16"]
NormStatistic = Literal["mean", "variance", "mean of squares", "output"]
Ceiling = Literal["matmul", "copy"]
Moment = Literal["start", "end"]
PlanState = Literal["waiting", "running", "done"]
#: What the rows of a published table are about.
TableSubject = Literal["steps", "attention", "accumulation", "dtypes", "kernels", "ranges", "other"]
#: What a published figure measures beside the time of a phase: of a named kernel or range (ms), bytes of memory (by
#: what the heading calls them), a number without a unit, or a dtype.
OtherQuantity = Literal[
    "duration", "total_duration", "peak_memory", "allocated_memory", "reserved_memory", "memory", "speedup", "ratio",
    "share", "calls", "tokens_per_s", "flops_per_s", "result", "dtype", "other",
]  # fmt: skip
FigureQuantity = Literal[Phase, OtherQuantity]
FigureStatistic = Literal["value", "mean", "std", "median", "min", "max"]

#: The phases that one step of each mode passes through, in order. `forward_backward` and `step` are sums of them,
#: kept as phases of their own because medians do not add.
PHASES: Mapping[Mode, tuple[Phase, ...]] = {
    "inference": ("forward",),
    "forward": ("forward",),
    "backward": ("forward", "loss", "backward"),
    "train": ("forward", "loss", "backward", "optimizer"),
}

#: Statuses after which a cell counts as done; the others are tried again by the next sweep.
DONE: frozenset[Status] = frozenset({"ok", "oom", "skipped", "wrong"})
#: The kinds of notes on a run or a cell; a removal takes one back.
NoteKind = Literal["note", "name", "tag", "baseline", "hidden", "removal"]
