"""Readers that share a connection see what each would see alone, and keep the file open only while they read."""

import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from runner.errors import DatabaseDamaged
from runner.store import shared
from runner.store.attached import CONFIG
from runner.store.database import ingest, open_reader
from tests.command import execute
from tests.runner.store.test_damage import damage
from tests.synthetic import rows
from tests.synthetic.stored import change, made, read, write_cell

STEPS = "SELECT cell_id FROM steps ORDER BY cell_id"


@pytest.fixture
def db(tmp_path: Path) -> Path:
    made(tmp_path / "results.duckdb")
    return tmp_path / "results.duckdb"


@pytest.fixture(autouse=True)
def _none_open() -> Iterator[None]:
    shared.close_all()
    yield
    shared.close_all()


def test_a_reader_reuses_the_connection_of_an_earlier_one(db: Path) -> None:
    with open_reader(db) as first, open_reader(db) as nested:
        assert nested is not first
        assert first.execute(STEPS).fetchall() == nested.execute(STEPS).fetchall()
    with open_reader(db) as second, open_reader(db) as third:
        assert {id(second), id(third)} == {id(first), id(nested)}


def test_a_reader_has_half_of_its_memory_until_that_is_too_little(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared.close_all()
    monkeypatch.setattr(shared, "_needy", set())
    monkeypatch.setattr(shared, "THREAD_MB", 1024)
    monkeypatch.setitem(CONFIG, "threads", 2)
    limits = []

    def ask() -> str:
        with open_reader(db) as con:
            limits.extend(con.execute("SELECT current_setting('memory_limit')").fetchall())
            if len(limits) == 2:
                raise duckdb.OutOfMemoryException
        return "read"

    half, whole = ("976.5 MiB",), ("1.9 GiB",)
    assert [shared.read_sparingly(db, ask) for _ in range(3)] == ["read"] * 3
    assert limits == [half, half, whole, whole]
    assert ask() == "read"
    assert limits[-1] == whole


def test_a_link_that_leads_elsewhere_is_followed_and_a_file_replaced(db: Path, tmp_path: Path) -> None:
    made(tmp_path / "other.duckdb")
    link = tmp_path / "link.duckdb"
    for target in (db, tmp_path / "other.duckdb"):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert read(link, STEPS) == read(target, STEPS)
    before, expected = read(db, STEPS), read(link, STEPS)
    (tmp_path / "other.duckdb").replace(db)
    assert read(db, STEPS) == expected != before


def test_a_forked_process_opens_its_own_connection_and_exits_silently(db: Path) -> None:
    script = """
        import os, sys
        from runner.store.database import open_reader
        def count():
            with open_reader(sys.argv[1]) as con:
                return con.execute("SELECT count(*) FROM steps").fetchone()[0], id(con)
        before = count()
        if child := os.fork():
            code = os.waitpid(child, 0)[1]
            print("parent", *count(), code)
        else:
            print("child", *count(), flush=True)
            os._exit(0)  # as a process of multiprocessing ends
    """
    done = execute(sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), str(db))
    (child, cells, its), (parent, same, own, code) = (line.split() for line in done.stdout.splitlines())
    assert (child, parent, code, done.stderr) == ("child", "parent", "0", "")
    assert cells == same == str(len(read(db, STEPS)))
    assert its != own


def test_between_two_readers_a_writer_can_add_rows(db: Path) -> None:
    before = read(db, STEPS)
    cell = write_cell(db)
    assert read(db, STEPS) == sorted([*before, (cell.cell_id,)]), "the cell is in the spool"
    assert ingest(db, patience_s=0.0) == 1, "nobody has the file open"
    assert read(db, STEPS) == sorted([*before, (cell.cell_id,)]), "the cell is in the file"
    change(db, "DELETE FROM steps")
    assert read(db, STEPS) == []


def test_a_reader_works_after_one_that_failed(db: Path) -> None:
    before = read(db, STEPS)
    with pytest.raises(duckdb.Error):
        read(db, "SELECT nothing FROM steps")
    with pytest.raises(RuntimeError), open_reader(db):
        raise RuntimeError
    assert read(db, STEPS) == before


def test_each_reader_decides_whether_damage_is_an_error_or_empty(tmp_path: Path) -> None:
    file = rows.store(tmp_path / "results.duckdb", of := rows.run(), rows.laptop(of))
    whole = read(file, "SELECT count(*) FROM samples")
    damage(file, "samples")
    for _ in range(2):
        with pytest.raises(DatabaseDamaged):
            read(file, "SELECT count(*) FROM samples")
        with open_reader(file, damaged="empty") as con:
            assert con.execute("SELECT count(*) FROM samples").fetchall() == [(0,)]
    assert whole > [(0,)]


@pytest.mark.parametrize("path", ["0.duckdb", "."], ids=["a file", "a folder"])
def test_few_read_at_once_and_nested_readers_count_once(tmp_path: Path, path: str) -> None:
    for number in range(2):
        rows.store(tmp_path / f"{number}.duckdb", of := rows.run(), [rows.ok(of, rows.asked())])
    enough, end = threading.Barrier(shared.AT_ONCE + 1), threading.Event()
    reading, most = set[int](), list[int]()

    def read() -> None:
        with open_reader(tmp_path / path), open_reader(tmp_path / path):
            reading.add(threading.get_ident())
            most.append(len(reading))
            if not end.is_set():
                enough.wait()
                end.wait()
            reading.remove(threading.get_ident())

    readers = [threading.Thread(target=read) for _ in range(shared.AT_ONCE + 3)]
    for reader in readers:
        reader.start()
    enough.wait()
    assert len(reading) == shared.AT_ONCE
    end.set()
    for reader in readers:
        reader.join()
    assert max(most) == shared.AT_ONCE
    assert len(most) == shared.AT_ONCE + 3
