"""Describes floating-point formats as numbers: the distance between neighbors, and the value that a number is stored
as.

    >>> spacing(10.0, "fp16")
    0.0078125
    >>> round_to_format(0.01, "fp16")
    0.01000213623046875

IEEE 754-2019, section 3.6 (binary16, binary32, binary64); bfloat16 is binary32 with 16 bits of significand cut off.
Rounding is to nearest, ties to even. Standard library only.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from runner.schema import FloatName


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format by the `digits` of its significand after the point (bits), and the exponents of its normal numbers."""

    digits: int
    lowest: int
    highest: int

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return (2 - 2.0**-self.digits) * 2.0**self.highest


FORMATS: Mapping[FloatName, Format] = {
    "fp64": Format(digits=52, lowest=-1022, highest=1023),
    "fp32": Format(digits=23, lowest=-126, highest=127),
    "bf16": Format(digits=7, lowest=-126, highest=127),
    "fp16": Format(digits=10, lowest=-14, highest=15),
}


def spacing(value: float, name: FloatName) -> float:
    """Returns the distance from |value| to the next larger number of the format. `value` is finite and in the format's
    range."""
    form = FORMATS[name]
    exponent = math.frexp(value)[1] - 1 if value else form.lowest
    return 2.0 ** (max(exponent, form.lowest) - form.digits)


def round_to_format(value: float, name: FloatName) -> float:
    """Returns the number of the format nearest to `value`, infinite beyond the largest."""
    unit = spacing(value, name)
    found = round(value / unit) * unit
    return found if abs(found) <= FORMATS[name].largest else math.copysign(math.inf, value)
