"""Two labeled runs whose comparison can be computed by hand, for the tests of Compare in the terminal and the browser.

path = written(folder)         # 4× as fast, ½× as fast, equal; and a cell for each reason to leave one out

Every sample of a cell is the same, and so are its five rounds, so that the machine has practically no noise; the
samples of `NOISY` overlap.
"""

import time
from pathlib import Path
from typing import Any

from runner.analysis.statistics import summarize
from runner.schema import Phase, RunRow, SampleRow, StepCell, StepRow, TimingRow, new_id
from tests.synthetic import memory_rows
from tests.synthetic.memory_rows import MIB
from tests.synthetic.rows import Rows, asked, failed, key_of, run, store, store_tables

NOISY = tuple(10.0 + 0.5 * place for place in range(-5, 6))


def timed(of: RunRow, cell: StepCell, samples: tuple[float, ...], **values: Any) -> Rows:
    """Returns a cell whose whole steps take exactly these times (ms); half of each is the forward pass."""
    ids: dict[str, Any] = {"run_id": of.run_id, "cell_id": new_id()}
    row = StepRow(**key_of(cell), **ids, cell_key=cell.key, status="ok", steps=len(samples), **values)
    shares: dict[Phase, float] = {"forward": 0.5, "step": 1.0}
    rows = [
        SampleRow(**ids, phase=phase, step=step, is_warmup=False, duration_ms=share * value)
        for step, value in enumerate(samples)
        for phase, share in shares.items()
    ]
    timings = [
        TimingRow(**ids, phase=phase, n=found.n, median_ms=found.median, low_ms=found.low, high_ms=found.high)
        for phase, share in shares.items()
        for found in [summarize([share * value for value in samples])]
    ]
    return Rows(step=row, samples=tuple(rows), timings=tuple(timings))


def run_named(label: str, **values: Any) -> RunRow:
    """Returns a run whose id is later than those before it: ids of the same millisecond are not ordered."""
    time.sleep(0.002)
    return run(label=label, **values)


def context(tokens: int, **values: Any) -> StepCell:
    return asked("toy-64", context=tokens, **values)


def written(folder: Path) -> Path:
    """Returns a file with these two runs, whose cells have contexts of 16, 32, …, peaks (8 and 4 MiB), and a third,
    `again`, equal to the second."""
    path = folder / "results.duckdb"
    before = run_named("before", threads=2, torch="2.12.0")
    after = run_named("after", threads=1, torch="2.13.0")
    few = (10.0,) * 5
    compiled = context(144, backend="compiled")
    a = [
        timed(before, context(16), (40.0,) * 11),
        timed(before, context(32), (10.0,) * 11),
        timed(before, context(48), (10.0,) * 11),
        *(timed(before, context(64), (10.0,) * 11, round=number) for number in range(5)),
        timed(before, context(80), (10.0,) * 11),
        failed(before, context(96)),
        timed(before, context(112), (10.0,) * 11, matmul_precision="ieee"),
        timed(before, context(128), few),
        timed(before, compiled, (10.0,) * 11),
    ]
    b = [
        timed(after, context(16), (10.0,) * 11),
        timed(after, context(32), (20.0,) * 11),
        timed(after, context(48), (10.0,) * 11),
        failed(after, context(80)),
        failed(after, context(96)),
        timed(after, context(112), (5.0,) * 11, matmul_precision="tf32"),
        timed(after, context(128), few),
        timed(after, compiled, (10.0,) * 11, recompiles=3),
        timed(after, context(160), (10.0,) * 11),
    ]
    for of, cells, size in ((before, a, 8 * MIB), (after, b, 4 * MIB)):
        store(path, of, cells)
        store_tables(path, [memory_rows.memory(of, {"activations": size}, context=tokens) for tokens in (16, 32)])
    again = run_named("again", threads=1, torch="2.13.0")
    store(path, again, [timed(again, context(48), (10.05,) * 11), timed(again, context(16), NOISY)])
    return path
