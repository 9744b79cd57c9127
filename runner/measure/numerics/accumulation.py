"""The sum of many equal numbers in a dtype, bit for bit, and where it stops growing as it should.

    measurement = measure_accumulation(job, report=print)

A tensor of one element is added as often as the cell says: `total += addend` in the cell's dtypes, where torch promotes
the narrower one, or with the addend converted first. Limits: one addition at a time, as in a loop; torch's own `sum`
adds in pairs and in float32.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from runner.analysis.floats import spacing
from runner.errors import Skipped
from runner.job import Job, Measurement
from runner.measure.machine.device import Device
from runner.measure.numerics.dtypes import DTYPES
from runner.schema import AccumulationCell, PartialSumRow

#: The approximate number of partial sums that are kept.
POINTS = 100
#: The sum slips where an increment is off by more than this share of the addend.
SLIP = 0.1


def measure_accumulation(job: Job, report: Callable[[str], None]) -> Measurement:
    """Adds on the job's device. Raises Skipped for a dtype that the device lacks."""
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, AccumulationCell)
    if device.type == "mps" and "fp64" in (cell.accumulator, cell.addend):
        raise Skipped("MPS has no float64.")
    report("measure")
    sums = list(_sums(cell, device))
    values = _values(cell, sums, rounded=torch.tensor(cell.value, dtype=DTYPES[cell.addend]).item())
    partial_sums = []
    for addend in _points(cell.addends, values["slips_at"]):
        total = sums[addend - 1]
        if math.isfinite(total):
            gap = spacing(total, cell.accumulator)
            partial_sums.append(
                PartialSumRow(run_id=job.run_id, cell_id=job.cell_id, addend=addend, total=total, spacing=gap)
            )
    return Measurement(values=values, details={"partial_sums": partial_sums})


def _sums(cell: AccumulationCell, device: Device) -> Iterator[float]:
    """Yields the sum after each addition, converted to float64 without rounding."""
    accumulator = DTYPES[cell.accumulator]
    total = torch.tensor(0, dtype=accumulator, device=device.torch)
    addend = torch.tensor(cell.value, dtype=DTYPES[cell.addend], device=device.torch)
    for _ in range(cell.addends):
        total += addend.type(accumulator) if cell.upcast else addend
        yield total.item()


def _values(cell: AccumulationCell, sums: Sequence[float], *, rounded: float) -> Mapping[str, float | int | None]:
    """Returns the columns of the row; `rounded` is the addend as its dtype holds it."""
    total, exact = sums[-1], cell.value * cell.addends
    increments = [after - before for before, after in itertools.pairwise([0.0, *sums])]
    slips = (at for at, increment in enumerate(increments, 1) if not abs(increment - rounded) <= SLIP * abs(rounded))
    known = {
        "total": total,
        "exact": exact,
        "error": total - exact,
        "rounded_value": rounded,
        "spacing": spacing(total, cell.accumulator) if math.isfinite(total) else None,
        "last_increment": increments[-1],
        "slips_at": next(slips, None),
    }
    return {name: value if value is None or math.isfinite(value) else None for name, value in known.items()}


def _points(addends: int, slips_at: float | None) -> list[int]:
    """Returns the numbers of additions after which sums are kept: evenly spread, the last, and the first slip."""
    spread = set(range(1, addends + 1, max(addends // POINTS, 1))) | {addends}
    return sorted(spread | ({int(slips_at)} if slips_at else set()))
