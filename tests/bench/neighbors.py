"""How much alike are the disturbances of cells that a sweep measures one after the other? For the noise bench.

    for result in judge_neighbors(Path("noise.duckdb")): print(result)

A step's disturbance is by how much the logarithm of its median is off that of its cell's median process. Their
correlation from one measured step to the next, and to those after it, says what is gained where compared cells follow
each other (`runner.plan.planning.shuffle`): a ratio of neighbors varies as 1 − the one, of others as 1 − the other.
Limits: steps only; in a file whose sweeps were in blocks already, neighbors are often of one shape.
"""

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from runner.store.database import open_reader
from tests.bench.result import Result

#: The farther steps: from the second after a step to this one.
FARTHEST = 8


def judge_neighbors(db: Path) -> Iterator[Result]:
    """Yields the correlations of each run that measured steps in several processes."""
    with open_reader(db) as reader:
        rows = reader.execute(
            "SELECT s.run_id, s.cell_key, ln(t.median_ms) FROM steps s JOIN timings t USING (cell_id) "
            "WHERE s.status = 'ok' AND t.phase = 'step' ORDER BY s.run_id, s.started_at"
        ).fetchall()
    for _, found in itertools.groupby(rows, key=lambda row: row[0]):
        steps = [(key, log_ms) for _, key, log_ms in found]
        usual = {key: statistics.median(log_ms for name, log_ms in steps if name == key) for key, _ in steps}
        if len(steps) < max(2 * len(usual), 2 * FARTHEST):
            continue
        off = [log_ms - usual[key] for key, log_ms in steps]
        near, *others = (correlate(off, distance) for distance in range(1, FARTHEST + 1))
        far = statistics.fmean(others)
        yield Result(
            name="disturbances of neighboring steps, correlation",
            figure=f"{near:.2f}, 2 to {FARTHEST} apart {far:.2f}: variance of a ratio × {(1 - near) / (1 - far):.2f}",
        )


def correlate(values: Sequence[float], distance: int) -> float:
    """Returns the autocorrelation of values whose mean is taken to be 0; 0 where they do not vary."""
    power = math.fsum(value * value for value in values) / len(values)
    products = [one * other for one, other in zip(values, values[distance:], strict=False)]
    return statistics.fmean(products) / power if power else 0.0
