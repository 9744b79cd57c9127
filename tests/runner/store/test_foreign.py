"""Results files from others: nothing in them is executed, and no row that breaks the contract is added."""

import os
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from runner.errors import DatabaseForeign, RowsRefused, StepscopeError
from runner.schema import new_id
from runner.store.database import look_through, open_reader
from runner.store.merging import merge
from runner.store.spool import Spool
from tests.command import run
from tests.some import some
from tests.synthetic import rows
from tests.synthetic.stored import change, read


@pytest.fixture(scope="module")
def made(module_db: Path) -> Path:
    """Returns a results file of one run with a cell that worked."""
    return rows.store(module_db, of := rows.run(), [rows.ok(of, rows.asked())])


@pytest.fixture
def file(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made, tmp_path))


def view(table: str, replaced: str) -> tuple[str, str]:
    """Returns statements that replace the table by a view in which one column comes from elsewhere."""
    return (f"ALTER TABLE {table} RENAME TO kept", f"CREATE VIEW {table} AS SELECT * REPLACE ({replaced}) FROM kept")


SECRET = "known only to this machine"


@pytest.mark.parametrize("table", ["runs", pytest.param("steps", marks=pytest.mark.soak)])
def test_a_view_is_not_executed(file: Path, tmp_path: Path, table: str) -> None:
    (tmp_path / "secret").write_text(SECRET)
    column = {"runs": "label", "steps": "message"}[table]
    change(file, *view(table, f"(SELECT content FROM read_text('{tmp_path / 'secret'}')) AS {column}"))
    for use in (lambda: merge(file, into=tmp_path / "here.duckdb"), lambda: open_reader(file).__enter__()):
        with pytest.raises(DatabaseForeign, match=f"{table} is a view") as refused:
            use()
        assert SECRET not in str(refused.value)
    assert not (tmp_path / "here.duckdb").exists()
    for command in (("show", "runs"), ("show",)):
        said = run(*command, db=file)
        assert (said.returncode, "Traceback" in said.stdout, SECRET in said.stdout) == (2, False, False), said.stdout


def test_a_reader_reaches_no_other_file(file: Path, tmp_path: Path) -> None:
    """A view that reads another file fails, even beside the tables or in its own schema and asked for by name."""
    (tmp_path / "secret").write_text(SECRET)
    os.mkfifo(tmp_path / "pipe")
    source = f"SELECT content FROM read_text('{tmp_path / 'secret'}')"
    change(file, f"CREATE VIEW other AS {source}", f"CREATE SCHEMA s; CREATE MACRO s.m() AS ({source})")
    asked = (f"FROM read_text('{tmp_path / 'pipe'}')", source, "FROM file.main.other", "SELECT file.s.m()")
    for query in (*asked, "SET enable_external_access = true", f"COPY runs TO '{tmp_path / 'out'}'"):
        with open_reader(file) as con:
            assert con.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]
            with pytest.raises((duckdb.PermissionException, duckdb.InvalidInputException)):
                con.execute(query).fetchall()


COMPUTED = {
    "generated": ("ALTER TABLE marks RENAME TO m", "CREATE TABLE marks (run_id UUID, cell_id UUID, name VARCHAR, at_us "
                  "BIGINT GENERATED ALWAYS AS (strlen(repeat(name, 1000000000))))"),
    "checked": ("DROP TABLE marks", "CREATE TABLE marks (run_id UUID, cell_id UUID, at_us BIGINT CHECK (at_us > 7))"),
    "type": ("ALTER TABLE steps ALTER d_model TYPE VARCHAR",),
    "nested": ("ALTER TABLE steps ALTER message TYPE VARCHAR[] USING [message]",),
    "no id": ("ALTER TABLE samples DROP COLUMN cell_id",),
}  # fmt: skip


@pytest.mark.parametrize("kind", some(COMPUTED))
def test_tables_with_another_definition_are_refused(file: Path, tmp_path: Path, kind: str) -> None:
    change(file, *COMPUTED[kind])
    with pytest.raises(DatabaseForeign, match=r"computed|is of the type|has no cell_id") as refused:
        merge(file, into=tmp_path / "here.duckdb")
    assert str(file) in refused.value.got
    assert "--db" not in refused.value.do
    with pytest.raises(DatabaseForeign), open_reader(file):
        pass


