"""What the headings, the settings and the titles of published tables mean, by a list of words.

    >>> parse_heading("bf16_mean_ms").describe()
    'mean time in ms, bf16'
    >>> parse_heading("Peak mem (GiB)").describe()
    'peak memory in GiB'
    >>> read_title("Mixed precision (bfloat16), no warm-up, batch 4")
    {'batch': 4, 'warmup_steps': 0, 'precision': 'bf16'}

Every word of a heading must be in the lists below, or the column is kept as text: a mapping may say what it means. What
is taken from a title is an assumption, and reported as one. Standard library only.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeVar

from runner.published.values import (
    DIMENSION_OF,
    MISSING,
    Dimension,
    is_unit,
    normalize_unit,
    parse_cell,
    spell_unit,
    strip_markup,
)
from runner.results.published import ORIGIN, Quantity, Statistic
from runner.schema import Phase, TableSubject

R = TypeVar("R")

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
ORIGINS = {"seed file": "file", "source file": "file", "source line": "line", "table name": "title",
            "machine": "machine", "gpu": "machine", "device name": "machine", "hardware": "machine"}  # fmt: skip
_KEPT = (
    "row index|index|command|notes|note|comment|comments|remark|remarks|problem|cmd|profile memory|part|#|id|row|seed|"
    "run|date|report|error|message|exception"
)
KEPT = frozenset(_KEPT.split("|"))


def _spell(names: Mapping[R, str]) -> dict[str, R]:
    """Returns the meaning of each spelling; spellings are written in one text."""
    return {word: name for name, words in names.items() for word in words.split()}


STATISTICS: Mapping[str, Statistic] = _spell(
    {"mean": "mean avg average", "std": "std stddev stdev sd σ deviation dev", "median": "median med p50",
     "min": "min minimum fastest best", "max": "max maximum slowest"}
)  # fmt: skip
PASSES: Mapping[str, Phase] = _spell(
    {"forward": "forward fwd fw foward", "backward": "backward bwd back bw", "optimizer": "optimizer opt optim adamw",
     "loss": "loss"}
)  # fmt: skip
PRECISIONS = _spell({"fp64": "fp64 float64 double", "fp32": "fp32 float32 float", "tf32": "tf32",
                     "bf16": "bf16 bfloat16", "fp16": "fp16 float16 half", "mixed": "amp autocast mixed"})  # fmt: skip
VARIANTS: Mapping[str, tuple[str, str]] = {
    **{word: ("precision", name) for word, name in PRECISIONS.items()},
    **_spell({("backend", "compiled"): "compiled compile", ("backend", "eager"): "eager uncompiled",
              ("mode", "inference"): "inference", ("mode", "train"): "train training"}),
    **{name: ("implementation", name) for name in ["naive", "vanilla", "pytorch", "torch", "sdpa", "flash", "triton"]},
}  # fmt: skip
#: Parts of a model or of attention whose time or memory a heading may name, and other words for what a figure is about.
COMPONENTS = frozenset(["attention", "attn", "softmax", "matmul", "mlp", "ffn", "embedding", "masking"])
PARTS = frozenset(["model", "plus", "total", "step", "before", "after", "during", "activations", "parameters"])
_NO_TIMES = frozenset(["model", "before", "after", "during", "activations", "parameters"])
#: Words that say of a figure that it is a time, and words that add nothing to what the others say.
TIME_WORDS = frozenset(["time", "times", "runtime", "latency", "duration", "elapsed", "timing"])
_FILLERS = "of the pass per in wall clock gpu cuda only full measured used usage consumption footprint at and"
FILLERS = TIME_WORDS | frozenset(_FILLERS.split())
MEMORY = frozenset({"memory", "mem", "vram"})
DIMENSIONS: Mapping[str, Dimension] = {
    **dict.fromkeys(("memory", "peak_memory", "allocated_memory", "reserved_memory"), "bytes"),
    **dict.fromkeys(("speedup", "ratio", "result", "other", "dtype"), "plain"),
    "share": "share", "calls": "count", "tokens_per_s": "tokens/s", "flops_per_s": "flops/s",
}  # fmt: skip
MEMORY_NAMES: Mapping[str, Quantity] = _spell(
    {"reserved_memory": "reserved", "peak_memory": "peak max maximum", "allocated_memory": "allocated alloc"}
)
NAMED: Mapping[str, Quantity] = _spell(
    {"speedup": "speedup speedups", "ratio": "ratio", "share": "share fraction mfu", "dtype": "dtype",
     "calls": "instances calls count launches", "tokens_per_s": "throughput", "result": "result sum"}
)  # fmt: skip
_RATES: Mapping[Dimension, Quantity] = {"share": "share", "flops/s": "flops_per_s", "tokens/s": "tokens_per_s"}
#: The sums of phases that have a name of their own.
_SUMS: Mapping[str, Quantity] = {
    "forward": "forward", "backward": "backward", "optimizer": "optimizer", "loss": "loss",
    "backward forward": "forward_backward", "backward forward loss": "forward_backward",
    "backward forward optimizer": "step", "backward forward loss optimizer": "step",
}  # fmt: skip

#: What a column is: a setting; a figure; the status; whether memory ran out; a quantity's name, whose value is another
#: column's; the origin of the table (its file, title, line, machine); or text that is kept as it is, not known or not.
Role = Literal["setting", "figure", "status", "oom", "quantity", "value", "origin", "group", "kept", "unknown"]
#: A time whose phase the row or the title says.
TIME: Literal["time"] = "time"


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """The meaning of a heading. `setting` is the field of Setting, or of an origin; `quantity` is TIME where the row
    must say of which phase. `statistics` are those of each number in a cell. `assumed` says what was assumed."""

    role: Role
    setting: str = ""
    quantity: Quantity | Literal["time"] = "other"
    statistics: tuple[Statistic, ...] = ("value",)
    unit: str | None = None
    variant: Mapping[str, str | int] = field(default_factory=dict)
    assumed: str | None = None

    @property
    def dimension(self) -> Dimension:
        """The dimension of the figure; times are all quantities that are nothing else."""
        return DIMENSIONS.get(self.quantity, "time")

    def describe(self) -> str:
        """Returns the meaning in words."""
        if self.role == "setting":
            return f"setting {self.setting}" + (f" in {self.unit}" if self.unit else "")
        if self.role == "figure":
            statistics = " and ".join(name for name in self.statistics if name != "value")
            words = f"{statistics} {'time' if self.quantity == TIME else self.quantity.replace('_', ' ')}".strip()
            unit = f" in {self.unit}" if self.unit else ""
            return words + unit + "".join(f", {value}" for value in self.variant.values())
        if self.role == "origin":
            return "machine" if self.setting == "machine" else f"{self.setting} {ORIGIN}"
        return _ROLE_WORDS[self.role]


_ROLE_WORDS: Mapping[Role, str] = {
    "status": "status", "oom": "whether memory ran out", "quantity": "the name of each row's quantity",
    "value": "the value of each row's quantity", "kept": "kept as text", "group": "what stood above the row",
    "unknown": "not known, kept as text",
}  # fmt: skip


@lru_cache(maxsize=1024)
def parse_heading(heading: str) -> Meaning:
    """Returns what a heading means by its words alone."""
    words = split_words(heading)
    phrase = " ".join(words)
    if phrase in ORIGINS:
        return Meaning(role="origin", setting=ORIGINS[phrase])
    if phrase in KEPT or not words or words[0] == "cmd":
        return Meaning(role="kept")
    if phrase in ("status", "outcome", "oom", "is oom"):
        return Meaning(role="oom" if "oom" in phrase else "status")
    if phrase in ("quantity", "metric"):
        return Meaning(role="quantity")
    if phrase == "value":
        return Meaning(role="value")
    name = SETTING_WORDS.get(" ".join(word for word in words if word != "logged"))
    unit = "M" if phrase == "params m" else None
    meaning = Meaning(role="setting", setting=name, unit=unit) if name else parse_figure(heading)
    if meaning is None and "." in heading and " " not in heading:
        within = parse_heading(heading.rpartition(".")[2])  # "config.model", of an object within another
        meaning = within if within.role in ("setting", "status", "oom", "kept") else None
    unknown = "not known: kept as text, as what tells rows apart."
    return meaning or Meaning(role="unknown", assumed=unknown)


def split_words(heading: str) -> list[str]:
    """Returns the words of a heading in lower case: "fwdMean(ms)" is fwd, mean, ms; "±" is mean, std."""
    text = re.sub(r"\s\(\d+\)$", "", heading[:300])
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", text).lower()
    for found, plain in (("py torch", "pytorch"), ("torch.compile", "torch compile"), ("μ", "u"), ("µ", "u")):
        text = text.replace(found, plain)
    text = re.sub(r"±|\+/-|\+-", " mean std ", text)
    text = re.sub(r"\b(pct|percent)\b|(?<=_)(pct|percent)", "%", text)
    text = re.sub(r"(?<![a-z])std\.? ?dev\.?(?![a-z])", "std", text)
    text = re.sub(r"(\w+)[ _]per[ _]s(ec(ond)?)?(?![a-z])", r"\1/s", text)
    words = re.findall(r"[^\W_]+/s(?:ec)?(?![^\W_])|[^\W_]+|[%#×]", text)
    unique = [word.replace("/sec", "/s") for word in words]
    return unique if unique.count("mean") < 2 else [*dict.fromkeys(unique)]


def parse_pass(text: str) -> Quantity | None:
    """Returns the phase that a text such as "fwd + bwd", "forward only" or "foward + backward" names."""
    return _join_phases({PASSES[word] for word in split_words(text[:200]) if word in PASSES})


def parse_figure(heading: str) -> Meaning | None:
    """Returns the figure that the words mean, None where one of them is unknown or says nothing of a figure."""
    words = [word for word in split_words(heading) if word not in FILLERS]
    variant = dict(VARIANTS[word] for word in words if word in VARIANTS)
    left = [word for word in words if word not in VARIANTS and not (word == "precision" and "precision" in variant)]
    units = [word for word in left if is_unit(word)]
    left = [word for word in left if not is_unit(word)]
    unit = normalize_unit(units[-1]) if units else None
    if len(units) > 1 or heading.strip() == "S":  # which is a length
        return None
    quantity, left = _find_quantity(left, unit)
    statistics = tuple(dict.fromkeys(STATISTICS[word] for word in left if word in STATISTICS))
    left = [word for word in left if word not in STATISTICS]
    components = [word for word in left if word in COMPONENTS]
    left = [word for word in left if word not in COMPONENTS]
    parts = [PASSES.get(word, word) for word in left if word in PASSES or word in PARTS]
    if len(parts) < len(left):
        return None
    is_time = bool(unit or statistics or variant or {*split_words(heading)} & TIME_WORDS)
    phase = _join_phases({*parts} - {"plus", "total", "step"}) or ("step" if {"step", "total"} & {*parts} else None)
    time = None if _NO_TIMES & {*parts} else phase or (TIME if is_time else None)
    meant: Quantity | Literal["time"] | None = quantity or time
    if meant is None or (meant == "loss" and not unit):  # which may be the loss itself
        return None
    named = [name for name in parts if name != "plus" and not (name == "total" and quantity == "share")]
    named = [*components, *(named if quantity is not None else [])]
    variant |= {"part": " + ".join(named)} if named else {}
    return Meaning(
        role="figure",
        quantity=meant,
        statistics=statistics or ("value",),
        unit=spell_unit(unit) if unit else None,
        variant=variant,
        assumed="taken as a rate, in operations a second." if units and units[0].endswith("flops") else None,
    )


def _find_quantity(left: list[str], unit: str | None) -> tuple[Quantity | None, list[str]]:
    """Returns the quantity that is not the time of a phase, if the words name one, and the words that remain."""
    if MEMORY & {*left} or (unit and DIMENSION_OF.get(unit) == "bytes"):
        named = [quantity for name, quantity in MEMORY_NAMES.items() if name in left]
        return named[0] if named else "memory", [word for word in left if word not in {*MEMORY, *MEMORY_NAMES}]
    for name, quantity in NAMED.items():
        if name in left:
            return quantity, [word for word in left if NAMED.get(word) not in (quantity, "result")]
    if unit and (rate := _RATES.get(DIMENSION_OF.get(unit, "time"))):
        return rate, left
    return ("total_duration", []) if left == ["total"] else (None, left)


def _join_phases(names: set[str]) -> Quantity | None:
    """Returns the phase, or the sum of phases, that these passes make."""
    return _SUMS.get(" ".join(sorted(names)))


_WHOLE = "d_model d_ff layers heads vocabulary parameters batch context seq_len d_head warmup_steps steps"
WHOLE = frozenset(_WHOLE.split())
#: The largest whole number of a setting, which is that of the schema.
_LARGEST = 2**60
_YES, _NO = frozenset({"true", "yes", "on", "1", "✓"}), frozenset({"false", "no", "off", "0", "✗"})
_MODES = {"forward": "forward", "forward_backward": "backward", "backward": "backward", "step": "train"}


def parse_setting(name: str, text: str, *, unit: str | None = None) -> tuple[str | int | bool | None, str | None]:
    """Returns the value of the setting `name`, None where the cell states none, and what was assumed or refused."""
    text = strip_markup(text)
    lower = text.lower()
    if name in WHOLE:
        read = parse_cell(text, dimension="count" if name == "parameters" else "plain", unit=unit)
        if not read.values:
            return None, read.remark
        value = read.values[0]
        if value != int(value) or not 0 <= value <= _LARGEST or len(read.values) > 1:
            return None, f"Refused: “{text[:60]}” is no whole number from 0."
        return int(value), read.remark
    if lower in MISSING and not (name == "backend" and lower == "none"):
        return None, None
    if name == "precision":
        plain = lower.removeprefix("torch.")
        return PRECISIONS.get(plain, plain), None
    if name == "backend":
        plain = "compiled" if lower in _YES or lower in ("torch.compile", "compile", "inductor") else lower
        return "eager" if lower in _NO or lower in ("none", "uncompiled") else plain, None
    if name == "is_profiled":
        return True if lower in _YES else False if lower in _NO else None, None
    if name == "mode":
        modes = [VARIANTS[word][1] for word in split_words(text) if VARIANTS.get(word, ("",))[0] == "mode"]
        return modes[0] if modes else _MODES.get(parse_pass(text) or "", lower), None
    return lower if name == "device" else text, None


_WARMUP = re.compile(
    r"\b(no|without|\d{1,4})[ -](?:steps? (?:of )?)?warm[- ]?up|\bwarm[- ]?up(?: steps)? ?[=:] ?(\d{1,4})", re.I
)
_NUMBER = re.compile(
    r"\b(batch(?:[ _]size)?|context(?:[ _]length)?|ctx|seq(?:uence)?[ _]len(?:gth)?|d_model|d_head)"
    r"(?: ?[=:] ?| (?:of )?)(\d{1,7})\b(?!\s?[-–,/]\s?\d| (?:to|and|or) \d)",
    re.IGNORECASE,
)
#: The words of a title that compares rows and does not say what each measured.
_COMPARING = frozenset({"vs", "versus", "against", "compared", "comparison"})


@lru_cache(maxsize=256)
def read_title(title: str) -> Mapping[str, str | int | bool]:
    """Returns the settings that the title states."""
    words = split_words(title[:500])
    if _COMPARING & {*words}:
        return {}
    numbers = _NUMBER.findall(title[:500])
    settings: dict[str, str | int | bool] = {
        SETTING_WORDS[" ".join(split_words(name.lower()))]: int(number) for name, number in reversed(numbers)
    }
    for steps in [one or other for one, other in _WARMUP.findall(title[:500])][:1]:
        settings["warmup_steps"] = int(steps) if steps.isdigit() else 0
    precisions = {PRECISIONS[word] for word in words if word in PRECISIONS and word[-1].isdigit()}
    return settings | ({"precision": precisions.pop()} if len(precisions) == 1 else {})


#: Words of headings that say what a table is about beside steps of a model.
_ELSEWHERE = frozenset(
    {"rank", "ranks", "nodes", "message", "messages", "bandwidth", "accuracy", "acc", "perplexity", "bleu", "requests",
     "users"}
)  # fmt: skip
_TIMES = frozenset({"forward", "backward", "optimizer", "loss", "forward_backward", "step"})
_OF_MODELS = frozenset(
    {"name", "d_model", "d_ff", "layers", "heads", "parameters", "context", "seq_len", "batch", "mode"}
)


def find_subject(title: str, *, headings: Sequence[str], quantities: set[str], settings: set[str]) -> TableSubject:
    """Returns what the rows are about, from what their columns are and, where these leave it open, from the title."""
    if "calls" in quantities:
        return "kernels"
    if "result" in quantities:
        return "accumulation"
    if quantities == {"dtype"}:
        return "dtypes"
    if any({*split_words(heading)} & _ELSEWHERE for heading in headings) and not quantities & _TIMES:
        return "other"
    if "part" in settings and quantities & {"duration", "total_duration"}:
        return "ranges"
    if {*split_words(title[:500])} & {"attention", "attn"} or "d_head" in settings:
        return "attention"
    return "steps" if quantities & _TIMES or settings & _OF_MODELS else "other"
