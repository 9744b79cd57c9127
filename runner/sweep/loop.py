"""The loop of a sweep: next cell, fresh process, spool, file. Goes on where it was interrupted.

    code = Sweep(prepared, settings, places=[Place(engine, prepared.machine)], watcher=watcher).run()

Equal GPUs measure one plan at once, each the sizes that are its share, so that what is compared is measured, in all its
rounds, in one place. The rows of a place are a run of their own. What a place leaves that is lost, the others take.
A cell is done when its key, device name, torch version and commit agree with a row that ended `ok`, `oom` or `skipped`;
done cells are not measured again unless `fresh`. The same sweep started again continues its run. Once every cell is
measured, further rounds of some may follow (`runner.sweep.rounds`). A finished cell is on disk before the next one
starts; moving it into the file is tried once, without waiting for readers.
"""

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, Self
from uuid import UUID

from runner.engines.engine import Engine, PlaceLost
from runner.errors import StoreError
from runner.formats import format_count, format_share
from runner.job import CeilingJob, Job, Outcome
from runner.places import explained
from runner.plan.planning import share_out, size_of
from runner.schema import DONE, Moment, PlanRow, Row, RunRow, TimingRow, new_id, table_of, utc_now
from runner.schema.sizes import title
from runner.store import history
from runner.store.database import BETWEEN_CELLS, ingest
from runner.store.history import MeasuredRound
from runner.store.spool import Spool
from runner.sweep.prepare import Expected, Prepared, new_run
from runner.sweep.request import Settings
from runner.sweep.rounds import FurtherRounds


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Seconds of a sweep by what they went to, of `all_s`; most should go to measured steps: those waited for and those
    of the loop. The rest is what starts a process and ends it, ceilings, and the store."""

    parts: Mapping[str, float] = field(default_factory=dict)
    all_s: float = 0.0

    @classmethod
    def of(cls, row: Row) -> Self:
        """Returns the seconds of a cell. Compiling happens during the warm-up and is taken out of it."""
        measured, unwaited, warmup, first, again, building = (
            getattr(row, f"{name}_seconds", None) or 0.0
            for name in ("measure", "unwaited", "warmup", "compile", "compile_warm", "build")
        )
        compiling = min(first, warmup)
        waiting = {"warm-up": warmup - compiling, "compiling": compiling + again, "building": building}
        return cls(parts={"measured steps": measured + unwaited, **waiting})

    def __add__(self, other: "Spent") -> "Spent":
        parts = {**other.parts, **{name: part_s + other.parts.get(name, 0.0) for name, part_s in self.parts.items()}}
        return Spent(parts=parts, all_s=self.all_s + other.all_s)

    def describe(self) -> str:
        """Returns the share of each part, without those that took nothing."""
        parts = {**self.parts, "the rest": max(self.all_s - sum(self.parts.values()), 0.0)}
        return ", ".join(f"{format_share(part_s / self.all_s)} {part}" for part, part_s in parts.items() if part_s)


#: The longest that the last ingest of a sweep waits for readers (s).
LAST_INGEST_SECONDS = 5.0


def store_run(db: Path, run: RunRow) -> None:
    """Stores the row of a run that begins, and makes the folder of a new file. Raises StoreError."""
    with explained(f"{db.parent} cannot be made", expected="a folder", do="Name a file elsewhere with --db."):
        db.absolute().parent.mkdir(parents=True, exist_ok=True)
    store(db, {"runs": [run]}, name=f"run-{run.run_id}")


def store(db: Path, rows: Mapping[str, Sequence[object]], *, name: str) -> None:
    """Writes rows to the spool, and moves the spool into the file as far as that takes no waiting.

    Raises StoreError when the folder is gone or read-only or the disk is full. What had been written is not lost by
    that, and what is missing is measured by the next sweep."""
    folder, spool = db.absolute().parent, Spool(db)
    again = "The cell that was just measured is not kept; the same command measures it again and goes on."
    if not folder.exists():
        raise StoreError(f"{folder} is gone: it was there when this began.", do=f"Bring it back. {again}")
    expected, do = "room on the disk and the right to write there", f"Cells that were finished before are kept. {again}"
    with explained(f"{spool.folder} cannot be written", expected=expected, do=do):
        spool.write(rows, name=name)
    ingest(db, **BETWEEN_CELLS)


def ingest_all(db: Path) -> int:
    """Moves the spool into the file, unless others hold it for LAST_INGEST_SECONDS; returns how many cells are left."""
    spool = Spool(db)
    while spool.files() and ingest(db, patience_s=LAST_INGEST_SECONDS):
        pass
    return len(spool.files())


#: The time between two heartbeats of a running sweep (s).
HEARTBEAT_SECONDS = 4.0


@dataclass(frozen=True, kw_only=True)
class SweepEnd:
    """What a sweep ended with. The exit code is 0 if every cell is done, 1 if some failed, an own part was wrong, or
    time ran out before the further rounds."""

    statuses: Mapping[str, int]
    out_of_budget: int
    spent: Spent
    code: int

    def __add__(self, other: "SweepEnd") -> "SweepEnd":
        return SweepEnd(
            statuses=Counter(self.statuses) + Counter(other.statuses),
            out_of_budget=self.out_of_budget + other.out_of_budget,
            spent=self.spent + other.spent,
            code=max(self.code, other.code),
        )


class Watcher(Protocol):
    """Shows a sweep's progress."""

    def waiting(self, reason: str) -> None: ...
    def began(self, prepared: Prepared, *, total: int, left_s: float) -> None: ...
    def added(self, count: int) -> None: ...
    def doing(self, item: Expected, phase: str, *, left_s: float) -> None: ...
    def finished(self, row: Row, timings: list[TimingRow], *, left_s: float) -> None: ...
    def ended(self, how: SweepEnd) -> None: ...


