"""Parses the text of a cell as numbers in base units: milliseconds, bytes, FLOP/s, plain numbers.

    >>> parse_cell("12.3 ± 0.4", dimension="time", unit="ms").values
    (12.3, 0.4)
    >>> parse_cell("870 ns", dimension="time").values
    (0.00087,)
    >>> parse_cell("26. 4", dimension="time", unit="ms").remark
    'Refused: “26. 4” is no number.'

A unit in the cell counts before the heading's. What cannot be read without guessing has no value and a remark that says
why: a blank inside a number, a comma that may be a decimal point, a time without a unit. Standard library only.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

Dimension = Literal["time", "bytes", "share", "count", "plain", "tokens/s", "flops/s"]
#: What a comma within a number is.
Commas = Literal["thousands", "decimal", "doubtful"]

#: The longest text that may be a number, and the largest number.
_LENGTH, _LARGEST = 200, Decimal("1e30")
_UNITS: Mapping[Dimension, Mapping[str, str | int]] = {
    "time": {"s": 1000, "ms": 1, "us": "0.001", "ns": "0.000001", "min": 60_000},
    "bytes": {"b": 1, "bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
              "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12},
    "share": {"%": "0.01", "fraction": 1},
    "count": {"k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12, "x": 1},
    "plain": {"x": 1},
    "tokens/s": {"tokens/s": 1, "ktokens/s": 10**3, "mtokens/s": 10**6},
    "flops/s": {"flop/s": 1, "mflop/s": 10**6, "gflop/s": 10**9, "tflop/s": 10**12, "pflop/s": 10**15},
}  # fmt: skip
#: What each unit is worth in the base unit of its dimension.
UNITS = {dimension: {name: Decimal(factor) for name, factor in units.items()} for dimension, units in _UNITS.items()}
#: The dimension of each unit that a heading may have; single letters such as M for millions are no units of headings.
DIMENSION_OF: Mapping[str, Dimension] = {
    unit: dimension
    for dimension in ("time", "bytes", "share", "flops/s", "tokens/s")
    for unit in UNITS[dimension]
    if unit not in ("b", "fraction", "min")
}
#: Other spellings of units.
_SPELLINGS = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s", "msec": "ms", "msecs": "ms", "millisecond": "ms",
    "milliseconds": "ms", "μs": "us", "µs": "us", "usec": "us", "microsecond": "us", "microseconds": "us",
    "nanosecond": "ns", "nanoseconds": "ns", "nsec": "ns", "mins": "min", "minutes": "min", "byte": "bytes",
    "pct": "%", "percent": "%", "×": "x", "times": "x", "tok/s": "tokens/s", "token/s": "tokens/s",
    "ktok/s": "ktokens/s", "mtok/s": "mtokens/s", "flops/s": "flop/s",
    **{f"{prefix}flops{per}": f"{prefix}flop/s" for prefix in "mgtp" for per in ("", "/s")},
}  # fmt: skip
_NUMBER = r"[+-]?(?:\d{1,40}(?:,\d{3}){0,9}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?"
_UNIT = r"[a-zA-Zμµ%×]{1,12}(?:/[a-zA-Z]{1,6})?"
_ONE = re.compile(rf"(?P<about>[~≈])?\s?(?P<a>{_NUMBER})\s?(?P<unit>{_UNIT})?(?P<mark>[*†‡§]{{1,3}})?")
_PAIR = re.compile(
    rf"\(?(?P<a>{_NUMBER})\s?(?P<unit>{_UNIT})?\s?(?P<between>±|\+/-|\+-|\(\s?±?)\s?(?P<b>{_NUMBER})"
    rf"\s?(?P<second>{_UNIT})?\s?\)?\s?(?P<after>{_UNIT})?"
)
_OOM = re.compile(r"\b(?:oom|out[ -]?of[ -]?memory(?:error)?|outofmemoryerror)\b", re.IGNORECASE)
_NO_OOM = re.compile(r"\b(?:no|not|without|never|avoids?|before|until|if|0)\b", re.IGNORECASE)
_NONE = "nan n/a na none null - -- — – / ? inf -inf n.a. <na>"
MISSING = frozenset(["", *_NONE.split()])
#: A comma that separates no thousands, as in 12,5 or 1.234,5.
_DECIMAL_COMMA = re.compile(r"[+-]?\d{1,40}(?:\.\d{3}){0,9},(?:\d{1,2}|\d{4,40})(?:\s?[a-zA-Zμµ%×]{1,12})?")
_POINT_OF_THOUSANDS = re.compile(r"(?<=\d)\.(?=\d{3}(?:\D|$))")
_DOUBTFUL_COMMA = "has a comma that may be a decimal point"
_ODD = {"\u2212": "-", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "<br>": " ", "<br/>": " "}
_WRAPS = ("***", "**", "__", "``", "`", "*", "_")


def strip_markup(text: str) -> str:
    """Returns the text of a cell without the marks of Markdown, with plain minus signs and blanks."""
    for odd, plain in _ODD.items():
        text = text.replace(odd, plain)
    text = text.replace("$\\pm$", "±").replace("\\pm", "±").strip()
    for mark in _WRAPS:
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
            text = text[len(mark) : -len(mark)].strip()
    return text


@dataclass(frozen=True, kw_only=True)
class CellValue:
    """What a cell says. `values` has one number, a mean and a standard deviation, or nothing."""

    values: tuple[float, ...] = ()
    remark: str | None = None
    is_oom: bool = False


def parse_cell(
    text: str, *, dimension: Dimension, unit: str | None = None, pair: bool = False, commas: Commas = "thousands"
) -> CellValue:
    """Returns the numbers of a cell in the base unit of `dimension`; `unit` is the heading's.

    With `pair`, "12.3 (0.4)" is a mean and a standard deviation, too. `commas` are doubtful where other cells of the
    table have them for decimal points, so that "36,592" may be either."""
    text = strip_markup(text)
    if is_oom(text):
        return CellValue(is_oom=True)
    if text.lower() in MISSING:
        return CellValue()
    if len(text) > _LENGTH:
        return _refuse(text, "is no number")
    if commas == "decimal":
        text = _POINT_OF_THOUSANDS.sub("", text).replace(",", ".")
    match = _ONE.fullmatch(text) or _PAIR.fullmatch(text)
    if match is None:
        return _refuse(text, _DOUBTFUL_COMMA if is_decimal_comma(text) else "is no number")
    parts = match.groupdict()
    if parts.get("between", "").strip() == "(" and not pair:
        return _refuse(text, "has a second number in parentheses, and the heading does not say what it is")
    numbers = [number for number in (parts["a"], parts.get("b")) if number]
    remarks = ["The table says “about”."] if parts.get("about") else []
    remarks += [f"The mark {parts['mark']} was left out."] if parts.get("mark") else []
    if any("," in number for number in numbers):
        if commas == "doubtful" or any(number.lstrip("+-").startswith("0") for number in numbers):
            return _refuse(text, _DOUBTFUL_COMMA)
        remarks.append("The comma was read as a separator of thousands.")
    own, second = parts.get("unit"), parts.get("second")
    shared = parts.get("after") or second or own or unit  # the one behind both numbers, the other's, or the heading's
    values = []
    for number, of in zip(numbers, (own or shared, second or shared), strict=False):
        factor, remark = _find_factor(of, dimension)
        if factor is None:
            return _refuse(text, remark)
        value = Decimal(number.replace(",", "")) * factor
        if abs(value) > _LARGEST:
            return _refuse(text, "is too large")
        remarks += [remark] if remark and remark not in remarks else []
        values.append(float(value))
    if values[1:] < [0.0] and len(values) == 2:
        return _refuse(text, "has a negative standard deviation")
    return CellValue(values=tuple(values), remark=" ".join(remarks) or None)


def is_oom(text: str) -> bool:
    """Returns whether a cell says that memory ran out: OOM, "CUDA OOM", "out of memory", or torch's own message."""
    if len(text) > 60 and not text.lower().startswith(("cuda out of memory", "torch.outofmemory", "torch.cuda.outof")):
        return False
    return bool(_OOM.search(text)) and not (len(text) <= 60 and _NO_OOM.search(text))


