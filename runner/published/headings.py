"""What the heading of a column means: a setting, or a figure with its quantity, statistic, unit and variant.

    >>> parse_heading("bf16_mean_ms").describe()
    'mean time in ms, bf16'
    >>> parse_heading("Peak mem (GiB)").describe()
    'peak memory in GiB'

Every word of a heading must be known, or the column is not understood: a mapping may say what it means. Nothing is
taken from a heading's place. Standard library only.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from runner.published.values import Dimension, normalize_unit
from runner.results import Quantity, Statistic

#: What a column is: a setting; a figure; the status; the name of a quantity in another column, whose value is a third
#: column's; the origin of the table (its file, title, line, machine); text that is kept as it is; or not understood.
Role = Literal["setting", "figure", "status", "quantity", "value", "origin", "kept", "unknown"]
#: A time whose phase the row or the title says.
TIME: Literal["time"] = "time"

_SETTINGS: Mapping[str, str] = {
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
SETTING_WORDS = {alias: name for name, aliases in _SETTINGS.items() for alias in aliases.split("|")}
_ORIGINS = {"seed file": "file", "source file": "file", "source line": "line", "table name": "title",
            "machine": "machine", "gpu": "machine", "device name": "machine", "hardware": "machine"}  # fmt: skip
_KEPT = frozenset(
    {"row index", "index", "command", "notes", "note", "comment", "comments", "remark", "remarks", "problem", "cmd",
     "profile memory", "part", "#", "id", "row", "seed", "run", "date", "report"}
)  # fmt: skip
_STATISTICS: Mapping[str, Statistic] = {
    **dict.fromkeys(("mean", "avg", "average"), "mean"),
    **dict.fromkeys(("std", "stddev", "stdev", "sd", "σ", "deviation", "dev"), "std"),
    **dict.fromkeys(("median", "med", "p50"), "median"),
    **dict.fromkeys(("min", "minimum", "fastest", "best"), "min"),
    **dict.fromkeys(("max", "maximum", "slowest"), "max"),
}
_PASSES = {
    **dict.fromkeys(("forward", "fwd", "fw"), "forward"),
    **dict.fromkeys(("backward", "bwd", "back", "bw"), "backward"),
    **dict.fromkeys(("optimizer", "opt", "optim", "adamw"), "optimizer"),
    "loss": "loss",
}
_VARIANTS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("fp32", "float32"), ("precision", "fp32")),
    "tf32": ("precision", "tf32"),
    **dict.fromkeys(("bf16", "bfloat16"), ("precision", "bf16")),
    **dict.fromkeys(("fp16", "float16", "half"), ("precision", "fp16")),
    **dict.fromkeys(("amp", "autocast", "mixed"), ("precision", "mixed")),
    **dict.fromkeys(("compiled", "compile"), ("backend", "compiled")),
    **dict.fromkeys(("eager", "uncompiled"), ("backend", "eager")),
    **{name: ("implementation", name) for name in ("naive", "vanilla", "pytorch", "sdpa", "flash", "triton")},
    "inference": ("mode", "inference"),
}
_UNIT_WORDS = (
    "s sec secs seconds second ms msec milliseconds us usec microseconds ns nanoseconds kib mib gib tib kb mb gb tb "
    "bytes % x tokens/s tok/s ktok/s flop/s gflop/s tflop/s pflop/s flops gflops tflops pflops flops/s gflops/s "
    "tflops/s pflops/s"
)
_UNITS = frozenset(_UNIT_WORDS.split())
#: Words that add nothing to what the others say.
_FILLER_WORDS = "time times of the pass per in runtime latency duration wall clock elapsed timing gpu cuda"
_FILLERS = frozenset(_FILLER_WORDS.split())
_MEMORY = frozenset({"memory", "mem", "vram"})
_DIMENSIONS: Mapping[str, Dimension] = {
    **dict.fromkeys(("memory", "peak_memory", "allocated_memory", "reserved_memory"), "bytes"),
    **dict.fromkeys(("speedup", "ratio", "result", "other", "dtype"), "plain"),
    "share": "share", "calls": "count", "tokens_per_s": "tokens/s", "flops_per_s": "flops/s",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What a heading means. `setting` is the field of Setting, or what an origin says; `quantity` is TIME where the row
    must say of which phase. `statistics` are those of each number in a cell. `from_command` marks a setting as that of
    the command, which may differ from what ran. `assumed` says what was assumed. Figures that are not `understood` have
    no values."""

    role: Role
    setting: str = ""
    quantity: Quantity | Literal["time"] = "other"
    statistics: tuple[Statistic, ...] = ("value",)
    unit: str | None = None
    variant: Mapping[str, str | int] = field(default_factory=dict)
    from_command: bool = False
    assumed: str | None = None
    understood: bool = True

    @property
    def dimension(self) -> Dimension:
        """The dimension of the figure; times are all quantities that are nothing else."""
        return _DIMENSIONS.get(self.quantity, "time")

    def describe(self) -> str:
        """Returns the meaning in words."""
        if not self.understood:
            return "not understood"
        if self.role == "setting":
            command = " of the command" if self.from_command else ""
            return f"setting {self.setting}{command}" + (f" in {self.unit}" if self.unit else "")
        if self.role == "figure":
            statistics = " and ".join(name for name in self.statistics if name != "value")
            words = f"{statistics} {'time' if self.quantity == TIME else self.quantity.replace('_', ' ')}".strip()
            unit = f" in {self.unit}" if self.unit else ""
            return words + unit + "".join(f", {value}" for value in self.variant.values())
        return {
            "status": "status",
            "quantity": "the name of each row's quantity",
            "value": "the value of each row's quantity",
            "origin": f"{self.setting} that the row was taken from" if self.setting != "machine" else "machine",
            "kept": "kept as text",
        }.get(self.role, "not understood")


