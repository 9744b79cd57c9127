"""What comes of adding a thousand hundredths? The sum bit for bit, and where it stops growing as it should.

    measurement = measure_accumulation(job, report=print)

One tensor is added to another, one element each, as often as the cell says: `total += addend` in the cell's dtypes,
where torch promotes the narrower one, or with the addend converted first. Limits: one addition at a time, as people
write it; torch's own `sum` adds in pairs and in float32.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from runner.analysis.floats import spacing
from runner.errors import Skipped
from runner.job import Job, Measurement
from runner.measure.machine.device import Device
from runner.measure.numerics.dtypes import DTYPES
from runner.schema import AccumulationCell, PartialSumRow

#: About how many sums on the way are kept.
POINTS = 100
#: An increment that is off by more than this share of the addend is a slip.
SLIP = 0.1


def measure_accumulation(job: Job, report: Callable[[str], None]) -> Measurement:
    """Adds on the job's device. Raises Skipped for a dtype that the device has not."""
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, AccumulationCell)
    if device.type == "mps" and "fp64" in (cell.accumulator, cell.addend):
        raise Skipped("MPS has no float64.")
    report("measure")
    sums = running_sums(cell, device)
    values = _values(cell, sums, held=torch.tensor(cell.value, dtype=DTYPES[cell.addend]).item())
    partial = [
        PartialSumRow(run_id=job.run_id, cell_id=job.cell_id, addend=addend, total=sums[addend - 1],
                      spacing=spacing(sums[addend - 1], cell.accumulator))
        for addend in _kept(cell.addends, values["slips_at"])
        if math.isfinite(sums[addend - 1])
    ]  # fmt: skip
    details: dict[str, Sequence[object]] = {"partial_sums": partial}
    return Measurement(values=values, details=details)


def running_sums(cell: AccumulationCell, device: Device) -> list[float]:
    """The sum after each addition, converted to float64 without rounding."""
    return list(_added(cell, device))


def _added(cell: AccumulationCell, device: Device) -> Iterator[float]:
    accumulator = DTYPES[cell.accumulator]
    total = torch.tensor(0, dtype=accumulator, device=device.torch)
    addend = torch.tensor(cell.value, dtype=DTYPES[cell.addend], device=device.torch)
    for _ in range(cell.addends):
        total += addend.type(accumulator) if cell.upcast else addend
        yield total.item()


def _values(cell: AccumulationCell, sums: Sequence[float], *, held: float) -> Mapping[str, float | int | None]:
    total, exact = sums[-1], cell.value * cell.addends
    increments = [after - before for before, after in zip([0.0, *sums], sums, strict=False)]
    slipped = (at for at, grown in enumerate(increments, 1) if not abs(grown - held) <= SLIP * abs(held))
    known = {
        "total": total,
        "exact": exact,
        "error": total - exact,
        "rounded_value": held,
        "spacing": spacing(total, cell.accumulator) if math.isfinite(total) else None,
        "last_increment": increments[-1],
        "slips_at": next(slipped, None),
    }
    return {name: value if value is None or math.isfinite(value) else None for name, value in known.items()}


def _kept(addends: int, slips_at: float | None) -> list[int]:
    """Which sums are kept, by how many have been added: evenly spread, the last, and where it begins to slip."""
    spread = set(range(1, addends + 1, max(addends // POINTS, 1))) | {addends}
    return sorted(spread | ({int(slips_at)} if slips_at else set()))
