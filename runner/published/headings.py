"""Parses the heading of a column: a setting, or a figure with its quantity, statistic, unit and variant.

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
from runner.published.vocabulary import (
    ALL_MEMORY_NAMES,
    COMPONENTS,
    DIMENSIONS,
    FILLERS,
    KEPT,
    MEMORY,
    MEMORY_NAMES,
    NAMED,
    NUMBERED,
    ORIGINS,
    PARTS,
    PASSES,
    SETTING_WORDS,
    STATISTICS,
    TIME_WORDS,
    UNITS,
    VARIANTS,
)
from runner.results import Quantity, Statistic

#: What a column is: a setting; a figure; the status; whether memory ran out; a quantity's name, whose value is another
#: column's; the origin of the table (its file, title, line, machine); text that is kept as it is; or not understood.
Role = Literal["setting", "figure", "status", "oom", "quantity", "value", "origin", "kept", "unknown"]
#: A time whose phase the row or the title says.
TIME: Literal["time"] = "time"


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """The meaning of a heading. `setting` is the field of Setting, or of an origin; `quantity` is TIME where the row
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
        return DIMENSIONS.get(self.quantity, "time")

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
            "oom": "whether memory ran out",
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
    if phrase in ORIGINS:
        return Meaning(role="origin", setting=ORIGINS[phrase])
    if phrase in KEPT or not words:
        return Meaning(role="kept")
    if phrase in ("status", "outcome", "oom", "is oom"):
        return Meaning(role="oom" if "oom" in phrase else "status")
    if phrase in ("quantity", "metric"):
        return Meaning(role="quantity")
    if phrase == "value":
        return Meaning(role="value")
    meaning = _parse_setting(words) or parse_figure(heading)
    if meaning is None and "." in heading and " " not in heading:
        within = parse_heading(heading.rpartition(".")[2])  # "config.model", of an object within another
        meaning = within if within.role in ("setting", "status", "oom", "kept") else None
    return meaning or Meaning(role="unknown")


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
    return _join_phases({PASSES[word] for word in words if word in PASSES})


def _parse_setting(words: list[str]) -> Meaning | None:
    from_command = len(words) > 1 and words[0] == "cmd"
    phrase = " ".join(word for word in words[from_command:] if word != "logged")
    name = SETTING_WORDS.get(phrase)
    if name is None:
        return None
    return Meaning(role="setting", setting=name, unit="M" if phrase == "params m" else None, from_command=from_command)


def parse_figure(heading: str) -> Meaning | None:
    """Returns the figure that the words mean, None where one of them is unknown or says nothing of a figure."""
    words, variant = _take_numbers([word for word in split_words(heading) if word not in FILLERS])
    variant |= dict(VARIANTS[word] for word in words if word in VARIANTS)
    left = [word for word in words if word not in VARIANTS and not (word == "precision" and "precision" in variant)]
    units = [word for word in left if word in UNITS]
    left = [word for word in left if word not in UNITS]
    unit = normalize_unit(units[-1]) if units else None
    if len(units) > 1:
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
    meant = quantity or _find_time(parts, is_time=is_time)
    if meant is None:
        return None
    named = [name for name in parts if name != "plus" and not (name == "total" and quantity == "share")]
    named = [*components, *(named if quantity is not None else [])]
    variant |= {"part": " + ".join(named)} if named else {}
    if meant == "step" and variant.get("mode") == "train":
        del variant["mode"]
    return Meaning(
        role="figure",
        quantity=meant,
        statistics=statistics or ("value",),
        unit=_spell_unit(unit),
        variant={**variant},
        assumed="taken as a rate, in operations a second." if units and units[0].endswith("flops") else None,
    )


def _take_numbers(words: list[str]) -> tuple[list[str], dict[str, str | int]]:
    """Returns the words without those that state a number, as "context 128" does, and these settings."""
    left: list[str] = []
    settings: dict[str, str | int] = {}
    for word in words:
        before = [one for one in left[-3:] if one in NUMBERED]
        if word.isdigit() and before and len(word) < 9:
            settings[NUMBERED[before[-1]]] = int(word)
            while left.pop() != before[-1]:
                pass
        else:
            left.append(word)
    return left, settings


def _find_time(parts: list[str], *, is_time: bool) -> Quantity | Literal["time"] | None:
    """Returns whose time a heading means that names no other quantity, None where it means no time."""
    if {"model", "before", "after", "during", "activations", "parameters"} & {*parts}:
        return None
    phase = _join_phases({*parts} - {"plus", "total", "step"})
    if phase or {"step", "total"} & {*parts}:
        return phase or "step"
    return TIME if is_time else None


def _find_quantity(left: list[str], unit: str | None) -> tuple[Quantity | None, list[str]]:
    """Returns the quantity that is not the time of a phase, if the words name one, and the words that remain."""
    words = set(left)
    if words & MEMORY or (unit and unit.endswith("ib")) or (unit in ("kb", "mb", "gb", "tb", "bytes")):
        rest = [word for word in left if word not in MEMORY]
        for names, quantity in MEMORY_NAMES:
            if words & names:
                return quantity, [word for word in rest if word not in names and word not in ALL_MEMORY_NAMES]
        return "memory", rest
    for names, quantity in NAMED:
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


def _spell_unit(unit: str | None) -> str | None:
    """Returns the unit as practitioners write it."""
    if unit is None:
        return None
    spelled = {"kib": "KiB", "mib": "MiB", "gib": "GiB", "tib": "TiB", "kb": "kB", "mb": "MB", "gb": "GB", "tb": "TB"}
    return spelled.get(unit, unit)