@lru_cache(maxsize=1024)
def parse_heading(heading: str) -> Meaning:
    """Returns what a heading means by its words alone."""
    words = split_words(heading)
    phrase = " ".join(words)
    if phrase in _ORIGINS:
        return Meaning(role="origin", setting=_ORIGINS[phrase])
    if phrase in _KEPT or not words:
        return Meaning(role="kept")
    if phrase in ("status", "outcome"):
        return Meaning(role="status")
    if phrase in ("quantity", "metric"):
        return Meaning(role="quantity")
    if phrase == "value":
        return Meaning(role="value")
    setting = _parse_setting(words)
    return setting or parse_figure(heading) or Meaning(role="unknown")


def split_words(heading: str) -> list[str]:
    """Returns the words of a heading in lower case: "fwdMean(ms)" is fwd, mean, ms; "±" is mean, std."""
    text = re.sub(r"\s\(\d+\)$", "", heading[:300])
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", text).lower()
    text = text.replace("torch.compile", "torch compile").replace("μ", "u").replace("µ", "u")
    text = re.sub(r"±|\+/-|\+-", " mean std ", text)
    text = re.sub(r"\b(pct|percent)\b|(?<=_)(pct|percent)", "%", text)
    text = re.sub(r"(?<![a-z])std\.? ?dev\.?(?![a-z])", "std", text)
    text = re.sub(r"(\w+)[ _]per[ _]s(ec(ond)?)?(?![a-z])", r"\1/s", text)
    words = re.findall(r"[^\W_]+/s(?:ec)?(?![^\W_])|[^\W_]+|[%#×]", text)
    unique = [word.replace("/sec", "/s") for word in words]
    return unique if unique.count("mean") < 2 else [*dict.fromkeys(unique)]


def parse_pass(text: str) -> Quantity | None:
    """Returns the phase that a text such as "fwd + bwd", "forward only" or "foward + backward" names."""
    words = [{"foward": "forward"}.get(word, word) for word in split_words(text[:200])]
    return _join_phases({_PASSES[word] for word in words if word in _PASSES})


def _parse_setting(words: list[str]) -> Meaning | None:
    from_command = len(words) > 1 and words[0] == "cmd"
    phrase = " ".join(word for word in words[from_command:] if word != "logged")
    name = SETTING_WORDS.get(phrase)
    if name is None:
        return None
    return Meaning(role="setting", setting=name, unit="M" if phrase == "params m" else None, from_command=from_command)


