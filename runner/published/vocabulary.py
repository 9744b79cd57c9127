"""The words of headings: those that name settings, those that say what a figure measures, and those that add nothing.

A word that is in none of these makes a heading one that is not understood. Standard library only.
"""

from collections.abc import Mapping

from runner.published.values import Dimension
from runner.results import Quantity, Statistic

SETTINGS: Mapping[str, str] = {
    "name": "model size|size|model|config|configuration|model name",
    "d_model": "d model|dmodel|hidden|hidden size|hidden dim|embed dim|embedding dim|model dim|n embd|model width",
    "d_ff": "d ff|dff|ffn dim|ff dim|feed forward width|intermediate size",
    "layers": "num layers|n layers|layers|n layer|nlayers|number of layers|depth",
    "heads": "num heads|n heads|heads|n head|nheads|number of heads",
    "vocabulary": "vocab size|vocab|vocabulary|vocabulary size",
    "parameters": "params|parameters|num params|n params|number of parameters|param count|params m",
    "batch": "batch|batch size|bs|bsz",
    "context": "context length|context|ctx|ctx len|context len|ctx length|context size|block size",
    "seq_len": "seq len|sequence length|seqlen|seq|sequence len|seq length",
    "d_head": "d head|head dim|dhead|headdim|head size|head width",
    "mode": "mode|pass|passes",
    "precision": "precision|autocast dtype|amp dtype|data type|dtype",
    "backend": "backend|compile|compiled|torch compile|jit",
    "implementation": "implementation|impl|attention|attention impl|attention implementation|method|attn",
    "warmup_steps": "warmup|warmup steps|warm up|warm up steps|num warmup|n warmup|warmup iters|warm ups|warmups",
    "steps": "measure steps|n steps|measured steps|steps|iters|num iters|iterations|repeats|num steps|timed steps",
    "device": "device",
    "is_profiled": "profiled|is profiled",
    "part": "case|component|nvtx range|range|kernel|kernel name|operation|op|name|tensor|module|layer",
}
SETTING_WORDS = {alias: name for name, aliases in SETTINGS.items() for alias in aliases.split("|")}
ORIGINS = {"seed file": "file", "source file": "file", "source line": "line", "table name": "title",
            "machine": "machine", "gpu": "machine", "device name": "machine", "hardware": "machine"}  # fmt: skip
KEPT = frozenset(
    {"row index", "index", "command", "notes", "note", "comment", "comments", "remark", "remarks", "problem", "cmd",
     "profile memory", "part", "#", "id", "row", "seed", "run", "date", "report", "error",
     "message", "exception"}
)  # fmt: skip
STATISTICS: Mapping[str, Statistic] = {
    **dict.fromkeys(("mean", "avg", "average"), "mean"),
    **dict.fromkeys(("std", "stddev", "stdev", "sd", "σ", "deviation", "dev"), "std"),
    **dict.fromkeys(("median", "med", "p50"), "median"),
    **dict.fromkeys(("min", "minimum", "fastest", "best"), "min"),
    **dict.fromkeys(("max", "maximum", "slowest"), "max"),
}
PASSES = {
    **dict.fromkeys(("forward", "fwd", "fw"), "forward"),
    **dict.fromkeys(("backward", "bwd", "back", "bw"), "backward"),
    **dict.fromkeys(("optimizer", "opt", "optim", "adamw"), "optimizer"),
    "loss": "loss",
}
VARIANTS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("fp32", "float32"), ("precision", "fp32")),
    "tf32": ("precision", "tf32"),
    **dict.fromkeys(("bf16", "bfloat16"), ("precision", "bf16")),
    **dict.fromkeys(("fp16", "float16", "half"), ("precision", "fp16")),
    **dict.fromkeys(("amp", "autocast", "mixed"), ("precision", "mixed")),
    **dict.fromkeys(("compiled", "compile"), ("backend", "compiled")),
    **dict.fromkeys(("eager", "uncompiled"), ("backend", "eager")),
    **{name: ("implementation", name) for name in ("naive", "vanilla", "pytorch", "sdpa", "flash", "triton")},
    "inference": ("mode", "inference"),
    **dict.fromkeys(("train", "training"), ("mode", "train")),
}
#: Settings whose number a heading may state, as "context 128 (ms)" does.
NUMBERED: Mapping[str, str] = {
    "warmup": "warmup_steps", "context": "context", "ctx": "context", "batch": "batch", "bs": "batch",
    "seqlen": "seq_len", "seq": "seq_len",
}  # fmt: skip
#: Parts of a model or of attention whose time or memory a heading may name.
COMPONENTS = frozenset({"attention", "attn", "softmax", "matmul", "mlp", "ffn", "embedding", "masking"})
#: Words for the part that a figure is about, beside the passes.
PARTS = frozenset({"model", "plus", "total", "step", "before", "after", "during", "activations", "parameters"})
_UNIT_WORDS = (
    "s sec secs seconds second ms msec milliseconds us usec microseconds ns nanoseconds kib mib gib tib kb mb gb tb "
    "bytes % x tokens/s tok/s ktok/s flop/s gflop/s tflop/s pflop/s gflops tflops pflops flops/s gflops/s "
    "tflops/s pflops/s"
)
UNITS = frozenset(_UNIT_WORDS.split())
#: Words that say of a figure that it is a time, and words that add nothing to what the others say.
TIME_WORDS = frozenset({"time", "times", "runtime", "latency", "duration", "elapsed", "timing"})
_FILLERS = "of the pass per in wall clock gpu cuda only full measured used usage consumption footprint at and"
FILLERS = TIME_WORDS | frozenset(_FILLERS.split())
MEMORY = frozenset({"memory", "mem", "vram"})
DIMENSIONS: Mapping[str, Dimension] = {
    **dict.fromkeys(("memory", "peak_memory", "allocated_memory", "reserved_memory"), "bytes"),
    **dict.fromkeys(("speedup", "ratio", "result", "other", "dtype"), "plain"),
    "share": "share", "calls": "count", "tokens_per_s": "tokens/s", "flops_per_s": "flops/s",
}  # fmt: skip
MEMORY_NAMES: tuple[tuple[frozenset[str], Quantity], ...] = (
    (frozenset({"reserved"}), "reserved_memory"),
    (frozenset({"peak", "max", "maximum"}), "peak_memory"),
    (frozenset({"allocated", "alloc"}), "allocated_memory"),
)
ALL_MEMORY_NAMES = frozenset().union(*(names for names, _ in MEMORY_NAMES))
NAMED: tuple[tuple[frozenset[str], Quantity], ...] = (
    (frozenset({"speedup", "speedups"}), "speedup"),
    (frozenset({"ratio"}), "ratio"),
    (frozenset({"share", "fraction", "mfu"}), "share"),
    (frozenset({"instances", "calls", "count", "launches"}), "calls"),
    (frozenset({"throughput"}), "tokens_per_s"),
    (frozenset({"dtype"}), "dtype"),
    (frozenset({"result", "sum"}), "result"),
)
