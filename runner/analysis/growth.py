"""Fits the growth of a time or a number of bytes with the sequence length, as a power of it.

    growth(cells, value=lambda cell: cell.peak_allocated_bytes)      # Growth(exponent=1.97, low=1024, high=4096)

The exponent is fitted by least squares on log-log over the three longest sequences, where constant costs weigh least.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import linear_regression

from runner.results import AttentionResult

#: How many of the longest sequences the exponent is fitted over.
LONGEST = 3
Value = Callable[[AttentionResult], float | None]


@dataclass(frozen=True, kw_only=True)
class Growth:
    """A value grows as length to the power `exponent`, fitted over so many `lengths` from `low` to `high`."""

    exponent: float
    low: int
    high: int
    lengths: int = LONGEST


def growth(cells: Sequence[AttentionResult], *, value: Value) -> Growth | None:
    """Returns the growth of one implementation; None with fewer than two lengths."""
    points = sorted((cell.cell.seq_len, found) for cell in cells if cell.status == "ok" and (found := value(cell)))
    points = points[-LONGEST:]
    lengths = len({length for length, _ in points})
    if lengths < 2:
        return None
    logs = [(math.log(length), math.log(found)) for length, found in points]
    slope = linear_regression(*zip(*logs, strict=True)).slope
    return Growth(exponent=slope, low=points[0][0], high=points[-1][0], lengths=lengths)
