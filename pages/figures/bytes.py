"""Bytes in the unit that fits their magnitude.

unit_for([3 * 2**20, 5 * 2**20])      # (1048576, 'MiB')
in_unit(4 * 2**20)                    # '4.00 MiB'
binary_axis([2**18, 2**31])           # ticks of a log axis: 256 KiB, 1 MiB, …, 4 GiB
"""

import math
from collections.abc import Sequence
from typing import Any

from pages.figures.frame import number

_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def unit_for(sizes: Sequence[float]) -> tuple[int, str]:
    """How many bytes the unit of a chart has, and its name: the one that suits the largest."""
    largest = max(sizes, default=0)
    return next((found for found in _UNITS if largest >= found[0]), (1, "bytes"))


def in_unit(size: float) -> str:
    """One size with three digits."""
    factor, unit = unit_for([abs(size)])
    return f"{number(size / factor)} {unit}" if factor > 1 else f"{size:,.0f} {unit}"


def binary_axis(sizes: Sequence[float], *, most: int = 8) -> dict[str, Any]:
    """At most `most` ticks at powers of two, in words, for a log axis that holds these sizes (bytes, above 0)."""
    low, high = math.floor(math.log2(min(sizes))), math.ceil(math.log2(max(sizes)))
    stride = max(1, math.ceil((high - low + 1) / most))
    ticks = [2**power for power in range(low, high + 1, stride)]
    return {"type": "log", "tickvals": ticks, "ticktext": [_power(tick) for tick in ticks]}


def _power(size: int) -> str:
    factor, unit = unit_for([size])
    return f"{size // factor} {unit}"
