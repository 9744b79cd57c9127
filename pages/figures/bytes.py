"""A log axis of bytes.

binary_axis([2**18, 2**31])           # ticks of a log axis: 256 KiB, 1 MiB, …, 4 GiB
"""

import math
from collections.abc import Sequence
from typing import Any

from runner.formats import unit_for


def binary_axis(sizes: Sequence[float], *, most: int = 8) -> dict[str, Any]:
    """At most `most` ticks at powers of two, in words, for a log axis that holds these sizes (bytes, above 0)."""
    low, high = math.floor(math.log2(min(sizes))), math.ceil(math.log2(max(sizes)))
    stride = max(1, math.ceil((high - low + 1) / most))
    ticks = [2**power for power in range(low, high + 1, stride)]
    return {"type": "log", "tickvals": ticks, "ticktext": [_power(tick) for tick in ticks]}


def _power(size: int) -> str:
    factor, unit = unit_for([size])
    return f"{size // factor} {unit}"
