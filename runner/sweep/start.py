"""Starts a sweep where its engine measures: in one place, or in several at once. A machine measures one at a time,
because two slow each other down.

code = sweep(Request(), Settings(db=Path("data/results.duckdb")), watcher=PlainLines())
"""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from runner.engines.engine import open_engine
from runner.plan.planning import Request
from runner.store.database import check_writable
from runner.sweep.loop import Watcher, run_sweep
from runner.sweep.prepare import Settings, prepare
from runner.sweep.spread import spread
from runner.temporary import remove_leftovers, unusable_error


def sweep(request: Request, settings: Settings, *, watcher: Watcher) -> int:
    """Measures the owed cells and returns the exit code, as `run_sweep` does. Raises StoreError where rows cannot be
    added, before anything is measured."""
    check_writable(settings.db)
    if settings.engine != "local":
        with open_engine(settings.engine, on=settings.on) as places:
            return spread(request, settings, places, watcher=watcher)
    opened = open_engine("local", on=settings.on, compiles=request.may_compile)
    with opened as (engine,), lock_machine(watcher.waiting):
        return run_sweep(prepare(request, settings, engine), settings, engine=engine, watcher=watcher)


@contextlib.contextmanager
def lock_machine(report: Callable[[str], None]) -> Iterator[None]:
    """Waits until no other sweep measures on this machine. The lock ends with the process."""
    path = Path(tempfile.gettempdir(), f"stepscope-{os.getuid()}.lock")
    with contextlib.ExitStack() as opened:
        try:
            lock = opened.enter_context(path.open("a"))
        except OSError as error:
            raise unusable_error(error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("Another sweep is measuring on this machine; waiting for it to end.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        remove_leftovers()
        yield
