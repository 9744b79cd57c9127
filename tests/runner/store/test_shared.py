"""Readers that share one connection see what each would see alone, and hold the file only while they read."""

from pathlib import Path
from unittest.mock import patch

import duckdb
import pytest

from runner.errors import DatabaseDamaged, DatabaseMissing
from runner.report.report import load_report
from runner.report.rows import Scope
from runner.schema import PlanRow
from runner.store.database import ingest, open_reader
from runner.store.shared import share_connection
from runner.store.spool import Spool
from tests.runner.store.test_damage import damage
from tests.synthetic import rows
from tests.synthetic.stored import RUN, made, read, write_cell

STEPS = "SELECT cell_id FROM steps ORDER BY cell_id"


@pytest.fixture
def db(tmp_path: Path) -> Path:
    made(tmp_path / "results.duckdb")
    return tmp_path / "results.duckdb"


def test_readers_within_take_one_connection_in_turn(db: Path) -> None:
    with share_connection(db):
        with open_reader(db) as first, open_reader(db) as nested:
            assert nested is not first
            assert first.execute(STEPS).fetchall() == nested.execute(STEPS).fetchall()
        with share_connection(db), open_reader(db) as second:
            assert second is first
        with open_reader(db) as third:
            assert third is first
    with open_reader(db) as outside:
        assert outside is not first


def test_the_file_is_free_between_two_readers_and_the_next_one_sees_what_came(db: Path) -> None:
    with share_connection(db):
        before = read(db, STEPS)
        cell = write_cell(db)
        assert read(db, STEPS) == sorted([*before, (cell.cell_id,)]), "in the spool"
        assert ingest(db, patience_s=0.0) == 1, "nobody holds the file"
        assert read(db, STEPS) == sorted([*before, (cell.cell_id,)]), "in the file"
        with duckdb.connect(str(db)) as con:  # nobody has the file open
            con.execute("DELETE FROM steps")
        assert read(db, STEPS) == []


def test_a_plan_is_as_new_as_its_last_heartbeat(db: Path) -> None:
    plan = PlanRow(
        run_id=RUN.run_id, position=0, experiment="benchmark", cell_key="0", round=0, title="a", state="waiting"
    )
    with share_connection(db):
        for written in ([plan], []):
            Spool(db).write_plan(written, RUN.run_id)
            assert len(read(db, "FROM plan")) == len(written)


def test_another_file_put_in_its_place_is_read(db: Path, tmp_path: Path) -> None:
    made(tmp_path / "other.duckdb")
    with share_connection(db):
        before = read(db, STEPS)
        expected = read(tmp_path / "other.duckdb", STEPS)
        (tmp_path / "other.duckdb").replace(db)
        assert read(db, STEPS) == expected != before


def test_a_reader_after_one_that_failed_reads(db: Path) -> None:
    with share_connection(db):
        before = read(db, STEPS)
        with pytest.raises(duckdb.Error):
            read(db, "SELECT nothing FROM steps")
        with pytest.raises(RuntimeError), open_reader(db):
            raise RuntimeError
        assert read(db, STEPS) == before


def test_there_may_be_no_file(tmp_path: Path) -> None:
    db = tmp_path / "none.duckdb"
    with share_connection(db):
        with pytest.raises(DatabaseMissing):
            read(db, STEPS)
        cell = write_cell(db)
        assert read(db, STEPS) == [(cell.cell_id,)], "of the spool alone"
        assert ingest(db) == 1
        assert read(db, STEPS) == [(cell.cell_id,)]


def test_what_is_damaged_is_refused_or_empty_as_each_reader_asks(tmp_path: Path) -> None:
    file = rows.store(tmp_path / "results.duckdb", of := rows.run(), rows.laptop(of))
    with share_connection(file):
        whole = read(file, "SELECT count(*) FROM samples")
        damage(file, "samples")
        for _ in range(2):
            with pytest.raises(DatabaseDamaged):
                read(file, "SELECT count(*) FROM samples")
            with open_reader(file, damaged="empty") as con:
                assert con.execute("SELECT count(*) FROM samples").fetchall() == [(0,)]
    assert whole > [(0,)]


def test_a_report_opens_one_connection(tmp_path: Path) -> None:
    file = rows.store(tmp_path / "results.duckdb", of := rows.run(), rows.laptop(of))
    read(file, STEPS)  # the first reader of a process examines the file
    with patch.object(duckdb, "connect", side_effect=duckdb.connect) as connect:
        assert load_report(file, Scope()).answered
    assert connect.call_count == 1
