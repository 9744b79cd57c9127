"""Merging the results of another machine adds every row once, and nothing if the file cannot be merged."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from runner.errors import UsageError
from runner.schema import RunRow
from runner.store.merging import merge
from runner.store.spool import Spool
from tests.command import run
from tests.synthetic import rows
from tests.synthetic.stored import change, read

TABLES = ("runs", "steps", "timings", "samples")
HERE, THERE = {"host": "here"}, {"host": "there", "device_name": "Example GPU"}


def store(path: Path, of: RunRow, *sizes: str) -> Path:
    return rows.store(path, of, [rows.ok(of, rows.asked(size)) for size in sizes])


def content(path: Path, table: str) -> list[tuple[Any, ...]]:
    """Returns all rows as they are, without the time at which they reached the file."""
    names = [name for name, *_ in read(path, f"DESCRIBE {table}") if name != "ingested_at"]
    return read(path, f"SELECT {', '.join(names)} FROM {table} ORDER BY ALL")


@pytest.mark.soak
def test_two_machines_become_one_file(tmp_path: Path) -> None:
    """The other file has two cells, one of them still in its spool, and this one has one. The other stays as it is."""
    of, db = rows.run(**THERE), store(tmp_path / "here.duckdb", rows.run(**HERE), "toy-64")
    other = store(tmp_path / "there.duckdb", of, "toy-64")
    rows.spooled(other, of, rows.ok(of, rows.asked("toy-128")))
    both = {table: sorted(content(db, table) + content(other, table), key=str) for table in TABLES}
    before, waiting = hashlib.sha256(other.read_bytes()).digest(), Spool(other).files()
    added = merge(other, into=db)
    assert added == {name: len(content(other, name)) for name in TABLES}
    assert added["steps"] == 2
    for table, expected in both.items():
        assert sorted(content(db, table), key=str) == expected
    assert hashlib.sha256(other.read_bytes()).digest() == before
    assert Spool(other).files() == waiting
    assert len(waiting) == 1


@pytest.mark.soak
def test_a_file_that_has_grown_is_merged_again(tmp_path: Path) -> None:
    of, db = rows.run(**THERE), tmp_path / "here.duckdb"
    other = store(tmp_path / "there.duckdb", of, "toy-64")
    merge(other, into=db)
    assert merge(other, into=db) == {}
    store(other, of, "toy-128")
    added = merge(other, into=db)
    assert (added["steps"], "runs" in added) == (1, False)
    assert content(db, "steps") == content(other, "steps")
    assert len(content(db, "runs")) == 1


@pytest.mark.soak
def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    other, db = (store(tmp_path / name, rows.run(), "toy-64") for name in ("there.duckdb", "h.duckdb"))
    change(other, "ALTER TABLE steps ADD COLUMN tomorrow INTEGER")
    with pytest.raises(UsageError, match=r"does not know: steps\.tomorrow"):
        merge(other, into=db)
    assert len(content(db, "runs")) == 1


@pytest.mark.soak
def test_the_command_reports_what_was_merged_and_what_was_refused(tmp_path: Path) -> None:
    db, other = tmp_path / "here.duckdb", store(tmp_path / "there.duckdb", rows.run(**THERE), "toy-64", "toy-128")
    done = run("import", str(other), db=db)
    assert (done.returncode, done.stdout.strip()[:25]) == (0, "1 run, cells: 2 of steps;"), done.stdout
    assert "Nothing new" in run("import", str(other), db=db).stdout
    foreign, cut = tmp_path / "foreign.duckdb", tmp_path / "cut.duckdb"
    change(foreign, "CREATE TABLE runs (name VARCHAR)")
    cut.write_bytes(other.read_bytes()[:20_000])
    before = content(db, "samples")
    for words, said in (
        ((str(db),), "is the file to merge into"),
        ((str(other), "--label", "theirs"), "keep the labels they have"),
        ((str(foreign),), "holds no results"),
        ((str(cut),), "not a results file"),
    ):
        refused = run("import", *words, db=db, code=2)
        assert said in " ".join(refused.stdout.split()), refused.stdout
    assert content(db, "samples") == before


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Returns a folder with the files of three machines, of one, two and three cells; the last is a spool so far."""
    folder = tmp_path / "fleet"
    folder.mkdir()
    for number, sizes in enumerate((("toy-64",), ("toy-64", "toy-128"))):
        store(folder / f"node{number}.duckdb", rows.run(host=f"node{number}"), *sizes)
    of = rows.run(host="node2")
    for size in ("toy-64", "toy-128", "toy-256"):
        rows.spooled(folder / "node2.duckdb", of, rows.ok(of, rows.asked(size)))
    return folder


