"""Reads the title of a table: settings that no column states, and which passes were timed.

    >>> read_title("Mixed precision (bfloat16), no warm-up, batch 4").settings
    {'warmup_steps': 0, 'precision': 'bf16', 'batch': 4}

Every setting that is taken from a title is an assumption, and reported as one. Standard library only.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from runner.published.headings import parse_pass, split_words
from runner.published.vocabulary import SETTING_WORDS
from runner.results import Quantity, Subject

_NO_WARMUP = re.compile(r"\b(?:no|without|0) (?:steps? )?warm[- ]?up\b", re.IGNORECASE)
_WARMUP = re.compile(r"\b(\d{1,4})[ -](?:steps? (?:of )?)?warm[- ]?up|\bwarm[- ]?up(?: steps)? ?[=:] ?(\d{1,4})", re.I)
_NUMBER = re.compile(
    r"\b(batch(?:[ _]size)?|context(?:[ _]length)?|ctx|seq(?:uence)?[ _]len(?:gth)?|d_model|d_head)"
    r"(?: ?[=:] ?| (?:of )?)(\d{1,7})\b(?!\s?[-–,/]\s?\d| (?:to|and|or) \d)",
    re.IGNORECASE,
)
#: The words of a title that compares rows and does not say what each measured.
_COMPARING = frozenset({"vs", "versus", "against", "compared", "comparison"})
_PRECISIONS = {
    **dict.fromkeys(("fp32", "float32"), "fp32"),
    "tf32": "tf32",
    **dict.fromkeys(("bf16", "bfloat16"), "bf16"),
    **dict.fromkeys(("fp16", "float16"), "fp16"),
}


@dataclass(frozen=True, kw_only=True)
class TitleSays:
    """The content of a title. `timed` is the phase, or the sum of phases, of a table of times that names none."""

    settings: Mapping[str, str | int | bool]
    timed: Quantity | None


@lru_cache(maxsize=256)
def read_title(title: str) -> TitleSays:
    """Returns the content of the title."""
    title = title[:500]
    words = split_words(title)
    if _COMPARING & {*words}:
        return TitleSays(settings={}, timed=parse_pass(title))
    settings: dict[str, str | int | bool] = {}
    warmup = _WARMUP.search(title)
    if _NO_WARMUP.search(title):
        settings["warmup_steps"] = 0
    elif warmup:
        settings["warmup_steps"] = int(warmup[1] or warmup[2])
    if "nsys" in words or "nvtx" in words or "profiled" in words:
        settings["is_profiled"] = True
    precisions = {_PRECISIONS[word] for word in words if word in _PRECISIONS}
    if len(precisions) == 1:
        settings["precision"] = precisions.pop()
    if "compiled" in words and "eager" not in words and "uncompiled" not in words:
        settings["backend"] = "compiled"
    for name, number in _NUMBER.findall(title):
        settings.setdefault(SETTING_WORDS[" ".join(split_words(name))], int(number))
    return TitleSays(settings=settings, timed=parse_pass(title))


def find_subject(title: str, *, quantities: set[str], settings: set[str]) -> Subject:
    """Returns what the rows are about, from what their columns are and, where these leave it open, from the title."""
    words = set(split_words(title[:500]))
    if "calls" in quantities and "part" in settings:
        return "kernels"
    if "result" in quantities:
        return "accumulation"
    if quantities == {"dtype"}:
        return "dtypes"
    if "part" in settings and quantities & {"duration", "total_duration"}:
        return "ranges"
    if "attention" in words or "d_head" in settings or ("seq_len" in settings and "name" not in settings):
        return "attention"
    times = {"forward", "backward", "optimizer", "loss", "forward_backward", "step", "duration"}
    if quantities & times or settings & {"name", "layers", "d_ff"}:
        return "steps"
    return "other"
