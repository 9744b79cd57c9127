"""How long does a sweep wait for the store while others read the file continuously, and is any cell lost?

    python -m tests.bench store            # 200 cells that only sleep 100 ms, four readers
    cells 200  added p50 61 ms  p99 98 ms  lost 0  reader errors 0  reads 2113

The time added to a cell is the time from its last measurement until the next cell may start: writing the spool file and
trying to ingest it. Limits: the readers compete with the sweep for the same cores, as they would on one machine.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import quantiles
from uuid import UUID

from runner.schema import RunRow, SampleRow, StepRow, new_id, utc_now
from runner.store.database import BETWEEN_CELLS, ingest, open_reader
from runner.store.spool import Spool
from tests.bench.result import Result

CELL_S, READERS, SAMPLES = 0.1, 4, 40
#: The most that the store may add to a cell, in the 99th percentile.
GOAL_MS = 150.0


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of one trial. `waiting` is the number of cells that were still in the spool when the sweep ended."""

    added_ms: Sequence[float]
    lost: int
    waiting: int
    reads: int
    errors: Sequence[str]

    def percentile(self, percent: int) -> float:
        return quantiles(self.added_ms, n=100, method="inclusive")[percent - 1]

    def __str__(self) -> str:
        return (
            f"cells {len(self.added_ms)}  added p50 {self.percentile(50):.0f} ms  p99 {self.percentile(99):.0f} ms  "
            f"longest {max(self.added_ms):.0f} ms  lost {self.lost}  waiting at the end {self.waiting}  "
            f"reader errors {len(self.errors)}  reads {self.reads}"
        )


def cell_rows(run: RunRow, cell_id: UUID, *, samples: int = SAMPLES) -> dict[str, Sequence[object]]:
    """Returns the rows of one finished cell, of which only the ids mean anything."""
    step = StepRow(run_id=run.run_id, cell_id=cell_id, cell_key="0" * 16, status="ok", d_model=64, d_ff=192, layers=2,
                   heads=2, context=64, mode="train", precision="fp32")  # fmt: skip
    timed = [
        SampleRow(run_id=run.run_id, cell_id=cell_id, phase="step", step=i, is_warmup=i < 5, duration_ms=1.5 + i)
        for i in range(samples)
    ]
    return {"runs": [run], "steps": [step], "samples": timed}


def trial(db_path: Path, *, cells: int, cell_s: float = CELL_S) -> Trial:
    """Runs a sweep of cells that only sleep, while READERS processes query the same file continuously."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    pipes, processes = [], []
    for _ in range(READERS):
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_read, args=(db_path, stop, there))
        process.start()
        pipes.append(here)
        processes.append(process)
    Spool(db_path).write({"runs": [RunRow(run_id=new_id(), sweep_key="before")]}, "before")
    for pipe in pipes:
        pipe.recv()  # every reader has read once
    ids, added = _sweep(db_path, cells=cells, cell_s=cell_s)
    waiting = len(Spool(db_path).files())
    stop.set()
    counts = [pipe.recv() for pipe in pipes]
    for process in processes:
        process.join()
    while ingest(db_path, patience_s=5.0):
        pass
    with open_reader(db_path) as con:
        found = [row[0] for row in con.execute("SELECT cell_id FROM file.main.steps").fetchall()]
    assert len(found) == len(set(found)), "a cell is in the file twice"
    return Trial(
        added_ms=added,
        lost=len(ids - set(found)),
        waiting=waiting,
        reads=sum(reads for reads, _ in counts),
        errors=[error for _, errors in counts for error in errors],
    )


def _sweep(db_path: Path, *, cells: int, cell_s: float) -> tuple[set[UUID], list[float]]:
    run = RunRow(run_id=new_id(), sweep_key="bench", started_at=utc_now())
    spool, ids, added = Spool(db_path), set(), []
    for _ in range(cells):
        time.sleep(cell_s)
        cell_id = new_id()
        began = time.perf_counter()
        spool.write(cell_rows(run, cell_id), str(cell_id))
        ingest(db_path, **BETWEEN_CELLS)
        added.append((time.perf_counter() - began) * 1e3)
        ids.add(cell_id)
    return ids, added


def _read(db_path: Path, stop: Event, done: Connection) -> None:
    """Queries continuously. The number of finished cells must never fall, wherever the rows move in the meantime."""
    reads, errors, seen = 0, list[str](), 0
    while not stop.is_set():
        try:
            with open_reader(db_path) as con:
                steps, samples = con.execute(
                    "SELECT (SELECT count(*) FROM steps), count(*) FROM samples"
                ).fetchone() or (0, 0)
        except Exception as error:  # noqa: BLE001  every kind of failure is what this looks for
            if reads:
                errors.append(f"{type(error).__name__}: {error}")
            continue
        if steps < seen or samples != steps * SAMPLES:
            errors.append(f"{steps} cells after {seen}, {samples} samples")
        reads, seen = reads + 1, steps
        if reads == 1:
            done.send(None)
    done.send((reads, errors))


def run(*, cells: int = 200) -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        found = trial(Path(folder, "results.duckdb"), cells=cells)
    print(*found.errors[:10], sep="\n", end="\n" if found.errors else "")
    return [
        Result(
            name="what the store adds to a cell, p99",
            figure=f"{found.percentile(99):.0f} ms ({found})",
            goal=f"at most {GOAL_MS:.0f} ms, nothing lost, no reader error",
            met=found.percentile(99) <= GOAL_MS and not found.lost and not found.errors,
        )
    ]