@dataclass
class Place:
    """Where cells are measured: an engine, its machine, the run of its rows, and whether this sweep measured there."""

    engine: Engine
    machine: Mapping[str, Any]
    run_id: UUID = field(init=False)
    key: str = field(init=False)
    is_new: bool = field(init=False)
    has_measured: bool = field(init=False, default=False)


class Sweep:
    """A running sweep in equal places. Its state is the plan, which live pages show as that of the first place."""

    def __init__(self, prepared: Prepared, settings: Settings, *, places: Sequence[Place], watcher: Watcher) -> None:
        self.prepared, self.settings, self.places, self.watcher = prepared, settings, list(places), watcher
        self.spool = Spool(settings.db)
        for number, place in enumerate(places):
            place.key = prepared.key_on(place.machine, number)
            known = prepared.joined or (None if settings.fresh else history.find_run(settings.db, place.key))
            place.run_id, place.is_new = known or new_id(), known is None
        self.run_id = places[0].run_id
        self.device = settings.torch_device(prepared.machine)
        self.device_name = prepared.machine["device_name"] or ""
        #: Held while the state changes, and while the watcher is told of it.
        self.lock, self.has_ended = threading.RLock(), False
        self.owners: dict[tuple[object, ...], Place] = {}
        sizes = {item.cell.key: size_of(item.cell) for item in prepared.cells}
        for place in places:  # what a run has begun stays there
            begun = set() if place.is_new else history.measured_keys(settings.db, place.run_id)
            self.owners |= {sizes[key]: place for key in begun & sizes.keys()}
        self._share_out()
        self.further = FurtherRounds(prepared)
        self.items: dict[history.CellRound, Expected] = {}
        self.plan: dict[history.CellRound, PlanRow] = {}
        self.spent = Spent()
        self._add(prepared.cells)
        self.began = self.beat_at = time.monotonic()

    def run(self) -> int:
        """Measures the owed cells, tells how that ended, and returns the exit code."""
        self.watcher.ended(how := self.measure())
        return how.code

    def measure(self) -> SweepEnd:
        """Measures the owed cells. Raises PlaceLost when no place is left."""
        owed, counts = deque(self.prepared.owed), Counter[str]()
        left_s = self._share(self.prepared.seconds + self.further.seconds_left())
        self.watcher.began(self.prepared, total=len(owed), left_s=left_s)
        for name, reason in self.prepared.left_out.items():
            self.watcher.waiting(f"Left out: {name}. {reason}")
        self._measure_all(owed, counts)
        left = owed
        while not left and (left := self._next_round()):
            self._measure_all(left, counts)
        if counts and not left:
            self._everywhere(lambda place: self._measure_ceilings(place, "end") if place.has_measured else None)
        if waiting := ingest_all(self.settings.db):
            files = format_count(waiting, "file")
            self.watcher.waiting(f"Another program holds {self.settings.db}; {files} waiting in {self.spool.folder}.")
        if not owed and not self.prepared.joined:
            self.spool.remove_plan(self.run_id)
        spent = replace(self.spent, all_s=(time.monotonic() - self.began) * len(self.places))
        known = map(self.prepared.done.get, (item.id for item in self.prepared.cells))
        if wrong := sum(one is not None and one.status == "wrong" for one in known):
            words = format_count(wrong, "cell")
            self.watcher.waiting(f"Wrong when measured before: {words}; `python -m runner show` says how.")
        failed = owed or set(counts) - DONE or counts["wrong"] or wrong or self.prepared.left_out
        return SweepEnd(statuses=counts, out_of_budget=len(left), spent=spent, code=1 if failed else 0)

    def end(self) -> None:
        """Ends what is measured, for good."""
        self.has_ended = True
        for place in [*self.places]:
            place.engine.end()

    def _measure_all(self, left: deque[Expected], counts: Counter[str]) -> None:
        """Measures the cells in all places, as far as the budget reaches; what is left stays in `left`. Where a place
        is lost, those that were done begin again."""

        def measure(place: Place) -> None:
            if place.is_new and self._next(place, left):
                self._begin(place)
            while item := self._take(place, left):
                try:
                    status = self._measure(item, place, left).status
                except PlaceLost:
                    with self.lock:
                        left.appendleft(item)
                    raise
                with self.lock:
                    counts[status] += 1
                place.has_measured = True

        while left and not self.has_ended:
            self._everywhere(measure)
            if self._is_out_of_budget():
                return

    def _everywhere(self, work: Callable[[Place], None]) -> None:
        """Calls `work` for all places at once, and goes on without those that are lost. An interrupt, and an error of
        one, end all."""

        def try_in(place: Place) -> None:
            try:
                work(place)
            except PlaceLost as lost:
                with self.lock:
                    self.places.remove(place)
                    self._share_out(lost=place)
                    if not self.has_ended:
                        self.watcher.waiting(str(lost))

        if len(self.places) == 1:
            try_in(self.places[0])
        else:
            with ThreadPoolExecutor(len(self.places)) as pool:
                try:
                    for one in as_completed([pool.submit(try_in, place) for place in self.places]):
                        one.result()
                except BaseException:
                    self.end()
                    raise
        if not self.places:
            raise PlaceLost("All places are lost.", do="Finished cells are kept; the same command goes on.")

    def _take(self, place: Place, left: deque[Expected]) -> Expected | None:
        """Takes the next cell of a place's share, while there is time."""
        with self.lock:
            item = None if self.has_ended or self._is_out_of_budget() else self._next(place, left)
            if item:
                left.remove(item)
            return item

    def _next(self, place: Place, left: deque[Expected]) -> Expected | None:
        with self.lock:
            return next((item for item in left if self.owners.get(size_of(item.cell), place) is place), None)

    def _share_out(self, lost: Place | None = None) -> None:
        """Gives each size that has no place to one, or those of a lost place to the others, by what is owed of each;
        one place that has all needs none."""
        if len(self.places) == 1:
            self.owners = {}
            return
        owed = dict.fromkeys((size_of(item.cell) for item in self.prepared.cells), 0.0)
        for item in self.prepared.owed:
            owed[size_of(item.cell)] += item.predicted.seconds
        loads = [sum(owed[size] for size in owed if self.owners.get(size) is place) for place in self.places]
        shares = share_out({size: owed[size] for size in owed if self.owners.get(size) is lost}, loads)
        self.owners |= {size: self.places[share] for size, share in shares.items()}

    def _begin(self, place: Place) -> None:
        place.is_new = False
        run = new_run(place.run_id, self.settings, place.machine, sweep_key=place.key, preset=self.prepared.preset)
        with self.lock:
            store_run(self.settings.db, run)
        self._measure_ceilings(place, "start")

    def _next_round(self) -> deque[Expected]:
        """Returns the cells to measure once more, and adds them to the plan if there is time for them."""
        items = self.further.next_round()
        if items and not self._is_out_of_budget():
            self._add(items)
            self.watcher.added(len(items))
        return deque(items)

    def _add(self, items: Sequence[Expected]) -> None:
        for item in items:
            done = self.prepared.done.get(item.id)
            self.items[item.id] = item
            self.plan[item.id] = PlanRow(
                run_id=self.run_id,
                position=len(self.plan),
                experiment=item.experiment,
                cell_key=item.cell.key,
                round=item.round,
                title=title(item.cell),
                state="done" if done else "waiting",
                status=done.status if done else None,
                seconds=None if done else item.predicted.seconds,
            )

    def _measure(self, item: Expected, place: Place, rest: Collection[Expected]) -> Row:
        cell, started, began, cell_id = item.cell, utc_now(), time.monotonic(), new_id()

        def beat(phase: str) -> None:
            with self.lock:
                own_s = self.prepared.forecast.left(item.measured, item.predicted.seconds)
                cell_left_s = max(0.0, own_s - (time.monotonic() - began))
                self.watcher.doing(item, phase, left_s=cell_left_s + self._seconds_left(rest) + self._seconds_after())
                if phase == "start" or time.monotonic() - self.beat_at > HEARTBEAT_SECONDS:
                    self._update_plan(item, state="running", seconds=cell_left_s)

        outcome = self._run_cell(item, place, cell_id, beat=beat)
        seconds, table = time.monotonic() - began, table_of(cell)
        known = {"predicted_peak_bytes": item.predicted.peak_bytes} if "predicted_peak_bytes" in table.names else {}
        row: Row = table.row(
            **asdict(cell),
            run_id=place.run_id,
            cell_id=cell_id,
            cell_key=cell.key,
            round=item.round,
            status=outcome.status,
            failed_phase=outcome.failed_phase,
            message=outcome.message,
            started_at=started,
            cell_seconds=seconds,
            **known,
            **outcome.measurement.values,
        )
        details = outcome.measurement.details
        timings = [timing for timing in details.get("timings", ()) if isinstance(timing, TimingRow)]
        step = next((timing for timing in timings if timing.phase == "step"), None)
        times = [getattr(step, name) for name in history.TIMES] if step else []
        again = seconds - (getattr(row, "compile_cold_seconds", None) or 0.0)
        with self.lock:
            store(self.settings.db, {table.name: [row], **details}, name=str(cell_id))
            self.prepared.forecast.learn(item.measured, predicted=item.predicted.seconds, measured=seconds)
            self.spent += Spent.of(row)
            self.further.record(item, MeasuredRound.of(row.status, again, *times))
            self._update_plan(item, state="done", status=outcome.status, seconds=seconds)
            self.watcher.finished(row, timings, left_s=self._seconds_left(rest) + self._seconds_after())
        return row

    def _measure_ceilings(self, place: Place, moment: Moment) -> None:
        """Measures what the machine can do at most. Ceilings that cannot be measured are reported, and the sweep goes
        on; an interrupted sweep has only those of its start."""
        if not self.settings.ceilings:
            return
        job = CeilingJob(run_id=place.run_id, moment=moment, device=self.device, device_name=self.device_name)
        ceilings = place.engine.ceilings(job)
        with self.lock:
            if ceilings.missing:
                reasons = "; ".join(f"{name} ({reason})" for name, reason in ceilings.missing.items())
                self.watcher.waiting(f"What this machine can do at most was not measured for {reasons}.")
            if ceilings.rows:
                store(self.settings.db, {"ceilings": ceilings.rows}, name=f"ceilings-{place.run_id}-{moment}")

    def _run_cell(self, item: Expected, place: Place, cell_id: UUID, *, beat: Callable[[str], None]) -> Outcome:
        """Runs the cell in a fresh process, or skips it if it is predicted not to fit and the user wants that."""
        memory = self.prepared.machine["device_memory_bytes"]
        if self.settings.skip_predicted_oom and memory and (item.predicted.peak_bytes or 0) > memory:
            sizes = f"{(item.predicted.peak_bytes or 0) / 2**30:.1f} GiB on a device of {memory / 2**30:.1f} GiB"
            return Outcome(status="skipped", message=f"Predicted to need {sizes} (--skip-predicted-oom).")
        job = Job(
            experiment=item.experiment,
            cell=item.measured,
            run_id=place.run_id,
            cell_id=cell_id,
            device=self.device,
            device_name=self.device_name,
            flops=self.prepared.counted(item.cell),
        )
        return place.engine.measure(job, timeout_s=self.settings.timeout_s, beat=beat)

    def _update_plan(self, item: Expected, **changes: Any) -> None:
        """Writes the plan with changes to one cell, a heartbeat and the current forecast. The seconds of what comes
        after the last owed cell are added to it, so that a page that sums them agrees with the terminal. A joined run
        keeps the plan of its own sweep, which may have been interrupted."""
        if self.prepared.joined:
            return
        self.plan[item.id] = replace(self.plan[item.id], **changes)
        self.beat_at, now = time.monotonic(), utc_now()
        for place, row in self.plan.items():
            if row.state == "waiting":
                self.plan[place] = replace(row, seconds=self._seconds_left([self.items[place]]))
        rows = [replace(row, heartbeat_at=now) for row in self.plan.values()]
        last = max((place for place, row in enumerate(rows) if row.state != "done"), default=None)
        if last is not None:
            rows[last] = replace(rows[last], seconds=(rows[last].seconds or 0) + self._seconds_after())
        with contextlib.suppress(OSError):  # the plan is only shown; a cell that cannot be kept ends the sweep
            self.spool.write_plan(rows, run_id=self.run_id)

    def _seconds_left(self, items: Collection[Expected]) -> float:
        """Returns how long these cells will take (s), by what the sweep has learned."""
        return self._share(sum(self.prepared.forecast.left(item.measured, item.predicted.seconds) for item in items))

    def _seconds_after(self) -> float:
        """Returns how long what follows the cells of the plan will take (s): further rounds and the ceilings."""
        return self._share(self.further.seconds_left()) + self.prepared.ceiling_seconds

    def _share(self, seconds: float) -> float:
        """Returns how long such work takes in all places (s)."""
        return seconds / max(len(self.places), 1)

    def _is_out_of_budget(self) -> bool:
        return self.settings.budget_s is not None and time.monotonic() - self.began >= self.settings.budget_s
