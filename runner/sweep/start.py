"""Starts a sweep where its engine measures: in one place, or in several at once. A machine measures one at a time,
because two slow each other down.

    code = sweep(Request(), Settings(db=Path("data/results.duckdb")), watcher=SweepLines())

On several places at once each measures a share of the plan, and all rows go into one file (`spread`). Places of one
device share the plan out (`runner.plan.planning`), so that what is compared is measured, in all its rounds, in one
place; another device measures the whole plan again. Each place is a run of its own. When a place is lost, its cells are
shared out anew among those that are left; a cell that was being measured there is measured again.
"""

import fcntl
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from runner.engines.engine import Engine, PlaceLost, open_engine
from runner.errors import UsageError
from runner.formats import format_count
from runner.places import remove_leftovers, unusable_error
from runner.plan.planning import Request, Shard
from runner.schema import Row, TimingRow
from runner.store.database import check_writable
from runner.store.spool import Spool
from runner.sweep.loop import Spent, Watcher, run_sweep
from runner.sweep.prepare import Expected, Prepared, prepare
from runner.sweep.request import Settings

#: What must be the same on all places; a row says what was measured with.
SAME = ("python", "torch", "git_commit")


def spread(request: Request, settings: Settings, places: Sequence[Engine], *, watcher: Watcher) -> int:
    """Measures the owed cells in all places and returns the exit code, as `run_sweep` does. Raises
    UsageError where the places differ in what must be the same, and PlaceLost when none is left."""
    (folder := Spool(settings.db).folder).mkdir(parents=True, exist_ok=True)
    waiting = "Another sweep adds to this file; waiting for it to end."
    alone = _lock((folder / ".sweep").open("a"), watcher.waiting, waiting)
    with alone, ThreadPoolExecutor(len(places)) as pool:
        machines = list(pool.map(lambda place: place.describe(settings.device), places))
        for name in SAME:
            found = {str(machine["host"]): machine[name] for machine in machines}
            if len(set(found.values())) > 1:
                listed = "; ".join(f"{host} has {value}" for host, value in sorted(found.items()))
                raise UsageError(f"The nodes differ in {name}: {listed}.", expected="the same on every node")
        places_of = Counter(machine["host"] for machine in machines)
        machines = [{**machine, "places": places_of[machine["host"]]} for machine in machines]
        groups: dict[str, list[_Placed]] = {}
        for number, (place, machine) in enumerate(zip(places, machines, strict=True)):
            groups.setdefault(str(machine["device_name"]), []).append(_Placed(place, machine, number))
        shared = _Shared(watcher)
        left = list(groups.values())
        while left:
            plans = [one for group in left for one in _share(request, settings, group, shared.waiting)]
            shared.begin([prepared for prepared, _ in plans])
            codes = _run_all(plans, settings, shared, pool)
            lost = {placed.number for (_, placed), code in zip(plans, codes, strict=True) if code is None}
            alive = [(group, [placed for placed in group if placed.number not in lost]) for group in left]
            left = [placed for group, placed in alive if 0 < len(placed) < len(group)]
            if lost and not any(code is not None for code in codes):
                raise PlaceLost("All places are lost.", do="Finished cells are kept; the same command goes on.")
        shared.end()
        return max((code for code in codes if code is not None), default=0)


class _Placed(NamedTuple):
    """A place with its machine, which was described once."""

    place: Engine
    machine: Mapping[str, Any]
    number: int


def _share(
    request: Request, settings: Settings, group: Sequence[_Placed], report: Callable[[str], None]
) -> list[tuple[Prepared, _Placed]]:
    """Returns the share of each place; a plan of fewer sizes than there are places leaves some without."""
    plans = []
    for number, placed in enumerate(group):
        part = replace(request, shard=Shard(number + 1, len(group))) if len(group) > 1 else request
        try:
            plans.append((prepare(part, settings, placed.place, machine=placed.machine, report=report), placed))
        except UsageError:
            if number == 0 or part.shard is None:
                raise
    return plans


def _run_all(
    plans: Sequence[tuple[Prepared, "_Placed"]], settings: Settings, shared: "_Shared", pool: ThreadPoolExecutor
) -> list[int | None]:
    """Returns the exit code of each place. An interrupt and an error of one end all of them."""
    running = [pool.submit(_run, plan, settings, shared) for plan in plans]
    try:
        return [one.result() for one in running]
    except BaseException:
        for _, placed in plans:
            placed.place.end()
        raise


def _run(plan: tuple[Prepared, _Placed], settings: Settings, shared: "_Shared") -> int | None:
    """Returns the exit code of one place; None when it was lost."""
    prepared, placed = plan
    try:
        return run_sweep(prepared, settings, engine=placed.place, watcher=shared)
    except PlaceLost as lost:
        shared.waiting(str(lost))
        return None


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


class _Shared:
    """The watcher of all places as one: called from a thread for each of them."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher, self.lock = watcher, threading.Lock()
        self.statuses, self.spent, self.out_of_budget, self.begun = Counter[str](), Spent(), 0, False

    def begin(self, prepared: Sequence[Prepared]) -> None:
        total, longest = sum(len(one.owed) for one in prepared), max(one.seconds for one in prepared)
        if self.begun:
            self.watcher.waiting(f"{format_count(total, 'cell')} shared out anew.")
            return
        self.begun = True
        hosts = Counter(f"{one.machine['device_name']} of {one.machine['host']}" for one in prepared)
        everything = replace(prepared[0], cells=tuple(item for one in prepared for item in one.cells))
        self.watcher.began(everything, total=total, left_s=longest)
        listed = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in hosts.items())
        self.watcher.waiting(f"{len(prepared)} places: {listed}.")

    def end(self) -> None:
        self.watcher.ended(statuses=self.statuses, out_of_budget=self.out_of_budget, spent=self.spent)

    def waiting(self, reason: str) -> None:
        with self.lock:
            self.watcher.waiting(reason)

    def began(self, prepared: Prepared, *, total: int, left_s: float) -> None:
        """Does nothing: `begin` has already announced all places."""

    def added(self, count: int) -> None:
        with self.lock:
            self.watcher.added(count)

    def doing(self, item: Expected, phase: str, *, left_s: float) -> None:
        with self.lock:
            self.watcher.doing(item, phase, left_s=left_s)

    def finished(self, row: Row, timings: list[TimingRow], *, left_s: float) -> None:
        with self.lock:
            self.watcher.finished(row, timings, left_s=left_s)

    def ended(self, *, statuses: Mapping[str, int], out_of_budget: int, spent: Spent) -> None:
        with self.lock:
            self.statuses.update(statuses)
            self.out_of_budget += out_of_budget
            self.spent += spent


def sweep(request: Request, settings: Settings, *, watcher: Watcher) -> int:
    """Measures the owed cells and returns the exit code, as `run_sweep` does. Raises StoreError where rows cannot be
    added, before anything is measured."""
    check_writable(settings.db)
    with open_engine(settings.engine, on=settings.on, compiles=request.may_compile) as places:
        if settings.engine != "local":
            return spread(request, settings, places, watcher=watcher)
        with lock_machine(watcher.waiting):
            prepared = prepare(request, settings, places[0], report=watcher.waiting)
            return run_sweep(prepared, settings, engine=places[0], watcher=watcher)


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