#: The statement that changes the file, and the text of the refusal.
BAD: dict[str, tuple[str, str]] = {
    "status": ("UPDATE steps SET status = 'banana'", "1 of steps with status 'banana'"),
    "width": ("UPDATE steps SET d_model = 2::BIGINT ** 60", "1 of steps with d_model × d_model × layers"),
    "context": ("UPDATE steps SET context = -1", "1 of steps with context '-1'"),
    "no length": ("UPDATE steps SET context = 0", "1 of steps with context '0'"),
    "precision": ("UPDATE steps SET precision = '<b>x</b>'", "1 of steps with precision '<b>x</b>'"),
    "unstated": ("UPDATE steps SET d_model = NULL", "1 of steps with d_model 'NULL'"),
    "not a number": ("UPDATE samples SET duration_ms = 'nan'", "of samples with duration_ms 'nan'"),
    "negative": ("UPDATE timings SET median_ms = -1 WHERE phase = 'step'", "1 of timings with median_ms '-1.0'"),
    "infinite": ("UPDATE samples SET host_ms = 'inf' WHERE step = 0 AND phase = 'loss'", "with host_ms 'inf'"),
    "almost nothing": ("UPDATE timings SET median_ms = 5e-324 WHERE phase = 'step'", "with median_ms '5e-324'"),
    "no run": ("DELETE FROM runs", "1 row of steps without their run: first run_id "),
    "a time": ("UPDATE runs SET started_at = 'infinity'", "1 of runs with started_at 'infinity'"),
    "a long text": ("UPDATE runs SET label = repeat('x', 2000000)", "1 of runs with label 'xxx"),
    "twice": ("INSERT INTO samples SELECT * FROM samples LIMIT 1", "2 of samples with the same cell_id"),
}


#: One of each way to find them: a choice, a product, a number that is none, and two rows.
SOME_BAD = ("status", "width", "not a number", "twice")


@pytest.mark.parametrize("kind", some(BAD, SOME_BAD))
def test_rows_that_break_the_contract_are_refused(file: Path, tmp_path: Path, kind: str) -> None:
    statement, said = BAD[kind]
    change(file, statement)
    with pytest.raises(RowsRefused) as refused:
        merge(file, into=tmp_path / "here.duckdb")
    assert said in refused.value.got
    assert not (tmp_path / "here.duckdb").exists()


def test_a_published_table_may_leave_columns_of_the_key_empty(file: Path, tmp_path: Path) -> None:
    change(file, "UPDATE steps SET heads = NULL", "UPDATE runs SET source = 'published'")
    assert merge(file, into=tmp_path / "here.duckdb")["steps"] == 1
    assert look_through(tmp_path / "here.duckdb").left_out == {}


def test_bad_rows_of_a_file_are_left_out_and_counted(file: Path) -> None:
    """The rows are changed with DuckDB itself, before the first read and after it."""
    rows.store(file, of := rows.run(), [rows.ok(of, rows.asked(context=64)), rows.ok(of, rows.asked(context=256))])

    def contexts() -> list[tuple[Any, ...]]:
        return read(file, "SELECT context FROM steps ORDER BY ALL")

    change(file, "UPDATE steps SET status = 'banana' WHERE context = 64")
    assert (contexts(), look_through(file).left_out) == ([(128,), (256,)], {"steps": 1})
    assert "Left out" in run("show", "runs", db=file).stdout
    change(file, "UPDATE steps SET context = -5 WHERE context = 256")
    assert (contexts(), look_through(file).left_out) == ([(128,)], {"steps": 2})
    rows.store(file, of, [rows.ok(of, rows.asked(context=512))])
    assert (contexts(), look_through(file).left_out) == ([(128,), (512,)], {"steps": 2})


SPOOLS = {
    "nested": '{"steps": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "a list": f'{{"runs": [{{"run_id": "{new_id()}", "sweep_key": ["x"]}}]}}',
    "a list as id": '{"runs": [{"run_id": ["x"], "sweep_key": "x"}]}',
    "huge": f'{{"runs": [{{"run_id": "{new_id()}", "sweep_key": "x", "cpu_cores": {"9" * 400}}}]}}',
    "negative": f'{{"runs": [{{"run_id": "{new_id()}", "sweep_key": "x", "source": "measured", "cpu_cores": -4}}]}}',
    "a surrogate": f'{{"runs": [{{"run_id": "{new_id()}", "sweep_key": "\\ud800"}}]}}',
}


@pytest.mark.parametrize("kind", some(SPOOLS))
def test_a_broken_foreign_spool_is_refused(file: Path, tmp_path: Path, kind: str) -> None:
    folder = Spool(file).folder
    folder.mkdir(exist_ok=True)
    (folder / "0.json").write_text(SPOOLS[kind])
    with pytest.raises(StepscopeError, match=r"0\.json"):
        merge(file, into=tmp_path / "here.duckdb")
    assert read(file, "SELECT count(*) FROM runs") == [(1,)]
