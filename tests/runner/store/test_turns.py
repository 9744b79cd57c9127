"""Readers leave a sweep gaps: few read at once, and where cells pile up in the spool, all of them wait for it."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.store import turns
from runner.store.database import ingest, open_reader
from runner.store.spool import MAX_WAITING, Spool
from runner.store.turns import AT_ONCE, take_turn
from tests.synthetic import rows

PATIENCE_S = 60.0


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spool:
    """A file of one cell, and a spool with more cells than may wait."""
    monkeypatch.setattr(turns, "_in_vain_until", {})
    path = rows.store(tmp_path / "r.duckdb", of := rows.run(), [rows.ok(of, rows.asked())])
    spool = Spool(path)
    for number in range(MAX_WAITING + 1):
        one = rows.ok(of, rows.asked(context=number + 1))
        spool.write({"steps": [one.step], "timings": one.timings, "samples": one.samples}, str(one.step.cell_id))
    return spool


@pytest.fixture
def active(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep adds cells just now, however slow this machine is."""
    monkeypatch.setattr("runner.store.spool.ACTIVE_S", 1e6)


def in_thread(work: Iterator[None]) -> threading.Thread:
    thread = threading.Thread(target=lambda: list(work))
    thread.start()
    return thread


def test_a_reader_waits_for_a_sweep_that_is_behind(spool: Spool, tmp_path: Path, active: None) -> None:
    path, counted, began = tmp_path / "r.duckdb", list[int](), threading.Event()

    def read() -> Iterator[None]:
        began.set()
        with take_turn(spool, patience_s=PATIENCE_S), open_reader(path) as reader:
            counted.append(len(spool.files()))
            counted.append(len(reader.execute("SELECT cell_id FROM steps").fetchall()))
        yield

    assert spool.is_behind()
    reader = in_thread(read())
    began.wait()
    while spool.is_behind():
        ingest(path, patience_s=1.0)
    reader.join()
    waiting, cells = counted
    assert waiting <= MAX_WAITING
    assert cells == MAX_WAITING + 2


def test_it_does_not_wait_again_where_that_was_in_vain(spool: Spool, active: None) -> None:
    """Nobody moves the cells, as where another program holds the file."""
    with take_turn(spool, patience_s=0.05):
        assert spool.folder in turns._in_vain_until
    with take_turn(spool, patience_s=PATIENCE_S):
        assert spool.is_behind(), "it would have waited for a minute"


def test_nobody_waits_for_what_an_ended_sweep_left(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.store.spool.ACTIVE_S", -1.0)
    with take_turn(spool, patience_s=PATIENCE_S):
        assert spool.folder not in turns._in_vain_until


def test_so_many_read_at_once_and_a_reader_within_another_does_not_count(tmp_path: Path) -> None:
    spool, enough, end = Spool(tmp_path / "r.duckdb"), threading.Barrier(AT_ONCE + 1), threading.Event()
    reading, most = set[int](), list[int]()

    def read() -> Iterator[None]:
        with take_turn(spool, patience_s=PATIENCE_S), take_turn(spool, patience_s=PATIENCE_S):
            reading.add(threading.get_ident())
            most.append(len(reading))
            if not end.is_set():
                enough.wait()
                end.wait()
            reading.remove(threading.get_ident())
        yield

    readers = [in_thread(read()) for _ in range(AT_ONCE + 3)]
    enough.wait()
    end.set()
    for reader in readers:
        reader.join()
    assert max(most) == AT_ONCE
    assert len(most) == AT_ONCE + 3


def test_a_sweep_that_is_behind_catches_up_at_once(spool: Spool, tmp_path: Path, active: None) -> None:
    assert ingest(tmp_path / "r.duckdb", most_s=0.0) == MAX_WAITING + 1, "all of them in one transaction"
    assert not spool.files()
