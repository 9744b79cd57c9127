"""The loop of a sweep: next cell, fresh process, spool, file. Goes on where it was interrupted.

    code = sweep(Request(), Settings(db=Path("data/results.duckdb")), watcher=PlainLines())

A cell is done when its key, device name, torch version and commit agree with a row that ended `ok`, `oom` or `skipped`;
done cells are not measured again unless `fresh`. The same sweep started again goes on under its run. A finished cell is
on the disk before the next one starts; getting it into the file is tried once, and nobody waits for anybody.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from runner.analysis.prediction import Prediction, predict, rate
from runner.engines.job import CeilingJob, Job, Outcome
from runner.engines.local import LocalEngine
from runner.plan import Planned, Request, check, plan
from runner.presets import preset_for
from runner.schema import (
    DONE,
    AccumulationCell,
    Moment,
    PlanRow,
    RunRow,
    SweepRow,
    TimingRow,
    new_id,
    table_of,
    utc_now,
)
from runner.store import history
from runner.store.database import QUICK, ingest
from runner.store.spool import Spool
from runner.words import title

#: How often a running sweep says that it is alive, and how long its last ingest may wait for readers (s).
HEARTBEAT_SECONDS = 4.0
LAST_INGEST_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a sweep is run, apart from what it measures. Times in seconds."""

    db: Path
    device: str = "auto"
    label: str | None = None
    timeout_s: float = 600.0
    budget_s: float | None = None
    fresh: bool = False
    skip_predicted_oom: bool = False
    ceilings: bool = True


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A planned cell with what is predicted of it."""

    planned: Planned
    predicted: Prediction


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A sweep that knows its machine: every cell with its forecast, and those already done."""

    preset: str
    machine: Mapping[str, Any]
    cells: tuple[Forecast, ...]
    done: history.Done

    @property
    def key(self) -> str:
        """Names this sweep: what is asked, and where."""
        asked = sorted((item.planned.cell.key, item.planned.round) for item in self.cells)
        where = [self.machine[name] for name in ("host", "device_name", "torch", "git_commit")]
        return hashlib.sha256(json.dumps([asked, where]).encode()).hexdigest()[:16]

    @property
    def owed(self) -> tuple[Forecast, ...]:
        return tuple(item for item in self.cells if _name(item) not in self.done)


class Watcher(Protocol):
    """Whoever shows a sweep's progress."""

    def waiting(self, reason: str) -> None: ...
    def began(self, prepared: Prepared, *, total: int) -> None: ...
    def doing(self, item: Forecast, phase: str, *, left_s: float) -> None: ...
    def finished(self, row: SweepRow, timings: list[TimingRow], *, left_s: float) -> None: ...
    def ended(self, *, statuses: Mapping[str, int], out_of_budget: int) -> None: ...


def prepare(request: Request, settings: Settings, engine: LocalEngine) -> Prepared:
    """Asks the machine what it is, makes the plan for it and looks up what is done. Measures nothing."""
    machine = engine.describe(settings.device)
    device, memory = machine["device"], machine["device_memory_bytes"]
    cells = plan(request, device=device, device_memory_bytes=memory, seed=machine["host"] or "")
    for item in cells:
        check(item.cell)
    rates = history.measured_rates(settings.db, machine)
    done = {} if settings.fresh else history.done_cells(settings.db, machine)
    forecasts = []
    for item in cells:
        precision = "fp32" if isinstance(item.cell, AccumulationCell) else item.cell.precision
        speed = rate(machine, precision, measured=rates)
        expected = predict(item.cell, device=device, flops_per_s=speed, gpu=machine["device_name"] or "")
        forecasts.append(Forecast(planned=item, predicted=expected))
    preset = request.preset or preset_for(device)
    return Prepared(preset=preset, machine=machine, cells=tuple(forecasts), done=done)


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
        self.predicted = self.taken = 0.0

    def run(self) -> int:
        self.watcher.began(self.prepared, total=len(self.prepared.owed))
        if self.is_new and self.prepared.owed:
            self.spool.write({"runs": [self._run_row()]}, name=f"run-{self.run_id}")
            self._store()
            self._measure_ceilings("start")
        counts: dict[str, int] = {}
        left = list(self.prepared.owed)
        while left and not self._out_of_budget():
            row = self._measure(left.pop(0), left)
            counts[row.status] = counts.get(row.status, 0) + 1
        if counts and not left:
            self._measure_ceilings("end")
        while ingest(self.settings.db, patience_s=LAST_INGEST_SECONDS):
            pass
        if not left:
            self.spool.remove_plan(self.run_id)
        self.watcher.ended(statuses=counts, out_of_budget=len(left))
        return 1 if left or set(counts) - DONE else 0

    def _measure(self, item: Forecast, rest: list[Forecast]) -> SweepRow:
        """Measures one cell and stores its row and its details."""
        position = self.prepared.cells.index(item)
        started, began, cell_id = utc_now(), time.monotonic(), new_id()

        def beat(phase: str) -> None:
            self.watcher.doing(item, phase, left_s=self._left([item, *rest]))
            if phase == "start" or time.monotonic() - self.beat_at > HEARTBEAT_SECONDS:
                self._say(position, state="running")

        outcome = self._outcome(item, cell_id, beat=beat)
        seconds = time.monotonic() - began
        row: SweepRow = table_of(item.planned.cell).row(
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
            predicted_peak_bytes=item.predicted.peak_bytes,
            **outcome.measurement.values,
        )
        details = outcome.measurement.details
        self.spool.write({table_of(item.planned.cell).name: [row], **details}, name=str(cell_id))
        self._store()
        self.predicted, self.taken = self.predicted + item.predicted.seconds, self.taken + seconds
        self._say(position, state="done", status=outcome.status, seconds=seconds)
        timings = [timing for timing in details.get("timings", ()) if isinstance(timing, TimingRow)]
        self.watcher.finished(row, timings, left_s=self._left(rest))
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

    def _outcome(self, item: Forecast, cell_id: UUID, *, beat: Any) -> Outcome:
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
        """Writes the plan with what is new about one cell, and a heartbeat."""
        self.plan[position] = replace(self.plan[position], **news)
        self.beat_at, now = time.monotonic(), utc_now()
        self.spool.write_plan([replace(row, heartbeat_at=now) for row in self.plan], run_id=self.run_id)

    def _left(self, rest: list[Forecast]) -> float:
        """Seconds still to go: what is predicted, corrected by how the predictions so far turned out."""
        correction = self.taken / self.predicted if self.predicted else 1.0
        return sum(item.predicted.seconds for item in rest) * correction

    def _out_of_budget(self) -> bool:
        return self.settings.budget_s is not None and time.monotonic() - self.began >= self.settings.budget_s

    def _plan_row(self, position: int, item: Forecast) -> PlanRow:
        status = self.prepared.done.get(_name(item))
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


def _name(item: Forecast) -> tuple[str, int]:
    return item.planned.cell.key, item.planned.round


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
