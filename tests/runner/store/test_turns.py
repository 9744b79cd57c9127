"""Readers leave a sweep time to write: only a few read at once, and all wait when cells pile up in the spool."""

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
    """Returns the spool of a file with one cell, which has more cells than may wait."""
    monkeypatch.setattr(turns, "_in_vain_until", {})
    path = rows.store(tmp_path / "r.duckdb", of := rows.run(), [rows.ok(of, rows.asked())])
    spool = Spool(path)
    for number in range(MAX_WAITING + 1):
        one = rows.ok(of, rows.asked(context=number + 1))
        spool.write({"steps": [one.step], "timings": one.timings, "samples": one.samples}, str(one.step.cell_id))
    return spool


@pytest.fixture
def active(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the sweep count as adding cells now, however slow this machine is."""
    monkeypatch.setattr("runner.store.spool.ACTIVE_S", 1e6)


def in_thread(work: Iterator[None]) -> threading.Thread:
    thread = threading.Thread(target=lambda: list(work))
    thread.start()
    return thread


def test_a_reader_waits_for_a_sweep_that_is_behind(spool: Spool, tmp_path: Path, active: None) -> None:
    path, counted, began = tmp_path / "r.duckdb", list[int](), threading.Event()

    def read() -> Iterator[None]:
        began.set()
        with take_turn([spool], patience_s=PATIENCE_S), open_reader(path) as reader:
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


def test_a_reader_does_not_wait_again_after_waiting_in_vain(spool: Spool, active: None) -> None:
    """Nobody ingests the cells, as when another program has the file open."""
    with take_turn([spool], patience_s=0.05):
        assert spool.folder in turns._in_vain_until
    with take_turn([spool], patience_s=PATIENCE_S):
        assert spool.is_behind(), "it must not wait for a minute"


def test_nobody_waits_for_the_spool_of_an_ended_sweep(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.store.spool.ACTIVE_S", -1.0)
    with take_turn([spool], patience_s=PATIENCE_S):
        assert spool.folder not in turns._in_vain_until


@pytest.mark.parametrize("path", ["0.duckdb", "."], ids=["a file", "a folder"])
def test_few_read_at_once_and_nested_readers_count_once(tmp_path: Path, path: str) -> None:
    for number in range(2):
        rows.store(tmp_path / f"{number}.duckdb", of := rows.run(), [rows.ok(of, rows.asked())])
    enough, end = threading.Barrier(AT_ONCE + 1), threading.Event()
    reading, most = set[int](), list[int]()

    def read() -> Iterator[None]:
        with open_reader(tmp_path / path), open_reader(tmp_path / path):
            reading.add(threading.get_ident())
            most.append(len(reading))
            if not end.is_set():
                enough.wait()
                end.wait()
            reading.remove(threading.get_ident())
        yield

    readers = [in_thread(read()) for _ in range(AT_ONCE + 3)]
    enough.wait()
    assert len(turns._reading) == AT_ONCE
    end.set()
    for reader in readers:
        reader.join()
    assert max(most) == AT_ONCE
    assert len(most) == AT_ONCE + 3


def test_a_sweep_that_is_behind_catches_up_at_once(spool: Spool, tmp_path: Path, active: None) -> None:
    assert ingest(tmp_path / "r.duckdb", most_s=0.0) == MAX_WAITING + 1, "all of them in one transaction"
    assert not spool.files()
