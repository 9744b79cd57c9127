"""The loop of a sweep: next cell, fresh process, spool, file. Goes on where it was interrupted.

    code = sweep(Request(), Settings(db=Path("data/results.duckdb")), watcher=PlainLines())

A cell is done when its key, device name, torch version and commit agree with a row that ended `ok`, `oom` or `skipped`;
done cells are not measured again unless `fresh`. The same sweep started again goes on under its run. A finished cell is
on the disk before the next one starts; getting it into the file is tried once, and nobody waits for anybody.
"""

import contextlib
import fcntl
import os
import shlex
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from runner.engines.local import LocalEngine
from runner.job import CeilingJob, Job, Outcome
from runner.plan.planning import Request
from runner.schema import (
    DONE,
    Moment,
    PlanRow,
    Row,
    RunRow,
    TimingRow,
    new_id,
    table_of,
    utc_now,
)
from runner.schema.titles import title
from runner.store import history
from runner.store.database import QUICK, ingest
from runner.store.spool import Spool
from runner.sweep.prepare import Expected, Prepared, Settings, prepare

#: How often a running sweep says that it is alive, and how long its last ingest may wait for readers (s).
HEARTBEAT_SECONDS = 4.0
LAST_INGEST_SECONDS = 5.0


class Watcher(Protocol):
    """Whoever shows a sweep's progress."""

    def waiting(self, reason: str) -> None: ...
    def began(self, prepared: Prepared, *, total: int) -> None: ...
    def doing(self, item: Expected, phase: str, *, left_s: float) -> None: ...
    def finished(self, row: Row, timings: list[TimingRow], *, left_s: float) -> None: ...
    def ended(self, *, statuses: Mapping[str, int], out_of_budget: int) -> None: ...


def sweep(request: Request, settings: Settings, *, watcher: Watcher) -> int:
    """Measures what is owed and returns the exit code: 0 if every cell is done, 1 if some failed or time ran out."""
    engine = LocalEngine()
    with alone_on_this_machine(watcher.waiting):
        prepared = prepare(request, settings, engine)
        return _Sweep(prepared, settings, engine=engine, watcher=watcher).run()


