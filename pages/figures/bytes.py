"""A log axis of bytes.

binary_axis([2**18, 2**31])           # ticks of a log axis: 256 KiB, 1 MiB, …, 4 GiB
"""

import math
from collections.abc import Sequence
from typing import Any

from runner.formats import unit_for


def binary_axis(sizes: Sequence[float], *, most: int = 8) -> dict[str, Any]:
    """Returns the settings of a log axis for these sizes (bytes, above 0): at most `most` ticks at powers of two."""
    low, high = math.floor(math.log2(min(sizes))), math.ceil(math.log2(max(sizes)))
    stride = max(1, math.ceil((high - low + 1) / most))
    ticks = [2**power for power in range(low, high + 1, stride)]
    return {"type": "log", "tickvals": ticks, "ticktext": [_format_power(tick) for tick in ticks]}


def _format_power(size: int) -> str:
    factor, unit = unit_for([size])
    return f"{size // factor} {unit}"
