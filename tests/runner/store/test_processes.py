"""Several processes use one results file: readers, writers, one that is killed, and one whose disk is full."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runner.errors import DatabaseBusy, StoreError
from runner.store import database, shared
from runner.store.database import ingest, open_reader
from runner.store.spool import Spool
from tests.bench.store import trial
from tests.fuzz import SOAK_EXAMPLES
from tests.some import some
from tests.synthetic.stored import counts, made, read, write_cell


@contextmanager
def python(code: str, *arguments: object, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Starts a process in which the store is already imported, and kills it at the end."""
    prelude = (
        "import sys, time, duckdb\nfrom runner.store.database import ingest\nfrom runner.store.spool import Spool\n"
    )
    command = [sys.executable, "-c", prelude + code, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


HOLD = "con = duckdb.connect(sys.argv[1]); print('held', flush=True); time.sleep(float(sys.argv[2])); con.close()"


def test_a_file_that_another_process_has_open_is_busy(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(db)
    monkeypatch.setattr(database, "READER_PATIENCE_S", 0.3)
    with python(HOLD, db, 60) as holder:
        assert read_line(holder) == "held"
        write_cell(db)
        began = time.monotonic()
        assert ingest(db) == 0
        assert time.monotonic() - began < 30.0, "it must not wait for the other process to end"
        with pytest.raises(DatabaseBusy, match="another program"):
            read(db, "FROM steps")
    assert ingest(db) == 1


def test_a_reader_waits_for_a_writer_that_ends_soon(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(db)
    monkeypatch.setattr(database, "READER_PATIENCE_S", 60.0)
    with python(HOLD, db, 0.3) as holder:
        assert read_line(holder) == "held"
        assert counts(db)[0] == 3


def test_readers_of_one_process_do_not_release_each_others_lock(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_turns", threading.BoundedSemaphore(2))  # on few cores one reads at a time
    made(db)
    write_cell(db)
    with open_reader(db) as con:
        thread = threading.Thread(target=lambda: counts(db))
        thread.start()
        thread.join()
        with python("print(ingest(sys.argv[1]), flush=True)", db) as writer:
            assert read_line(writer) == "0", "no writer may change the file while a reader has it open"
        assert con.execute("SELECT count(*) FROM steps").fetchone() == (4,)
    assert ingest(db) == 1


def test_an_ingest_waits_for_a_reader_where_many_cells_wait(db: Path) -> None:
    made(db)
    write_cell(db)
    code = "with open_reader(sys.argv[1]): print('open', flush=True); time.sleep(0.4)"
    with python(f"from runner.store.database import open_reader\n{code}", db) as reader:
        assert read_line(reader) == "open"
        assert ingest(db, patience_s=0.0) == 0, "one cell can wait"
        for _ in range(database.MAX_WAITING):
            write_cell(db)
        began = time.monotonic()
        while not (ingested := ingest(db, patience_s=0.0)):
            assert time.monotonic() - began < 60
        assert ingested > 1


@pytest.mark.soak
def test_four_continuous_readers_see_every_cell_and_no_error(db: Path) -> None:
    result = trial(db, cells=20, cell_s=0.02)
    assert result.errors == []
    assert result.lost == 0
    assert result.reads >= 4
    assert len(result.added_ms) == 20


def kill_ingest(db: Path, *, after_s: float) -> None:
    """Kills a process that only ingests, this long after its start."""
    with python("print('ready', flush=True)\nwhile True: ingest(sys.argv[1])", db) as victim:
        assert read_line(victim) == "ready"
        time.sleep(after_s)


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kills", [3, pytest.param(max(20, SOAK_EXAMPLES * 90 // 10_000), marks=pytest.mark.soak)])
def test_kill_9_while_ingesting_loses_and_duplicates_nothing(db: Path, kills: int) -> None:
    ids = set()
    for kill in range(kills):
        ids |= {write_cell(db).cell_id for _ in range(8)}
        kill_ingest(db, after_s=0.25 * (kill * 0.618 % 1))  # spread evenly
        assert counts(db) == (len(ids), len(ids), 3 * len(ids), 1)
    while ingest(db):
        pass
    assert Spool(db).files() == []
    assert {cell_id for (cell_id,) in read(db, "SELECT cell_id FROM file.main.steps")} == ids
    assert counts(db) == (len(ids), len(ids), 3 * len(ids), 1)
    assert not list(Spool(db).folder.glob("*.bad"))


@pytest.mark.parametrize("after_s", some((0.01, 0.02, 0.03, 0.04, 0.05, 0.06), [0.05]))
def test_kill_9_while_the_file_is_created_leaves_none_or_a_whole_one(db: Path, after_s: float) -> None:
    write_cell(db)
    kill_ingest(db, after_s=after_s)
    assert counts(db) == (1, 1, 3, 1)
    ingest(db)
    assert counts(db) == (1, 1, 3, 1)
    assert Spool(db).files() == []


FULL = """
import resource
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    print(ingest(sys.argv[1]))
except Exception as error:
    print(type(error).__name__)
try:
    from runner.schema import RunRow, new_id
    Spool(sys.argv[1]).write({"runs": [RunRow(run_id=new_id(), sweep_key="x" * limit)]}, "too-long")
    print("written")
except OSError:
    print("OSError")
"""


def test_a_full_disk_loses_nothing(db: Path) -> None:
    made(db)
    for _ in range(3):
        write_cell(db)
    waiting = Spool(db).files()
    with python(FULL, db, 4096) as full:
        output, _ = full.communicate()
    assert output.split() == [StoreError.__name__, "OSError"]
    assert set(waiting) >= set(Spool(db).files())
    assert not list(Spool(db).folder.glob("*.tmp")) + list(Spool(db).folder.glob(".*.tmp"))
    assert counts(db) == (6, 6, 18, 1)
    while ingest(db):
        pass
    assert counts(db) == (6, 6, 18, 1)
    assert Spool(db).files() == []
