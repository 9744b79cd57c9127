"""What a sweep compiles before it times the next cells: on a GPU, several cells at once on cores that are idle then.

    with temporary_folder("compiled") as folder:
        ahead = Ahead(folder, memory_bytes=150_000_000_000)
        ahead.compile(owed, engine, make_job=..., timeout_s=600, beat=...)
        job = replace(job, compiled=ahead.take(item))

max-autotune is left out, because it chooses kernels by timing them, which needs the device to itself.
"""

import shutil
from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import Path

from runner.engines.engine import Engine
from runner.job import Compiled, CompileJob, Job
from runner.schema import table_of
from runner.store.history import CellRound
from runner.sweep.prepare import Expected

#: The share of the device's memory that cells compiled at the same time may need by their predictions, and the share
#: that one takes whose need is not known.
ROOM, UNKNOWN = 0.8, 0.2


class Ahead:
    """The cells of a sweep that are compiled, until they are measured."""

    def __init__(self, folder: Path, *, memory_bytes: int) -> None:
        self.folder, self.memory_bytes = folder, memory_bytes
        self._compiled: dict[CellRound, Compiled] = {}

    def compile(
        self,
        items: Iterable[Expected],
        engine: Engine,
        *,
        make_job: Callable[[Expected], Job],
        timeout_s: float,
        beat: Callable[[int, int], None],
    ) -> int:
        """Compiles what can be compiled of these cells, and returns how many were. Calls `beat` with the number of
        those that have ended and of all."""
        jobs = {job.job.cell_id: (item, job) for item in choose_compiled(items) for job in [self._plan(item, make_job)]}
        if len(jobs) < 2:
            return 0
        compiled = engine.compile(
            [job for _, job in jobs.values()],
            room_bytes=int(ROOM * self.memory_bytes),
            timeout_s=timeout_s,
            beat=lambda ended: beat(ended, len(jobs)),
        )
        self._compiled |= {jobs[cell_id][0].id: known for cell_id, known in compiled.items() if known}
        return len(compiled)

    def take(self, item: Expected) -> Compiled | None:
        """Returns what compiling a cell with an empty cache left, if it was; `drop` removes it."""
        return self._compiled.get(item.id)

    def drop(self, item: Expected) -> None:
        """Removes the cache of a cell that was measured."""
        if known := self._compiled.pop(item.id, None):
            shutil.rmtree(known.folder, ignore_errors=True)

    def _plan(self, item: Expected, make_job: Callable[[Expected], Job]) -> CompileJob:
        """Returns the job that compiles a cell; one with an empty cache gets a folder of its own."""
        job, is_empty = make_job(item), getattr(item.planned.cell, "compile_cache", "shared") == "empty"
        return CompileJob(
            job=job,
            folder=self.folder / str(job.cell_id) if is_empty else None,
            peak_bytes=item.predicted.peak_bytes or int(UNKNOWN * self.memory_bytes),
        )


def select_reached(items: Iterable[Expected], *, budget_s: float) -> list[Expected]:
    """Returns the first of these cells, which together are predicted to take no longer than the budget."""
    known = list(items)
    ends = accumulate(item.predicted.seconds for item in known)
    return [item for item, end_s in zip(known, ends, strict=True) if end_s <= budget_s]


def choose_compiled(items: Iterable[Expected]) -> list[Expected]:
    """Returns the cells to compile, one of those that differ only in how carefully they are measured; the longest come
    first, so that none of them runs on alone at the end."""
    chosen: dict[object, Expected] = {}
    for item in items:
        cell = item.planned.cell
        backend = getattr(cell, "backend", "eager")
        if backend.startswith("compiled") and backend != "compiled-max-autotune":
            question = tuple(getattr(cell, name) for name in table_of(cell).question)
            chosen.setdefault((type(cell), question, getattr(cell, "compile_cache", "")), item)
    return sorted(chosen.values(), key=lambda item: -item.predicted.seconds)
