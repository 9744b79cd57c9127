"""`kill -9` at any moment loses no finished cell, doubles none and leaves nothing running.

A sweep is killed 30 times at random moments, the runner and the workers, while it starts, measures and ingests. After
each kill of the runner it is started again; in the end its rows must be those that were planned, each once. `make test`
interrupts sweeps instead (`test_sweep`) and kills ingests (`tests/runner/store/test_processes.py`).
"""

import contextlib
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest

from runner.schema import DONE, PHASES
from runner.store.spool import Spool
from tests.command import TINY, awaited, gone, planned, rows, run_apart, start, workers
from tests.synthetic.rows import asked, ok, spooled
from tests.synthetic.rows import run as a_run

#: 12 cells, in as many rounds as there are kills at each moment.
WORDS = (*TINY, "--contexts", "8,12,16", "--precisions", "fp32,bf16", "--modes", "inference,train", "--rounds")
CELLS = 12
#: Cells of another machine that wait in the spool where an ingest is to take a while.
BACKLOG = 25
Moment = Literal["starting", "measuring", "ingesting"]
MOMENTS: tuple[Moment, ...] = ("starting", "measuring", "ingesting")
#: Kills of the runner at each moment, and of workers in each round that measures.
ROUNDS, KILLED = 3, 7

pytestmark = pytest.mark.soak


@pytest.fixture
def own_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder for these sweeps alone, by which their processes are known and which other sweeps' lock is not
    in. Short, because sockets lie in it."""
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder)


def of_these_sweeps(folder: Path) -> list[psutil.Process]:
    """Every process that inherited the folder, whoever its parent is by now."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(folder):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


class Trial:
    """One sweep that is killed again and again. `cells` are the ids that were seen and may never go away."""

    def __init__(self, db: Path, *, words: tuple[str, ...], workers: int) -> None:
        self.db, self.spool, self.random = db, Spool(db), random.Random(20_261)
        self.words, self.workers = words, workers
        self.hits: Counter[tuple[str, str]] = Counter()
        self.waiting: set[Any] = set()
        self.cells: set[Any] = set()

    def round(self, moment: Moment) -> None:
        """Starts the sweep and kills the runner at that moment; while it measures, workers before it."""
        if moment == "ingesting":
            self.leave_backlog()
        process, began = start("sweep", *self.words, db=self.db), time.time()
        try:
            if moment == "starting":
                time.sleep(self.random.uniform(0.2, 2.5))
            elif moment == "ingesting":
                self.await_ingesting(process)
            else:
                self.kill_workers(process, began)
            assert process.poll() is None, f"it ended with {process.returncode} before it was killed, {moment}"
            process.send_signal(signal.SIGKILL)
            self.hits["runner", moment] += 1
        finally:
            process.kill()
            process.communicate()
        now = {row["cell_id"] for row in rows(self.db, "SELECT cell_id FROM steps")}
        assert now >= self.cells, "a finished cell is gone"
        self.cells = now

    def leave_backlog(self) -> None:
        of = a_run()
        for number in range(BACKLOG):
            item = ok(of, asked(context=8 + 2 * number), steps=40)
            spooled(self.db, of, item)
            self.waiting.add(item.step.cell_id)

    def kill_workers(self, process: subprocess.Popen[str], began: float) -> None:
        """Some of them, each some way into its cell; comes back some way into the next one."""
        awaited(process, lambda: self.has_plan_since(began))
        seen: set[psutil.Process] = set()
        killed = 0
        while now := awaited(process, lambda: set(workers(process)).difference(seen)):
            time.sleep(self.random.uniform(0.0, 0.12))
            if killed >= self.workers:
                break
            seen.update(now)
            for worker in now:
                with contextlib.suppress(psutil.NoSuchProcess):  # done just before
                    worker.kill()
                    killed += 1
        self.hits["worker", "measuring"] += killed

    def await_ingesting(self, process: subprocess.Popen[str]) -> None:
        """Until files are leaving the spool, with others to come."""
        highest = now = 0
        while process.poll() is None and not 2 < now < highest:
            now = len(self.spool.files())
            highest = max(highest, now)
            time.sleep(0.002)
        time.sleep(self.random.uniform(0.0, 0.05))

    def has_plan_since(self, began: float) -> bool:
        try:
            return any(path.stat().st_mtime > began for path in self.spool.plans())
        except FileNotFoundError:
            return False


