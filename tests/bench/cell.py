"""What does a cell cost beyond building, warming up and measuring? Measured in a real sweep, from start to start.

    python -m tests.bench cell

The cost includes starting the worker, sending the result, the spool, the ingest and the plan. Limits: nobody reads the
file at the same time (tests.bench.store has readers), and the cells are small.
"""

import itertools
import statistics
import sys
import tempfile
from pathlib import Path

from runner.store.database import open_reader
from tests.bench.result import Result
from tests.command import execute

WORDS = (
    "--experiment benchmark --sizes toy-64 --contexts 16,32,48 --modes inference,train --precisions fp32,bf16 "
    "--backends eager --warmup 5 --steps 10 --max-steps 20 --rounds 2 --max-seconds 0.1 --device cpu"
)
CELLS = 24
GOAL_S = 0.3


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder, "results.duckdb")
        execute(sys.executable, "-m", "runner", "sweep", *WORDS.split(), "--db", str(db), code=0)
        with open_reader(db) as connection:
            rows = connection.execute(
                "SELECT started_at, build_seconds + warmup_seconds + measure_seconds + coalesce(unwaited_seconds, 0) "
                "FROM steps WHERE status = 'ok' ORDER BY cell_id"
            ).fetchall()
    assert len(rows) == CELLS, f"{len(rows)} cells of {CELLS}"
    costs = [(after - began).total_seconds() - useful for (began, useful), (after, _) in itertools.pairwise(rows)]
    median = statistics.median(costs)
    return [
        Result(
            name="a cell beyond its work, median",
            figure=f"{median:.3f} s of {len(costs)} cells (longest {max(costs):.3f} s)",
            goal=f"at most {GOAL_S} s on a CPU",
            met=median <= GOAL_S,
        )
    ]
