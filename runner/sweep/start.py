"""Starts a sweep where its engine measures: in one place, or in several at once.

code = sweep(Request(), Settings(db=Path("data/results.duckdb")), watcher=PlainLines())
"""

from runner.engines.engine import open_engine
from runner.plan.planning import Request
from runner.store.database import check_writable
from runner.sweep.loop import Watcher, run_sweep
from runner.sweep.machine_lock import lock_machine
from runner.sweep.prepare import Settings, prepare
from runner.sweep.spread import spread


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