def outcomes(db: Path) -> Counter[tuple[str, int, str]]:
    """The sweep's own cells that are done."""
    found = rows(db, "SELECT cell_key, round, status FROM steps JOIN runs USING (run_id) WHERE host <> 'bench1'")
    return Counter((row["cell_key"], row["round"], row["status"]) for row in found if row["status"] in DONE)


@pytest.mark.timeout(900)  # up to 10 sweeps are started; on a machine with much else to do that takes minutes
def test_kills_change_nothing(tmp_path: Path, own_folder: Path) -> None:
    """ROUNDS kills of the runner at each moment, and KILLED kills of workers in each that measures."""
    db, words = tmp_path / "killed.duckdb", (*WORDS, str(ROUNDS))
    trial = Trial(db, words=words, workers=KILLED)
    trial.leave_backlog()  # there is something to read from the beginning
    kills = [*MOMENTS] * ROUNDS
    trial.random.shuffle(kills)
    for moment in kills:
        trial.round(moment)
    assert trial.hits.total() >= ROUNDS * (len(MOMENTS) + KILLED)
    assert gone(of_these_sweeps(own_folder)), "no orphans"
    final = run_apart("sweep", *words, db=db)
    assert final.returncode == 0, final.stdout
    assert gone(of_these_sweeps(own_folder))
    assert outcomes(db) == Counter((item.cell.key, item.round, "ok") for item in planned(*words))
    assert outcomes(db).total() == len(outcomes(db)) == CELLS * ROUNDS
    assert Spool(db).files() == Spool(db).plans() == []
    assert not list(Spool(db).folder.glob("*.bad"))
    check_rows(db, trial)


def check_rows(db: Path, trial: Trial) -> None:
    """Every cell once, whole, under one run; what is not done are the cells whose worker was killed."""
    found = rows(
        db,
        """
        SELECT s.*, host = 'bench1' AS foreign, (SELECT count(*) FROM timings t WHERE t.cell_id = s.cell_id) AS timings,
            (SELECT count(*) FROM samples t WHERE t.cell_id = s.cell_id) AS samples
        FROM steps s JOIN runs USING (run_id)""",
    )
    assert len({row["cell_id"] for row in found}) == len(found)
    assert {row["cell_id"] for row in found} >= trial.cells
    assert {row["cell_id"] for row in found if row["foreign"]} == trial.waiting
    own = [row for row in found if not row["foreign"]]
    assert len({row["run_id"] for row in own}) == 1
    for row in found:
        phases = len(PHASES[row["mode"]]) + (2 if row["mode"] == "train" else 1)
        steps = 45 if row["foreign"] else row["warmup_steps"] + 3
        whole = (phases, phases * steps) if not row["foreign"] else (6, 4 * steps)
        assert (row["timings"], row["samples"]) == (whole if row["status"] == "ok" else (0, 0))
    failed = [row for row in own if row["status"] not in DONE]
    assert {row["status"] for row in failed} <= {"crashed"}
    assert len(failed) <= trial.hits["worker", "measuring"]
    assert all("SIGKILL" in row["message"] and row["failed_phase"] for row in failed)


def test_a_kill_before_there_is_a_file(tmp_path: Path, own_folder: Path) -> None:
    """At the very first start, too, nothing half made may be in the way of the second."""
    db = tmp_path / "results.duckdb"
    process = start("sweep", *TINY, db=db)
    while process.poll() is None and not Spool(db).files() and not db.exists():
        time.sleep(0.001)
    assert process.poll() is None, process.communicate()[0]
    process.kill()
    process.communicate()
    assert gone(of_these_sweeps(own_folder))
    assert run_apart("sweep", *TINY, db=db).returncode == 0
    assert rows(db, "SELECT status FROM steps") == [{"status": "ok"}]
