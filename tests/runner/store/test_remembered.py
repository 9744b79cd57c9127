"""Remembered results of queries are used only for the rows from which they were computed."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from runner.store import remembered
from runner.store.database import open_reader
from runner.store.queries.times import load_noise
from runner.store.remembered import KEPT, mark_state, remember
from tests.synthetic import rows


def count_cells(path: Path) -> int:
    """Returns the number of steps that a query remembers for the present state of the file."""
    with open_reader(path) as reader:

        def count() -> int:
            (found,) = reader.execute("SELECT count(*) FROM steps").fetchone() or (0,)
            return int(found)

        return remember(reader, "cells", count)


def test_new_rows_are_counted_and_old_ones_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of, path = rows.run(), tmp_path / "r.duckdb"
    rows.store(path, of, [rows.ok(of, rows.asked())])
    assert count_cells(path) == 1
    (known,) = (key for key in remembered._known if key[1] == "cells")
    monkeypatch.setitem(remembered._known, known, 5)
    assert count_cells(path) == 5, "the file has not changed"
    rows.store(path, of, [rows.ok(of, rows.asked(context=256))])
    assert count_cells(path) == 2


def test_a_fleet_has_a_state_of_its_own(tmp_path: Path) -> None:
    of, other = rows.run(), rows.run()
    first = rows.store(tmp_path / "a.duckdb", of, [rows.ok(of, rows.asked())])
    second = rows.store(tmp_path / "b.duckdb", other, [rows.ok(other, rows.asked())])
    assert count_cells(first) == count_cells(second) == 1
    assert count_cells(Path(f"{first}{os.pathsep}{second}")) == 2


def test_without_a_state_nothing_is_remembered(tmp_path: Path) -> None:
    with open_reader(rows.store(tmp_path / "r.duckdb", of := rows.run(), [rows.ok(of, rows.asked())])) as reader:
        reader.execute("RESET VARIABLE rows_state")
        found = iter((1, 2))
        assert [remember(reader, "numbers", lambda: next(found)) for _ in range(2)] == [1, 2]


def test_readers_at_the_same_moment_compute_once(tmp_path: Path) -> None:
    of, path, computed = rows.run(), tmp_path / "r.duckdb", list[int]()
    rows.store(path, of, [rows.ok(of, rows.asked())])

    def compute() -> int:
        time.sleep(0.2)
        computed.append(1)
        return len(computed)

    def read(_: int) -> int:
        with open_reader(path) as reader:
            return remember(reader, "slow", compute)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(read, range(2))) == [1, 1]
    assert computed == [1]
    assert not remembered._computing


def test_who_waits_computes_what_another_failed_to(tmp_path: Path) -> None:
    of, path = rows.run(), tmp_path / "r.duckdb"
    rows.store(path, of, [rows.ok(of, rows.asked())])
    started = threading.Event()

    def fail() -> int:
        started.set()
        time.sleep(0.2)
        raise ValueError("in vain")

    def read(compute: Callable[[], int]) -> int:
        with open_reader(path) as reader:
            return remember(reader, "fragile", compute)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(read, fail)
        assert started.wait(10)
        assert read(lambda: 7) == 7
        with pytest.raises(ValueError, match="in vain"):
            first.result()


def test_only_the_latest_results_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "_known", {})
    with open_reader(rows.store(tmp_path / "r.duckdb", of := rows.run(), [rows.ok(of, rows.asked())])) as reader:
        for number in range(KEPT + 5):
            mark_state(reader, f"state {number}")
            assert remember(reader, "number", partial(int, number)) == number
    assert list(remembered._known.values()) == list(range(5, KEPT + 5))


def test_noise_is_loaded_for_the_requested_machines(tmp_path: Path) -> None:
    path = tmp_path / "r.duckdb"
    for host in ("one", "two"):
        of = rows.run(host=host)
        rows.store(path, of, [rows.ok(of, rows.asked(), round=number) for number in range(3)])
    with open_reader(path) as reader:
        machines = ["one", "two"]
        names = [f"{of.device_name} · {host}" for host in machines]
        both, first = load_noise(reader, "steps", names), load_noise(reader, "steps", names[:1])
    assert {kind.machine for kind in both} == {*names}
    assert first == {kind: noise for kind, noise in both.items() if kind.machine == names[0]}