def parse_figure(heading: str) -> Meaning | None:
    """Returns the figure that the words mean, None where one of them is unknown or says nothing of a figure."""
    words = split_words(heading)
    left = [word for word in words if word not in _FILLERS]
    variant: dict[str, str] = dict(_VARIANTS[word] for word in left if word in _VARIANTS)
    left = [word for word in left if word not in _VARIANTS and not (word == "precision" and "precision" in variant)]
    units = [word for word in left if word in _UNITS]
    left = [word for word in left if word not in _UNITS]
    unit = normalize_unit(units[-1]) if units else None
    if len(units) > 1:
        return None
    quantity, left = _find_quantity(left, unit)
    statistics = tuple(dict.fromkeys(_STATISTICS[word] for word in left if word in _STATISTICS))
    left = [word for word in left if word not in _STATISTICS]
    passes = [_PASSES.get(word, word) for word in left if word in _PASSES or word in ("model", "plus", "total", "step")]
    if len(passes) < len(left):
        return None
    phase = _join_phases({*passes} - {"model", "plus", "total", "step"})
    if quantity is not None and passes:
        variant["part"] = " + ".join(name for name in passes if name != "plus")
    timed: Quantity | Literal["time"] = quantity or phase or ("step" if {"step", "total"} & {*passes} else TIME)
    is_nothing = timed == TIME and not (unit or statistics or variant or set(words) & _FILLERS)
    if is_nothing or (quantity is None and "model" in passes):
        return None
    return Meaning(
        role="figure", quantity=timed, statistics=statistics or ("value",), unit=_as_spelled(unit), variant={**variant}
    )


def _find_quantity(left: list[str], unit: str | None) -> tuple[Quantity | None, list[str]]:
    """Returns the quantity that is not the time of a phase, if the words name one, and the words that remain."""
    words = set(left)
    if words & _MEMORY or (unit and unit.endswith("ib")) or (unit in ("kb", "mb", "gb", "tb", "bytes")):
        rest = [word for word in left if word not in _MEMORY]
        for names, quantity in _MEMORY_NAMES:
            if words & names:
                return quantity, [word for word in rest if word not in names and word not in _ALL_MEMORY_NAMES]
        return "memory", rest
    for names, quantity in _NAMED:
        if words & names:
            return quantity, [word for word in left if word not in names and word != "result"]
    if unit == "%":
        return "share", left
    if unit and unit.endswith("flop/s"):
        return "flops_per_s", left
    if unit and unit.endswith("tokens/s"):
        return "tokens_per_s", left
    if left == ["total"]:
        return "total_duration", []
    return None, left


_MEMORY_NAMES: tuple[tuple[frozenset[str], Quantity], ...] = (
    (frozenset({"reserved"}), "reserved_memory"),
    (frozenset({"peak", "max", "maximum"}), "peak_memory"),
    (frozenset({"allocated", "alloc"}), "allocated_memory"),
)
_ALL_MEMORY_NAMES = frozenset().union(*(names for names, _ in _MEMORY_NAMES))
_NAMED: tuple[tuple[frozenset[str], Quantity], ...] = (
    (frozenset({"speedup", "speedups"}), "speedup"),
    (frozenset({"ratio"}), "ratio"),
    (frozenset({"share", "fraction"}), "share"),
    (frozenset({"instances", "calls", "count", "launches"}), "calls"),
    (frozenset({"throughput"}), "tokens_per_s"),
    (frozenset({"dtype"}), "dtype"),
    (frozenset({"result", "sum"}), "result"),
)


def _join_phases(names: set[str]) -> Quantity | None:
    """Returns the phase, or the sum of phases, that these passes make."""
    sums: Mapping[frozenset[str], Quantity] = {
        frozenset({"forward"}): "forward",
        frozenset({"backward"}): "backward",
        frozenset({"optimizer"}): "optimizer",
        frozenset({"loss"}): "loss",
        frozenset({"forward", "backward"}): "forward_backward",
        frozenset({"forward", "loss", "backward"}): "forward_backward",
        frozenset({"forward", "backward", "optimizer"}): "step",
        frozenset({"forward", "loss", "backward", "optimizer"}): "step",
    }
    return sums.get(frozenset(names))


def _as_spelled(unit: str | None) -> str | None:
    """Returns the unit as practitioners write it."""
    if unit is None:
        return None
    spelled = {"kib": "KiB", "mib": "MiB", "gib": "GiB", "tib": "TiB", "kb": "kB", "mb": "MB", "gb": "GB", "tb": "TB"}
    return spelled.get(unit, unit)
