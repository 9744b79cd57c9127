"""Compiles several cells at once, each in a process of its own, before any of them is timed.

    compiled = compile_at_once(jobs, start=engine.start, at_once=6, room_bytes=…, timeout_s=600, beat=print)

Each process compiles with one thread, so that its time is that of a cell compiled alone, as long as there is a core for
each.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from uuid import UUID

from runner.job import Compiled, CompileJob
from runner.temporary import temporary_folder

#: The time between two beats of what runs (s).
BEAT_SECONDS = 1.0
#: What is kept of a worker's output: its end (bytes). More is cut off at every beat.
MAX_OUTPUT_BYTES = 100_000


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A process that runs one job, and the end of its pipe that is ours."""

    process: BaseProcess
    pipe: Connection

    def kill(self) -> None:
        """Kills the process and everything it started, without waiting until its memory is free."""
        if self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()

    def end(self) -> None:
        """Kills the process and everything it started, if it was started, and waits until it has ended."""
        self.kill()
        if self.process.pid is not None:
            self.process.join()
        self.pipe.close()


def trim_output(log: Path) -> None:
    """Cuts off all but the end of a worker's output. The worker appends to the file and writes on meanwhile; what it
    writes between reading and cutting is lost."""
    with contextlib.suppress(FileNotFoundError), log.open("r+b") as file:
        if file.seek(0, os.SEEK_END) > MAX_OUTPUT_BYTES:
            file.seek(-MAX_OUTPUT_BYTES, os.SEEK_END)
            end = file.read(MAX_OUTPUT_BYTES)
            file.truncate(0)
            file.seek(0)
            file.write(end)


@dataclass(frozen=True, kw_only=True)
class _Running:
    worker: Worker
    job: CompileJob
    ends: float


def compile_at_once(
    jobs: Sequence[CompileJob],
    *,
    start: Callable[[CompileJob, Path], Worker],
    at_once: int,
    room_bytes: int,
    timeout_s: float,
    beat: Callable[[int], None],
) -> Mapping[UUID, Compiled | None]:
    """Compiles cells, up to `at_once` at the same time and as far as `room_bytes` of the device's memory suffice. Calls
    `beat` with the number of those that have ended, every BEAT_SECONDS.

    Returns by its id each cell that was compiled, and what compiling took where it has a folder. One that fails here,
    or takes longer than `timeout_s`, is left to its turn."""
    waiting, compiled, running = list(jobs), dict[UUID, Compiled | None](), dict[Connection, _Running]()
    at_once = min(at_once, len(jobs))
    with temporary_folder("compile") as folder:
        try:
            while waiting or running:
                while (job := _take_next(waiting, running, room_bytes)) and len(running) < at_once:
                    waiting.remove(job)
                    worker = start(job, folder / str(job.job.cell_id))
                    running[worker.pipe] = _Running(worker=worker, job=job, ends=time.monotonic() + timeout_s)
                beat(len(jobs) - len(waiting) - len(running))
                ready = wait(list(running), timeout=BEAT_SECONDS)
                for pipe, one in list(running.items()):
                    trim_output(folder / str(one.job.job.cell_id))
                    if pipe in ready:
                        compiled |= _read(one, at_once=at_once)
                    if pipe in ready or time.monotonic() > one.ends:
                        running.pop(pipe).worker.end()
        finally:
            for one in running.values():
                one.worker.end()
    return compiled


def _take_next(
    waiting: Sequence[CompileJob], running: Mapping[Connection, _Running], room_bytes: int
) -> CompileJob | None:
    """Returns the first cell that fits beside those that run; one that fits nowhere runs alone."""
    held = sum(one.job.peak_bytes for one in running.values())
    return next((job for job in waiting if not running or held + job.peak_bytes <= room_bytes), None)


def _read(one: _Running, *, at_once: int) -> dict[UUID, Compiled | None]:
    """Returns what the process has sent, if the cell was compiled."""
    try:
        kind, *told = one.worker.pipe.recv()
    except (EOFError, ConnectionResetError):
        return {}
    if kind != "compiled":
        return {}
    first_ms, is_cold = told
    folder = one.job.folder
    known = Compiled(folder=folder, first_ms=first_ms, is_cold=is_cold, at_once=at_once) if folder else None
    return {one.job.job.cell_id: known}
