"""Pairs peaks of memory in two precisions.

for pair in pairs_of(cells, base="fp32", other="bf16"):
    print(pair.base.cell.context, pair.ratio)
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.results import Peak
from runner.schema import TABLES


@dataclass(frozen=True, kw_only=True)
class PrecisionPair:
    """Two cells that differ in the precision alone."""

    base: Peak
    other: Peak

    @property
    def ratio(self) -> float:
        return (self.other.peak_allocated_bytes or 0) / (self.base.peak_allocated_bytes or 1)


def pairs_of(cells: Sequence[Peak], *, base: str = "fp32", other: str = "bf16") -> list[PrecisionPair]:
    """Returns every pair of cells with results that differ in the precision alone, on one machine."""
    sides: list[dict[tuple[object, ...], Peak]] = [{}, {}]
    for cell in cells:
        if cell.peak_allocated_bytes and cell.cell.precision in (base, other):
            key = (cell.machine, *(getattr(cell.cell, name) for name in TABLES["memory"].key if name != "precision"))
            sides[cell.cell.precision == other][key] = cell
    return [PrecisionPair(base=sides[0][key], other=sides[1][key]) for key in sides[0] if key in sides[1]]
