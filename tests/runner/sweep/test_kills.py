"""`kill -9` at any moment loses no finished cell, doubles none and leaves no process running.

A sweep's runner and workers are killed 30 times at random moments, while it starts, measures and ingests. After each
kill of the runner it is started again. In the end its rows must be the planned ones, each once. `make test` instead
interrupts sweeps (`test_sweep`) and kills ingests (`tests/runner/store/test_processes.py`).
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
from tests.synthetic.stored import read

#: Number of kills of the runner at each moment, and of workers in each round that measures.
ROUNDS, KILLED = 3, 7
#: 12 cells, measured in as many rounds.
WORDS = (*TINY, "--contexts", "8,12,16", "--precisions", "fp32,bf16", "--modes", "inference,train",
         "--rounds", str(ROUNDS))  # fmt: skip
CELLS = 12
#: Number of cells of another machine in the spool where an ingest must take a while.
BACKLOG = 25
Moment = Literal["starting", "measuring", "ingesting"]
MOMENTS: tuple[Moment, ...] = ("starting", "measuring", "ingesting")

pytestmark = pytest.mark.soak


@pytest.fixture
def own_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yields a temporary folder for these sweeps alone: it identifies their processes, and they do not see other
    sweeps' lock. Its path is short, because it contains sockets."""
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder)


def of_these_sweeps(folder: Path) -> list[psutil.Process]:
    """Returns every process that inherited the folder, whichever parent it has by now."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(folder):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


class Trial:
    """One sweep that is killed again and again. `cells` are the ids that were seen and must not disappear."""

    def __init__(self, db: Path) -> None:
        self.db, self.spool, self.random = db, Spool(db), random.Random(20_261)
        self.hits: Counter[tuple[str, str]] = Counter()
        self.waiting: set[Any] = set()
        self.cells: set[Any] = set()

    def round(self, moment: Moment) -> None:
        """Starts the sweep and kills the runner at that moment; while it measures, kills workers first."""
        if moment == "ingesting":
            self.leave_backlog()
        process, began = start("sweep", *WORDS, db=self.db), time.time()
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
        now = {cell_id for (cell_id,) in read(self.db, "SELECT cell_id FROM steps")}
        assert now >= self.cells, "a finished cell has disappeared"
        self.cells = now

    def leave_backlog(self) -> None:
        of = a_run()
        for number in range(BACKLOG):
            item = ok(of, asked(context=8 + 2 * number), steps=40)
            spooled(self.db, of, item)
            self.waiting.add(item.step.cell_id)

    def kill_workers(self, process: subprocess.Popen[str], began: float) -> None:
        """Kills some workers at a random time within their cell. Returns at such a time within the next cell."""
        awaited(process, lambda: self.has_plan_since(began))
        seen: set[psutil.Process] = set()
        killed = 0
        while now := awaited(process, lambda: set(workers(process)).difference(seen)):
            time.sleep(self.random.uniform(0.0, 0.12))
            if killed >= KILLED:
                break
            seen.update(now)
            for worker in now:
                with contextlib.suppress(psutil.NoSuchProcess):  # it may have just ended
                    worker.kill()
                    killed += 1
        self.hits["worker", "measuring"] += killed

    def await_ingesting(self, process: subprocess.Popen[str]) -> None:
        """Waits until files are leaving the spool and others remain."""
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
    """Returns the finished cells of the sweep itself."""
    found = read(db, "SELECT cell_key, round, status FROM steps JOIN runs USING (run_id) WHERE host <> 'bench1'")
    return Counter(row for row in found if row[2] in DONE)


@pytest.mark.timeout(900)  # starts up to 10 sweeps, which takes minutes on a busy machine
def test_kills_change_nothing(db: Path, own_folder: Path) -> None:
    """Makes ROUNDS kills of the runner at each moment, and KILLED kills of workers in each round that measures."""
    trial = Trial(db)
    trial.leave_backlog()  # there is something to ingest from the beginning
    kills = [*MOMENTS] * ROUNDS
    trial.random.shuffle(kills)
    for moment in kills:
        trial.round(moment)
    assert trial.hits.total() >= ROUNDS * (len(MOMENTS) + KILLED)
    assert gone(of_these_sweeps(own_folder)), "no process may be left"
    run_apart("sweep", *WORDS, db=db, code=0)
    assert gone(of_these_sweeps(own_folder))
    assert outcomes(db) == Counter((item.cell.key, item.round, "ok") for item in planned(*WORDS))
    assert outcomes(db).total() == len(outcomes(db)) == CELLS * ROUNDS
    assert Spool(db).files() == Spool(db).plans() == []
    assert not list(Spool(db).folder.glob("*.bad"))
    check_rows(db, trial)


def check_rows(db: Path, trial: Trial) -> None:
    """Asserts that every cell is there once, complete and of one run, except where its worker was killed."""
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


def test_a_kill_before_there_is_a_file(db: Path, own_folder: Path) -> None:
    """A half-made file of the very first start must not block the second start."""
    process = start("sweep", *TINY, db=db)
    while process.poll() is None and not Spool(db).files() and not db.exists():
        time.sleep(0.001)
    assert process.poll() is None, process.communicate()[0]
    process.kill()
    process.communicate()
    assert gone(of_these_sweeps(own_folder))
    assert run_apart("sweep", *TINY, db=db).returncode == 0
    assert rows(db, "SELECT status FROM steps") == [{"status": "ok"}]
