"""Parses the text of a cell as a setting: whole numbers, precisions, backends and modes by the schema's word.

    >>> parse_setting("precision", "torch.bfloat16").value, parse_setting("backend", "True").value
    ('bf16', 'compiled')

Standard library only.
"""

from dataclasses import dataclass

from runner.published.headings import parse_pass, split_words
from runner.published.markup import strip_markup
from runner.published.values import parse_cell

_WHOLE = "d_model d_ff layers heads vocabulary parameters batch context seq_len d_head warmup_steps steps"
WHOLE = frozenset(_WHOLE.split())
#: The largest whole number of a setting, which is that of the schema.
_LARGEST = 2**60
_PRECISIONS = {"float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16",
               "float64": "fp64", "double": "fp64"}  # fmt: skip
_YES, _NO = frozenset({"true", "yes", "on", "1", "✓"}), frozenset({"false", "no", "off", "0", "✗"})
_MODES = {"forward": "forward", "forward_backward": "backward", "backward": "backward", "step": "train"}
_UNSTATED = frozenset({"", "nan", "n/a", "na", "none", "null", "-", "--", "—", "–", "?", "<na>"})


@dataclass(frozen=True, kw_only=True)
class SettingValue:
    """A setting's value, None where the cell states none, and what was assumed or refused."""

    value: str | int | bool | None = None
    remark: str | None = None


def parse_setting(name: str, text: str, *, unit: str | None = None) -> SettingValue:
    """Returns the value of the setting `name`."""
    text = strip_markup(text)
    lower = text.lower()
    if name in WHOLE:
        return _parse_whole(name, text, unit)
    if lower in _UNSTATED and not (name == "backend" and lower == "none"):
        return SettingValue()
    if name == "precision":
        plain = lower.removeprefix("torch.")
        return SettingValue(value=_PRECISIONS.get(plain, plain))
    if name == "backend":
        plain = "compiled" if lower in _YES or lower in ("torch.compile", "compile", "inductor") else lower
        return SettingValue(value="eager" if lower in _NO or lower in ("none", "uncompiled") else plain)
    if name == "is_profiled":
        return SettingValue(value=True if lower in _YES else False if lower in _NO else None)
    if name == "mode":
        return _parse_mode(text)
    return SettingValue(value=lower if name == "device" else text)


def _parse_whole(name: str, text: str, unit: str | None) -> SettingValue:
    read = parse_cell(text, dimension="count" if name == "parameters" else "plain", unit=unit)
    if not read.values:
        return SettingValue(remark=read.remark)
    value = read.values[0]
    if value != int(value) or not 0 <= value <= _LARGEST or len(read.values) > 1:
        return SettingValue(remark=f"Refused: “{text[:60]}” is no whole number from 0.")
    return SettingValue(value=int(value), remark=read.remark)


def _parse_mode(text: str) -> SettingValue:
    words = split_words(text)
    remark = "“foward” was read as forward." if "foward" in words else None
    if "inference" in words or "eval" in words:
        return SettingValue(value="inference")
    if "train" in words or "training" in words:
        return SettingValue(value="train")
    timed = parse_pass(text)
    return SettingValue(value=_MODES.get(timed or "", text.lower()), remark=remark)