class _Sweep:
    """One sweep under way. Its state is the plan, which is also what live pages show."""

    def __init__(self, prepared: Prepared, settings: Settings, *, engine: LocalEngine, watcher: Watcher) -> None:
        self.prepared, self.settings, self.engine, self.watcher = prepared, settings, engine, watcher
        self.spool = Spool(settings.db)
        known = None if settings.fresh else history.run_of(settings.db, prepared.key)
        self.run_id = known or new_id()
        self.is_new = known is None
        self.plan = [self._plan_row(position, item) for position, item in enumerate(prepared.cells)]
        self.began = self.beat_at = time.monotonic()
        self.position = {item.name: position for position, item in enumerate(prepared.cells)}

    def run(self) -> int:
        self.watcher.began(self.prepared, total=len(self.prepared.owed))
        if self.is_new and self.prepared.owed:
            self.spool.write({"runs": [self._run_row()]}, name=f"run-{self.run_id}")
            self._store()
            self._measure_ceilings("start")
        counts: dict[str, int] = {}
        left = deque(self.prepared.owed)
        while left and not self._out_of_budget():
            row = self._measure(left.popleft(), left)
            counts[row.status] = counts.get(row.status, 0) + 1
        if counts and not left:
            self._measure_ceilings("end")
        while ingest(self.settings.db, patience_s=LAST_INGEST_SECONDS):
            pass
        if not left:
            self.spool.remove_plan(self.run_id)
        self.watcher.ended(statuses=counts, out_of_budget=len(left))
        return 1 if left or set(counts) - DONE else 0

    def _measure(self, item: Expected, rest: Collection[Expected]) -> Row:
        """Measures one cell and stores its row and its details."""
        position = self.position[item.name]
        started, began, cell_id = utc_now(), time.monotonic(), new_id()

        def beat(phase: str) -> None:
            left_s = max(0.0, self._left([item]) - (time.monotonic() - began)) + self._left(rest)
            self.watcher.doing(item, phase, left_s=left_s + self.prepared.ceiling_seconds)
            if phase == "start" or time.monotonic() - self.beat_at > HEARTBEAT_SECONDS:
                self._say(position, state="running", seconds=left_s - self._left(rest))

        outcome = self._outcome(item, cell_id, beat=beat)
        seconds, table = time.monotonic() - began, table_of(item.planned.cell)
        predicted = {"predicted_peak_bytes": item.predicted.peak_bytes}
        row: Row = table.row(
            **asdict(item.planned.cell),
            run_id=self.run_id,
            cell_id=cell_id,
            cell_key=item.planned.cell.key,
            round=item.planned.round,
            status=outcome.status,
            failed_phase=outcome.failed_phase,
            message=outcome.message,
            started_at=started,
            cell_seconds=seconds,
            **{name: value for name, value in predicted.items() if name in table.names},
            **outcome.measurement.values,
        )
        details = outcome.measurement.details
        self.spool.write({table.name: [row], **details}, name=str(cell_id))
        self._store()
        self.prepared.forecast.learn(item.planned.cell, predicted=item.predicted.seconds, measured=seconds)
        self._say(position, state="done", status=outcome.status, seconds=seconds)
        timings = [timing for timing in details.get("timings", ()) if isinstance(timing, TimingRow)]
        self.watcher.finished(row, timings, left_s=self._left(rest) + self.prepared.ceiling_seconds)
        return row

    def _measure_ceilings(self, moment: Moment) -> None:
        """What the machine can do at most, to hold its steps against. A sweep that is interrupted has only the start's;
        ones that cannot be measured are left out, and the sweep goes on."""
        if not self.settings.ceilings:
            return
        name = self.prepared.machine["device_name"] or ""
        job = CeilingJob(run_id=self.run_id, moment=moment, device=self._device, device_name=name)
        found = self.engine.ceilings(job)
        if found.missing:
            reasons = "; ".join(f"{ceiling} ({reason})" for ceiling, reason in found.missing.items())
            self.watcher.waiting(f"What this machine can do at most was not measured for {reasons}.")
        if found.rows:
            self.spool.write({"ceilings": found.rows}, name=f"ceilings-{self.run_id}-{moment}")
            self._store()

    @property
    def _device(self) -> str:
        """The torch device string that the workers are given."""
        asked: str = self.settings.device
        return asked if asked != "auto" else str(self.prepared.machine["device"])

    def _outcome(self, item: Expected, cell_id: UUID, *, beat: Any) -> Outcome:
        memory = self.prepared.machine["device_memory_bytes"]
        if self.settings.skip_predicted_oom and memory and item.predicted.peak_bytes > memory:
            sizes = f"{item.predicted.peak_bytes / 2**30:.1f} GiB on a device of {memory / 2**30:.1f} GiB"
            return Outcome(status="skipped", message=f"Predicted to need {sizes} (--skip-predicted-oom).")
        job = Job(
            experiment=item.planned.experiment,
            cell=item.planned.cell,
            run_id=self.run_id,
            cell_id=cell_id,
            device=self._device,
            device_name=self.prepared.machine["device_name"] or "",
        )
        return self.engine.measure(job, timeout_s=self.settings.timeout_s, beat=beat)

    def _store(self) -> None:
        """Moves the spool into the file if nobody is reading right now."""
        ingest(self.settings.db, **QUICK)

    def _say(self, position: int, **news: Any) -> None:
        """Writes the plan with what is new about one cell, a heartbeat, and the forecast as it is now. The last cell
        owed has the ceilings' seconds too, so that a page that adds them up says what the terminal says."""
        self.plan[position] = replace(self.plan[position], **news)
        self.beat_at, now = time.monotonic(), utc_now()
        waiting = [place for place, row in enumerate(self.plan) if row.state == "waiting"]
        for place in waiting:
            self.plan[place] = replace(self.plan[place], seconds=self._left([self.prepared.cells[place]]))
        rows = [replace(row, heartbeat_at=now) for row in self.plan]
        last = max((place for place, row in enumerate(rows) if row.state != "done"), default=None)
        if last is not None:
            rows[last] = replace(rows[last], seconds=(rows[last].seconds or 0) + self.prepared.ceiling_seconds)
        self.spool.write_plan(rows, run_id=self.run_id)

    def _left(self, rest: Collection[Expected]) -> float:
        """Seconds that these cells will take, by what is known now."""
        return sum(self.prepared.forecast.left(item.planned.cell, item.predicted.seconds) for item in rest)

    def _out_of_budget(self) -> bool:
        return self.settings.budget_s is not None and time.monotonic() - self.began >= self.settings.budget_s

    def _plan_row(self, position: int, item: Expected) -> PlanRow:
        status = self.prepared.done.get(item.name)
        return PlanRow(
            run_id=self.run_id,
            position=position,
            experiment=item.planned.experiment,
            cell_key=item.planned.cell.key,
            round=item.planned.round,
            title=title(item.planned.cell),
            state="done" if status else "waiting",
            status=status,
            seconds=None if status else item.predicted.seconds,
        )

    def _run_row(self) -> RunRow:
        return RunRow(
            run_id=self.run_id,
            sweep_key=self.prepared.key,
            label=self.settings.label,
            preset=self.prepared.preset,
            argv=shlex.join(["python", "-m", "runner", *sys.argv[1:]]),
            started_at=utc_now(),
            **self.prepared.machine,
        )


@contextlib.contextmanager
def alone_on_this_machine(waiting: Callable[[str], None]) -> Iterator[None]:
    """Waits until no other sweep measures here: two at once would time each other. The lock ends with the process."""
    path = Path(tempfile.gettempdir(), f"stepscope-{os.getuid()}.lock")
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting("Another sweep is measuring on this machine; waiting for it to end.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
