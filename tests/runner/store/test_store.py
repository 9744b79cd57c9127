"""Rows pass through the store unchanged, and each is read exactly once from the spool, the file or both; a file is
examined and read within little memory."""

import math
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING, asdict, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pytest

from runner.schema import TABLES, Column, Table, new_id, utc_now
from runner.store import contract, shared
from runner.store.attached import CONFIG, connect
from runner.store.database import fingerprint, ingest, look_through, open_reader, plan_fingerprint
from runner.store.spool import Spool
from tests.synthetic import rows
from tests.synthetic.stored import RUN, change, counts, read, write_cell

#: Values that are easily changed by a conversion.
TRICKY: dict[type, list[Any]] = {
    float: [0.1 + 0.2, 1e-12, 1e30, 0.0, 1.0, 1e-9],
    str: ["größer ∝ S², 'quoted' \"twice\"\nback\\slash \x00 \U0001f9ee; DROP TABLE steps", ""],
    bool: [True, False],
    UUID: [UUID(int=0), UUID(int=2**128 - 1)],
    datetime: [datetime(2026, 2, 28, 23, 59, 59, 999_999), datetime(1999, 12, 31)],
}


def every_type(table: Table, *, cell_id: UUID) -> dict[str, Any]:
    """Returns a row of a table as keywords, with a value in every second column that may be empty, and in the key of an
    own model, which alone has a context of 0."""
    ids, values = {"run_id": RUN.run_id, "cell_id": cell_id}, dict[str, Any]()
    required = {"model_key", *(item.name for item in fields(table.row) if item.default is MISSING)}
    for place, column in enumerate(table.columns):
        if column.name in ids:
            values[column.name] = ids[column.name]
        elif column.name != "ingested_at" and (column.name in required or place % 2):
            values[column.name] = tricky(column)[place // 2 % len(tricky(column))]
    return values


def tricky(column: Column) -> Sequence[Any]:
    """Returns values of the column that are easily changed by a conversion; sizes are small enough to be multiplied."""
    if column.type is int:
        least, most = column.bounds or (0, 0)
        return [least, least + 1] if column.asked else [most, least]
    return column.choices or TRICKY[column.type]


@pytest.mark.parametrize("ingested", [pytest.param(False, marks=pytest.mark.soak), True])
def test_every_type_arrives_unchanged(db: Path, ingested: bool) -> None:
    cell_id = new_id()
    tables = {name: table for name, table in TABLES.items() if table.stored}
    rows = {name: table.row(**every_type(table, cell_id=cell_id)) for name, table in tables.items()}
    Spool(db).write({name: [row] for name, row in rows.items()}, "cell")
    assert not ingested or ingest(db) == 1
    for name, row in rows.items():
        columns = [column.name for column in TABLES[name].columns]
        (found,) = read(db, f"SELECT {', '.join(columns)} FROM {name}")
        arrived, expected = dict(zip(columns, found, strict=True)), asdict(row)
        if "ingested_at" in arrived:
            at = arrived.pop("ingested_at")
            assert expected.pop("ingested_at") is None
            assert (at is not None and abs((utc_now() - at).total_seconds()) < 60) if ingested else at is None
        assert arrived == expected
        assert {key: type(value) for key, value in arrived.items()} == {k: type(v) for k, v in expected.items()}


def test_nan_and_invalid_unicode_are_kept_as_far_as_possible(db: Path) -> None:
    write_cell(db, loss=math.nan, mfu=math.inf, cell_seconds=-math.inf, message=os.fsdecode(b"caf\xe9"))
    ingest(db)
    assert read(db, "SELECT loss, mfu, cell_seconds, message FROM steps") == [(None, None, None, "caf\\udce9")]


@pytest.mark.parametrize("values", [{"parameters": 1.5}, {"message": 3}, {"loss": "1"}, {"parameters": 2**63}])
def test_writing_a_value_of_the_wrong_type_is_refused(db: Path, values: dict[str, Any]) -> None:
    with pytest.raises((TypeError, AttributeError, OverflowError)):
        write_cell(db, **values)
    assert Spool(db).files() == []


def test_a_path_may_have_any_name(tmp_path: Path) -> None:
    db = tmp_path / "it's [1] *odd*" / "ré sults.duckdb"
    write_cell(db)
    assert counts(db) == (1, 1, 3, 1)
    assert ingest(db) == 1
    assert counts(db) == (1, 1, 3, 1)


def test_a_path_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    elsewhere, db = tmp_path / "disk" / "all.duckdb", tmp_path / "results.duckdb"
    write_cell(elsewhere)
    ingest(elsewhere)
    db.symlink_to(elsewhere)
    write_cell(db)
    assert counts(db)[:2] == (2, 2)
    assert ingest(db) == 1
    assert counts(elsewhere)[:2] == (2, 2)


def test_a_cell_is_seen_once_in_spool_file_and_both(db: Path, tmp_path: Path) -> None:
    step = write_cell(db)
    (waiting,) = Spool(db).files()
    kept = shutil.copy(waiting, tmp_path / "kept")
    assert counts(db) == (1, 1, 3, 1)
    assert ingest(db) == 1
    assert Spool(db).files() == []
    assert counts(db) == (1, 1, 3, 1)
    shutil.copy(kept, waiting)  # as after a kill between the commit and the unlink
    other = write_cell(db)
    assert counts(db) == (2, 2, 6, 1)
    assert ingest(db) == 2
    assert counts(db) == (2, 2, 6, 1)
    assert sorted(read(db, "SELECT cell_id FROM steps")) == sorted([(step.cell_id,), (other.cell_id,)])


def test_ingest_without_rows_makes_no_file(db: Path) -> None:
    assert ingest(db) == 0
    assert not db.exists()


def test_a_first_file_is_readable_by_duckdb_1_2(db: Path) -> None:
    write_cell(db)
    ingest(db)
    with duckdb.connect(str(db), read_only=True) as con:
        query = "SELECT tags['storage_version'] FROM duckdb_databases() WHERE path IS NOT NULL"
        ((version,),) = con.execute(query).fetchall()
    assert version.startswith("v1.2")
    assert {path.name for path in db.parent.iterdir()} == {"results.duckdb", "results.duckdb.spool"}


def test_an_older_file_reads_with_an_axis_at_its_default_else_nulls_and_gains_the_columns(db: Path) -> None:
    sizes = ", ".join(f"{name} BIGINT" for name in ("d_model", "d_ff", "layers", "heads", "context"))
    words = ", ".join(f"{name} VARCHAR" for name in ("cell_key", "status", "mode", "precision"))
    change(
        db,
        "CREATE TABLE runs (run_id UUID PRIMARY KEY, sweep_key VARCHAR NOT NULL)",
        f"CREATE TABLE steps (run_id UUID NOT NULL, cell_id UUID PRIMARY KEY, {sizes}, {words})",
        "CREATE TABLE of_somebody_else (x INTEGER)",
        f"INSERT INTO runs VALUES ('{new_id()}', 'old')",
        f"INSERT INTO steps VALUES ('{new_id()}', '{new_id()}', 8, 8, 1, 1, 4, 'k', 'ok', 'train', 'fp32')",
    )
    axes = "SELECT backend, warmup_steps, max_seconds, compile_cache FROM steps WHERE d_model = 8"
    assert read(db, axes) == [("eager", 5, 10.0, "shared")], "without a choice the default was measured"
    assert read(db, "SELECT status, d_model, message FROM steps") == [("ok", 8, None)]
    assert counts(db) == (1, 1, 0, 1)
    assert read(db, "SELECT * FROM timings") == []
    write_cell(db, message="new")
    expected = [("ok", 8, None), ("ok", 64, "new")]
    query = "SELECT status, d_model, message FROM steps ORDER BY d_model"
    assert read(db, query) == expected
    assert ingest(db) == 1
    assert read(db, query) == expected
    assert read(db, axes) == [("eager", 5, 10.0, "shared")]
    with open_reader(db) as con:
        for name, table in TABLES.items():
            names = [column[0] for column in con.execute(f"FROM {name}").description]
            assert names == [column.name for column in table.columns]


def test_the_plan_is_in_the_spool_and_is_replaced_as_a_whole(db: Path) -> None:
    spool = Spool(db)
    spool.write_plan(rows.plan(RUN, ["a", "a"], done=0), RUN.run_id)
    assert read(db, "SELECT position, state FROM plan ORDER BY 1") == [(0, "running"), (1, "waiting")]
    write_cell(db)
    assert ingest(db) == 1
    spool.write_plan(rows.plan(RUN, ["a", "a"], done=2), RUN.run_id)
    assert read(db, "SELECT position, state FROM plan ORDER BY 1") == [(0, "done"), (1, "done")]
    spool.remove_plan(RUN.run_id)
    assert read(db, "SELECT * FROM plan") == []


def test_fingerprints_change_with_everything_a_reader_sees(db: Path) -> None:
    states = [fingerprint(db)]
    write_cell(db)
    states.append(fingerprint(db))
    write_cell(db)
    states.append(fingerprint(db))
    ingest(db)
    states.append(fingerprint(db))
    assert len(set(states)) == 4
    assert fingerprint(db) == states[-1]
    plans = [plan_fingerprint(db)]
    for _ in range(2):
        Spool(db).write_plan([], RUN.run_id)
        plans.append(plan_fingerprint(db))
    assert len(set(plans)) == 3
    counts(db)
    assert fingerprint(db) == states[-1], "a heartbeat or a reader must not change the fingerprint of the data"


def test_files_of_killed_writers_are_ignored_and_removed(db: Path) -> None:
    write_cell(db)
    old, fresh = (Spool(db).folder / f".{name}.json.1.tmp" for name in ("old", "fresh"))
    for file in (old, fresh):
        file.write_text('{"steps": [{"run')
    os.utime(old, (time.time() - 3600,) * 2)
    assert counts(db) == (1, 1, 3, 1)
    assert ingest(db) == 1
    assert not old.exists()
    assert fresh.exists()


def test_a_text_that_is_too_long_is_cut_like_a_message(db: Path) -> None:
    run = replace(RUN, run_id=new_id(), label="é" * 1_000_000)
    Spool(db).write({"runs": [run]}, "long")
    assert ingest(db) == 1
    ((label,),) = read(db, f"SELECT label FROM runs WHERE run_id = '{run.run_id}'")
    assert label == "é" * 498 + "…"


def test_a_long_text_is_examined_with_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A label of 8 MB, which breaks the contract, is read within 128 MB a thread and not within 1 MB."""
    file = rows.store(tmp_path / "results.duckdb", of := rows.run(), [rows.ok(of, rows.asked())])
    change(file, "UPDATE runs SET label = repeat('x', 8_000_000)")
    used: list[Sequence[str]] = []

    def recorded(*files: Path, limits: Sequence[str]) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        used.append(limits)
        return connect(*files, limits=limits)

    monkeypatch.setattr(contract, "connect", recorded)
    for small, memory, attempts in ((0, 128, 1), (0, 1, 2), (2**24, 128, 0), (2**24, 1, 2)):
        monkeypatch.setattr(contract, "SMALL_BYTES", small)
        contract._known.clear()
        shared.close_all()
        used.clear()
        monkeypatch.setattr(shared, "THREAD_MB", memory)
        assert look_through(file).left_out == {"runs": 1}
        assert [len(limits) for limits in used] == [2, 0][:attempts]


def test_a_query_beyond_a_readers_memory_goes_on_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two million texts of 32 bytes are sorted within 32 MB a thread, and nothing is left of it."""
    (folder := tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr(shared, "THREAD_MB", 32)
    monkeypatch.setitem(CONFIG, "threads", 2)
    taken = shared.Taken(files=())
    with taken.opened:
        query = "SELECT md5(i::VARCHAR) AS text FROM range(2_000_000) t(i) ORDER BY 1"
        taken.con.execute(f"CREATE TEMP TABLE texts AS {query}")
        assert taken.con.execute("SELECT count(*) FROM texts").fetchone() == (2_000_000,)
        assert [path.is_dir() for path in folder.iterdir()] == [True]
    assert list(folder.iterdir()) == []
