"""Finds published peaks that hold tensors of the row before, and how many bytes these are.

    carried_rows(report)[row_id].left_bytes

Naive attention needs about six squares of B S² numbers. Where a peak is far beyond that, the rest over the square of
the row before says how many of those stayed alive, such as three: its graph. The other rows then hold as many.
"""

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from statistics import median_low
from typing import NamedTuple
from uuid import UUID

from runner.analysis.audit.published.readings import PublishedReport, Reading
from runner.analysis.audit.row_rules import FOREIGN, OWN_SCRATCH
from runner.results.published import Quantity

#: The most squares that naive attention holds at its peak, and the most tensors of B S d.
SQUARES, VECTORS = 6, 12
#: The smallest share of a peak for which bytes of the row before are reported.
LEFT = 0.05
_TOTALS: tuple[Quantity, ...] = ("peak_memory", "reserved_memory", "memory")


class Carried(NamedTuple):
    """The number of squares of the row before that a peak holds, their bytes, and whether the peak alone proves it."""

    squares: float
    left_bytes: float
    is_certain: bool


def peak_of(reading: Reading) -> float | None:
    """Returns the bytes of the peak or, where none is named so, of the memory as a whole; None without any."""
    for name in _TOTALS if reading.memory else ():
        figure = reading.memory.get((name, ""))
        if figure and figure.value and figure.value > 0:
            return figure.value
    return None


def needed_bytes(reading: Reading) -> int:
    """Returns the most bytes that naive attention of this cell needs."""
    key = reading.key
    vectors = (key.batch or 1) * (key.length or 0) * (key.width or 0)
    return SQUARES * _square_bytes(reading) + 4 * VECTORS * vectors


def _square_bytes(reading: Reading) -> int:
    key = reading.key
    return (2 if key.precision in ("bf16", "fp16") else 4) * (key.batch or 1) * (key.length or 0) ** 2


@lru_cache(maxsize=1)
def carried_rows(report: PublishedReport) -> Mapping[UUID, Carried]:
    """Returns what the rows of attention tables kept of the row before, for rows that did."""
    found: dict[UUID, Carried] = {}
    for readings in (group for group in report.groups if group[0].table.subject == "attention"):
        peaks = [(reading, peak) for reading in readings if reading.key.width and (peak := peak_of(reading))]
        rows = [(reading, peak, _square_bytes(before)) for (before, _), (reading, peak) in pairwise(peaks)]
        certain = {
            reading.row.row_id: (peak - needed_bytes(reading)) / square
            for reading, peak, square in rows
            if square > _square_bytes(reading) > 0 and peak > FOREIGN * needed_bytes(reading) + OWN_SCRATCH
        }
        for reading, peak, square in rows if certain else ():
            squares = certain.get(reading.row.row_id, median_low(certain.values()))
            is_certain = reading.row.row_id in certain
            if is_certain or LEFT * peak <= squares * square < peak:
                found[reading.row.row_id] = Carried(squares, squares * square, is_certain)
    return found
