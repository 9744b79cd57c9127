"""`kill -9` at random moments of a merge and an import: no row is lost, doubled or incomplete.

Together with the kills of an ingest in `test_processes.py` and of sweeps in `tests/runner/sweep/test_kills.py` there
are 300 kills if SOAK_EXAMPLES is 10,000, as in `make soak`. The moment of a kill is drawn from the time that the same
command takes undisturbed.
"""

import contextlib
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from runner.errors import DatabaseMissing
from runner.store.checking import check_file
from runner.store.database import ingest
from tests.command import ROOT, run_apart, start
from tests.fuzz import SOAK_EXAMPLES
from tests.synthetic import rows
from tests.synthetic.stored import counts, read

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3000)]
KILLS = max(5, SOAK_EXAMPLES * 90 // 10_000)
FILES, CELLS = 3, 6


def kill_at_random(words: Sequence[str], db: Path, *, seconds: float, order: random.Random) -> bool:
    """Starts a command and kills it at a random moment within `seconds`, the shortest time that it has taken. Returns
    whether it was still running."""
    process = start(*words, db=db)
    try:
        process.wait(order.uniform(0.2, 1.05) * seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def timed(*words: str, db: Path) -> float:
    """Runs a command to its end. Returns how long it took (s)."""
    began = time.monotonic()
    run_apart(*words, db=db, code=0)
    return time.monotonic() - began


def kinds(db: Path) -> set[str]:
    return {problem.kind for problem in check_file(db).problems}


def check_kills(
    folder: Path, words: Sequence[str], *, seed: int, partly: Callable[[Path], bool], wholly: Callable[[Path], bool]
) -> None:
    """Kills the command again and again: what is there after a kill, and after the same command has then ended."""
    order, killed = random.Random(seed), 0
    seconds = timed(*words, db=folder / "whole.duckdb")
    for kill in range(KILLS):
        db = folder / f"{kill}" / "results.duckdb"
        db.parent.mkdir()
        killed += kill_at_random(words, db, seconds=seconds, order=order)
        with contextlib.suppress(DatabaseMissing):
            assert partly(db)
        seconds = min(seconds, timed(*words, db=db))
        while ingest(db):
            pass
        assert wholly(db)
        assert kinds(db) == set()
        shutil.rmtree(db.parent)
    assert killed >= KILLS // 2


def test_a_merge(tmp_path: Path) -> None:
    """All cells of a merged file are there with all their rows, or none."""
    (folder := tmp_path / "fleet").mkdir()
    for number in range(FILES):
        of = rows.run(host=f"node{number}")
        cells = [rows.ok(of, rows.asked(context=64 * (place + 1))) for place in range(CELLS)]
        rows.store(folder / f"node{number}.duckdb", of, cells)

    def partly(db: Path) -> bool:
        by_host = read(db, "SELECT host, count(*) FROM steps JOIN runs USING (run_id) GROUP BY host")
        return {count for _, count in by_host} <= {CELLS} and kinds(db) == set()

    def wholly(db: Path) -> bool:
        whole = counts(tmp_path / "whole.duckdb")
        return counts(db) == whole == (FILES * CELLS, FILES * CELLS, whole[2], FILES)

    check_kills(tmp_path, ("merge", str(folder)), seed=1, partly=partly, wholly=wholly)


def test_an_import(tmp_path: Path) -> None:
    """A published table is there completely or not at all, and only once however often it is imported."""
    query = """SELECT (SELECT count(*) FROM published_tables), (SELECT count(*) FROM published_rows),
               (SELECT count(*) FROM published_figures), (SELECT count(*) FROM runs)"""

    def wholly(db: Path) -> bool:
        whole = read(tmp_path / "whole.duckdb", query)
        return read(db, query) == whole and whole[0][0] == 1

    check_kills(
        tmp_path, ("import", str(ROOT / "data/reference/004_e2e.csv")), seed=2, wholly=wholly,
        partly=lambda db: wholly(db) or read(db, query) == [(0, 0, 0, 0)],
    )  # fmt: skip
