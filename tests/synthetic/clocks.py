"""Cells that a GPU measured by all clocks, for tests: the given times decide what bounds them.

    rows.store(path, GPU, [by_clocks(GPU, rows.asked(), waited=32.0, loop=30.0, device=10.0)])

Every sample of a cell is the same, and the forward pass is half of every time.
"""

from dataclasses import replace
from typing import Any

from runner.schema import RunRow, StepCell
from tests.synthetic.rows import Rows, run
from tests.synthetic.sides import timed

#: A cell is bound by the host if the device works for less than this share of its time in a loop.
_DEVICE_BOUND = 0.95


def gpu(**values: Any) -> RunRow:
    """Returns one sweep on a GPU machine that does not exist."""
    return run(**{"device": "cuda", "device_name": "Example GPU", **values})


def by_clocks(of: RunRow, cell: StepCell, *, waited: float, loop: float, device: float, **values: Any) -> Rows:
    """Returns a cell whose steps take exactly these times (ms) by each clock; `values` are columns of its row, such as
    `round`."""
    bound = "device" if device >= _DEVICE_BOUND * loop else "host"
    found = timed(of, cell, (waited,) * 11, bound=bound, device_share=device / loop, **values)
    timings = [
        replace(row, loop_ms=share * loop, device_ms=share * device)
        for row in found.timings
        for share in [(row.median_ms or 0.0) / waited]
    ]
    return replace(found, timings=tuple(timings))
