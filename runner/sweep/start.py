"""Starts a sweep where its engine measures: in one place, or in several at once. A machine measures one at a time,
because two slow each other down.

    code = sweep(Request(), Settings(db=Path("data/results.duckdb")), watcher=SweepLines())

Places of one device share one plan (`runner.sweep.loop`), and all rows go into one file; another device measures the
whole plan again.
"""

import fcntl
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import TextIO

from runner.engines.engine import Engine, PlaceLost, open_engine
from runner.errors import UsageError
from runner.places import remove_leftovers, unusable_error
from runner.plan.planning import Request
from runner.store.database import check_writable
from runner.store.spool import Spool
from runner.sweep.loop import Place, Sweep, SweepEnd, Watcher
from runner.sweep.prepare import prepare
from runner.sweep.request import Settings

#: What must be the same on all places; a row says what was measured with.
SAME = ("python", "torch", "git_commit")


def spread(request: Request, settings: Settings, engines: Sequence[Engine], *, watcher: Watcher) -> int:
    """Measures the owed cells in all places and returns the exit code, as `Sweep.run` does. Raises UsageError where the
    places differ in what must be the same, and PlaceLost when none is left."""
    with ThreadPoolExecutor(len(engines)) as pool:
        each = pool.map if len(engines) > 1 else map  # one in this thread, which Ctrl-C interrupts
        machines = [*each(lambda engine: engine.describe(settings.device), engines)]
    for name in SAME:
        found = {str(machine["host"]): machine[name] for machine in machines}
        if len(set(found.values())) > 1:
            listed = "; ".join(f"{host} has {value}" for host, value in sorted(found.items()))
            raise UsageError(f"The nodes differ in {name}: {listed}.", expected="the same on every node")
    on_host = Counter(machine["host"] for machine in machines)
    groups: dict[str, list[Place]] = {}
    for engine, machine in zip(engines, machines, strict=True):
        place = Place(engine, {**machine, "places": on_host[machine["host"]]})
        groups.setdefault(str(machine["device_name"]), []).append(place)
    sweeps = []
    for places in groups.values():
        first = places[0]
        prepared = prepare(request, settings, first.engine, machine=first.machine, report=watcher.waiting)
        sweeps.append(Sweep(prepared, settings, places=places, watcher=watcher))
    if len(engines) > 1:
        names = Counter(f"{machine['device_name']} of {machine['host']}" for machine in machines)
        listed = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in names.items())
        watcher.waiting(f"{len(engines)} places: {listed}.")
    return sweeps[0].run() if len(sweeps) == 1 else _run_all(sweeps, watcher)


def _run_all(sweeps: Sequence[Sweep], watcher: Watcher) -> int:
    """Runs the sweeps of several devices at once, and returns the highest exit code. An interrupt, and an error of one,
    end all of them; a device that is lost does not."""
    for one in sweeps:
        one.lock = sweeps[0].lock  # they tell the same watcher

    def measure(one: Sweep) -> SweepEnd | PlaceLost:
        try:
            return one.measure()
        except PlaceLost as lost:
            return lost

    with ThreadPoolExecutor(len(sweeps)) as pool:
        running = [pool.submit(measure, one) for one in sweeps]
        try:
            ends = [one.result() for one in as_completed(running)]
        except BaseException:
            for one in sweeps:
                one.end()
            raise
    ended = [one for one in ends if isinstance(one, SweepEnd)]
    lost = [one for one in ends if isinstance(one, PlaceLost)]
    if not ended:
        raise lost[0]
    watcher.ended(how := reduce(add, ended))
    return 1 if lost else how.code


@contextmanager
def _lock(file: TextIO, report: Callable[[str], None], waiting: str) -> Iterator[None]:
    """Locks a file, and says what it waits for where another process has it. The lock ends with the process."""
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(waiting)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sweep(request: Request, settings: Settings, *, watcher: Watcher) -> int:
    """Measures the owed cells and returns the exit code, as `spread` does. Raises StoreError where rows cannot be
    added, before anything is measured."""
    check_writable(settings.db)
    with open_engine(settings.engine, on=settings.on, compiles=request.may_compile) as engines:
        alone = lock_machine if settings.engine == "local" else partial(_lock_file, settings.db)
        with alone(watcher.waiting):
            return spread(request, settings, engines, watcher=watcher)


def _lock_file(db: Path, report: Callable[[str], None]) -> AbstractContextManager[None]:
    """Waits until no other sweep of several machines adds to this file; a sweep in one place waits for its machine."""
    (folder := Spool(db).folder).mkdir(parents=True, exist_ok=True)
    return _lock((folder / ".sweep").open("a"), report, "Another sweep adds to this file; waiting for it to end.")


@contextmanager
def lock_machine(report: Callable[[str], None]) -> Iterator[None]:
    """Waits until no other sweep measures on this machine. The lock ends with the process."""
    path = Path(tempfile.gettempdir(), f"stepscope-{os.getuid()}.lock")
    try:
        file = path.open("a")
    except OSError as error:
        raise unusable_error(error) from error
    with _lock(file, report, "Another sweep is measuring on this machine; waiting for it to end."):
        remove_leftovers()
        yield
