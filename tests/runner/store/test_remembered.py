"""Remembered results of queries are used only for the rows from which they were computed."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pytest

from runner.answers import ask
from runner.results.times import Noise
from runner.schema import RunRow
from runner.store import shared
from runner.store.database import open_reader
from runner.store.read import read
from runner.store.read import timed as times
from runner.store.read.noise import load_machine_noise
from runner.store.read.selection import Selection
from runner.store.read.timed import NoiseKind, load_noise
from runner.store.shared import remember
from tests.synthetic import rows
from tests.synthetic.sides import timed
from tests.synthetic.stored import change


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
    (known,) = (key for key in shared._known if key[1] == "cells")
    monkeypatch.setitem(shared._known, known, 5)
    assert count_cells(path) == 5, "the file has not changed"
    rows.store(path, of, [rows.ok(of, rows.asked(context=256))])
    assert count_cells(path) == 2


def test_noise_is_loaded_for_the_requested_machines(db: Path) -> None:
    for host in ("one", "two"):
        rows.store(db, of := rows.run(host=host), [rows.ok(of, rows.asked(), round=number) for number in range(3)])
    with open_reader(db) as reader:
        names = [f"{of.device_name} · {host}" for host in ["one", "two"]]
        both, first = load_noise(reader, "steps", names), load_noise(reader, "steps", names[:1])
    assert {kind.device for kind in both} == {*names}
    assert first == {kind: noise for kind, noise in both.items() if kind.device == names[0]}


@pytest.mark.soak
def test_two_gpus_of_one_host_have_each_their_noise_from_all_their_runs(db: Path) -> None:
    """GPU-a measures one cell in each of two runs, whose rounds differ by 1%; GPU-b one, by 10%."""
    for uuid, share, size in (("GPU-a", 0.01, "toy-64"), ("GPU-a", 0.01, "toy-128"), ("GPU-b", 0.1, "toy-64")):
        of = rows.run(device_uuid=uuid)
        rounds = [(10.0 * (1 + share * number),) * 11 for number in range(3)]
        rows.store(db, of, [timed(of, rows.asked(size), ms, round=number) for number, ms in enumerate(rounds)])
    found = {one.device: one.noise for one in load_machine_noise(db, Selection()) if one.clock == "step"}
    assert {name: noise.cells for name, noise in found.items()} == {"GPU-a": 2, "GPU-b": 1}
    assert found["GPU-a"].std == pytest.approx(0.01, rel=0.05)
    assert found["GPU-b"].std == pytest.approx(0.1, rel=0.1)
    one, _ = (run.steps[0].times["step"].step.noise for run in read(db, Selection(), ("by_run",)).by_run[1:])
    assert one == found["GPU-a"]
    known = read(db, Selection(), ("noise", "repeated", "runs"))
    view = ask("noise", known, {"device": "Example CPU · bench1 · GPU-b"})
    assert [row.values[-1] for row in view.views[0].rows] == [1]


def find_noise(path: Path) -> Mapping[NoiseKind, Noise]:
    """Returns the noise of the one machine of a file."""
    with open_reader(path) as reader:
        return load_noise(reader, "steps", ["Example CPU · bench1"])


def find_noise_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[NoiseKind, Noise]:
    """Returns the same as a process that has not read the file before."""
    with monkeypatch.context() as patched:
        patched.setattr(shared, "_known", {})
        return find_noise(path)


def store_repeated(path: Path, run: RunRow, *slower: float, context: int = 128) -> None:
    """Adds one cell with a round for each of these factors of its time."""
    cell = rows.asked(context=context)
    rows.store(path, run, [rows.ok(run, cell, round=number, slower=factor) for number, factor in enumerate(slower)])


@pytest.mark.parametrize("names", [("a.duckdb", "a.duckdb"), ("a.duckdb", "b.duckdb")], ids=["file", "fleet"])
def test_only_runs_with_new_rows_are_computed_again(
    names: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, first, second = [tmp_path / name for name in names], rows.run(), rows.run()
    path = Path(os.pathsep.join(dict.fromkeys(map(str, files))))
    computed: list[list[UUID]] = []
    load = times._load_repeated

    def record(reader: duckdb.DuckDBPyConnection, table: str, machine: str, runs: list[UUID]) -> Any:
        computed.append(runs)
        return load(reader, table, machine, runs)

    monkeypatch.setattr(times, "_load_repeated", record)
    for file, run in zip(files, (first, second), strict=True):
        store_repeated(file, run, 1.0, 1.1, 1.2)
    before = find_noise(path)
    assert find_noise(path) == before
    store_repeated(files[1], second, 1.0, 1.4, context=256)
    after = find_noise(path)
    assert computed == [sorted([first.run_id, second.run_id]), [second.run_id]]
    assert before != after == find_noise_anew(path, monkeypatch)


def test_rows_changed_in_place_are_computed_again(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_repeated(db, rows.run(), 1.0, 1.1, 1.2)
    before = find_noise(db)
    change(db, "UPDATE timings SET median_ms = 3 * median_ms WHERE cell_id = (SELECT max(cell_id) FROM timings)")
    assert before != find_noise(db) == find_noise_anew(db, monkeypatch)
