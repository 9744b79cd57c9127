"""Two runs on a CPU whose neighbors slow most steps down: what an undisturbed step takes, the medians hide.

    path = written(folder)      # labels `before` and `after`: of two cells one takes 6% longer after, the other as long

Each cell has six rounds.
"""

from dataclasses import replace
from pathlib import Path

from runner.schema import RunRow, StepCell
from tests.synthetic.rows import Rows, store
from tests.synthetic.sides import context, run_named, timed

#: Medians of six rounds over the undisturbed time.
SLOWED = (1.0, 1.3, 1.1, 1.5, 1.05, 1.2)
#: Undisturbed times of the cell that changes (ms); the other takes as long as this one before.
BEFORE, AFTER = 10.0, 10.6


def slowed_cell(of: RunRow, cell: StepCell, ms: float) -> list[Rows]:
    """Returns the rounds of a cell: in each 3 steps take `ms`, and 8 what a neighbor makes of it."""
    found = []
    for number, slowed in enumerate(SLOWED):
        one = timed(of, cell, (*[ms] * 3, *[ms * slowed] * 8), round=number)
        timings = tuple(replace(row, undisturbed_ms=ms * (0.5 if row.phase == "forward" else 1)) for row in one.timings)
        found.append(replace(one, timings=timings))
    return found


def written(folder: Path) -> Path:
    """Returns a file with the two runs; the cell that changes has the shorter context."""
    path = folder / "results.duckdb"
    for name, ms in (("before", BEFORE), ("after", AFTER)):
        of = run_named(name)
        store(path, of, [*slowed_cell(of, context(16), ms), *slowed_cell(of, context(32), BEFORE)])
    return path