def is_decimal_comma(text: str) -> bool:
    """Returns whether a cell has a comma that can only be a decimal point."""
    return len(text) <= _LENGTH and bool(_DECIMAL_COMMA.fullmatch(text.strip()))


def normalize_unit(text: str) -> str:
    """Returns the one spelling of a unit, in lower case."""
    lower = text.strip().lower()
    return _SPELLINGS.get(lower, lower)


def is_unit(word: str) -> bool:
    """Returns whether a word of a heading is a unit."""
    return word == "x" or normalize_unit(word) in DIMENSION_OF


def spell_unit(unit: str) -> str:
    """Returns the unit as practitioners write it."""
    if UNITS["bytes"].keys() - {"b", "bytes"} >= {unit}:
        return "kB" if unit == "kb" else unit[0].upper() + unit[1:].replace("b", "B")
    return unit


def _find_factor(unit: str | None, dimension: Dimension) -> tuple[Decimal | None, str]:
    """Returns what the unit is worth and a remark; None and the reason where it is worth nothing here."""
    if unit is None:
        if dimension not in ("plain", "count", "share"):
            return None, "has no unit, and neither has its heading"
        return Decimal(1), "No unit: taken as a fraction of 1." if dimension == "share" else ""
    known = UNITS[dimension]
    name = normalize_unit(unit)
    if name not in known:
        return None, f"has the unit “{unit}”, which is none of {', '.join(known)}"
    if name in ("kb", "mb", "gb", "tb"):
        return known[name], f"{unit} was taken as powers of 1,000; many mean powers of 1,024 by it."
    return known[name], ""


def _refuse(text: str, why: str) -> CellValue:
    return CellValue(remark=f"Refused: “{text[:60]}” {why}.")