@pytest.mark.soak
def test_a_folder_is_merged_once(fleet: Path) -> None:
    """The file to merge into may be in the same folder."""
    db = fleet / "all.duckdb"
    done = run("import", str(fleet), db=db, code=0)
    assert [line.partition(": ")[2][:25] for line in done.stdout.splitlines()[:3]] == [
        f"1 run, cells: {cells} of steps;" for cells in (1, 2, 3)
    ]
    assert len(content(db, "steps")) == 6
    assert f"3 results files, 0 rows added to {db}." in run("import", str(fleet), db=db).stdout
    assert len(content(db, "runs")) == 3


def test_the_other_files_of_a_folder_are_imported_or_named(tmp_path: Path) -> None:
    (folder := tmp_path / "mix").mkdir()
    store(folder / "a.duckdb", rows.run(), "toy-64")
    (folder / "theirs.csv").write_text("size,forward (ms)\nsmall,1.5\n")
    (folder / "junk.bin").write_bytes(b"\1\2")
    done = run("import", str(folder), db=folder / "out.duckdb")
    assert (done.returncode, "1 of steps" in done.stdout, "1 results file," in done.stdout) == (1, True, True)
    assert "theirs.csv: 1 table, 1 row, 1 figure." in done.stdout
    assert "junk.bin: left out" in done.stdout


@pytest.mark.soak
def test_a_refused_file_does_not_block_the_others(db: Path, fleet: Path) -> None:
    change(fleet / "node0.duckdb", "ALTER TABLE steps ALTER COLUMN tokens_per_s TYPE VARCHAR")
    (fleet / "node1.duckdb").write_bytes(b"not a database")
    first, second, third, last = run("import", str(fleet), db=db, code=1).stdout.splitlines()
    assert "node0.duckdb: refused" in first
    assert "steps.tokens_per_s is of the type VARCHAR, not DOUBLE" in first
    assert "node1.duckdb: refused" in second
    assert "3 of steps" in third
    assert "3 results files" in last
    assert "2 refused." in last
    assert len(content(db, "steps")) == 3


def test_a_merge_that_cannot_start_is_one_error(tmp_path: Path, fleet: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "holds no file" in run("import", str(tmp_path / "empty"), db=tmp_path / "all.duckdb", code=2).stdout
    foreign = tmp_path / "foreign.duckdb"
    change(foreign, "CREATE TABLE stairs AS SELECT 17 AS height")
    before = foreign.read_bytes()
    done = run("import", str(fleet), db=foreign)
    assert (done.returncode, "holds no results" in done.stdout, "Traceback" in done.stdout) == (2, True, False)
    assert foreign.read_bytes() == before


def test_the_same_ids_with_other_values_are_refused_and_named(tmp_path: Path) -> None:
    of, db = rows.run(**THERE), tmp_path / "here.duckdb"
    other = store(tmp_path / "there.duckdb", of, "toy-64", "toy-128")
    merge(other, into=db)
    store(other, of, "toy-256")
    change(other, "UPDATE timings SET median_ms = median_ms * 2")
    query = """SELECT count(*), min('cell_id ' || cell_id) FROM timings
        WHERE cell_id IN (SELECT cell_id FROM steps ORDER BY cell_id LIMIT 2)"""
    ((many, first),) = read(other, query)
    before = {table: content(db, table) for table in TABLES}
    for command in ("merge", "import"):
        done = run(command, str(other), db=db)
        said = " ".join(done.stdout.split())
        assert done.returncode == 1, done.stdout
        assert f"{many:,} rows of timings have the ids of rows that are there, and other values: first {first}" in said
        assert "nothing overwritten" in said
    assert {table: content(db, table) for table in before} == before, "not even the new cell"
