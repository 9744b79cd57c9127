"""Results files as Parquet: packing and unpacking keeps the rows, which are checked like those of any foreign file."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import duckdb
import pytest

from runner.errors import DatabaseForeign, DatabaseMissing, RowsRefused, UsageError
from runner.schema import TABLES
from runner.store.checking import check_file
from runner.store.packing import is_packed, pack, unpack
from tests.command import run
from tests.synthetic import rows
from tests.synthetic.stored import read


@pytest.fixture(scope="module")
def file(module_db: Path) -> Path:
    """Returns a file with a small sweep, and one more cell in its spool."""
    rows.store(module_db, of := rows.run(), rows.laptop(of))
    rows.spooled(module_db, of, rows.ok(of, rows.asked(context=512)))
    return module_db


def read_all(path: Path) -> dict[str, list[tuple[object, ...]]]:
    names = {name: ", ".join(table.unique) for name, table in TABLES.items() if table.stored}
    return {name: read(path, f"FROM {name} ORDER BY {unique}") for name, unique in names.items()}


def rewrite(parquet: Path, query: str) -> None:
    """Replaces a packed table by the result of a query, in which its name is `old`."""
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE old AS FROM read_parquet('{parquet}')")
        con.execute(f"COPY ({query}) TO '{parquet}' (FORMAT parquet)")


def test_packages_may_lie_on_a_path_of_their_own(file: Path, tmp_path: Path) -> None:
    """As on a machine without a registry, to which one wheel was carried: its Python has no package of ours."""
    bare = sysconfig.get_config_var("BINDIR") + f"/python{sysconfig.get_python_version()}"
    command = [bare, "-m", "runner", "export", str(tmp_path / "packed"), "--parquet", "--db", str(file)]
    path = os.pathsep.join(one for one in sys.path if one)
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert is_packed(tmp_path / "packed")


def test_packing_and_unpacking_keeps_all_rows(file: Path, tmp_path: Path) -> None:
    """All rows come back unchanged, including the row of the spool and the times at which rows reached the file."""
    sizes = pack(file, tmp_path / "packed")
    names = {"runs", "steps", "timings", "samples"}
    assert sizes.keys() == names
    assert {path.name for path in (tmp_path / "packed").iterdir()} == {f"{name}.parquet" for name in names}
    unpack(tmp_path / "packed", tmp_path / "back.duckdb")
    before, after = read_all(file), read_all(tmp_path / "back.duckdb")
    assert len(after["steps"]) == len(before["steps"]) == 30
    waiting = TABLES["steps"].names  # a row in the spool has no time at which it reached the file
    assert "ingested_at" in waiting
    assert after == before
    assert check_file(tmp_path / "back.duckdb").problems == ()
    assert pack(file, tmp_path / "again") == sizes, "equal rows give equal files"
    for name in sizes:
        packed, again = (tmp_path / folder / f"{name}.parquet" for folder in ("packed", "again"))
        assert packed.read_bytes() == again.read_bytes()
    assert sum(sizes.values()) < file.stat().st_size / 10


@pytest.mark.soak
def test_packing_again_replaces_the_folder(file: Path, tmp_path: Path) -> None:
    pack(file, tmp_path / "packed")
    lone = rows.store(tmp_path / "lone.duckdb", of := rows.run(), [rows.failed(of, rows.asked())])
    assert "in 2 files" in run("export", str(tmp_path / "packed"), "--parquet", db=lone, code=0).stdout
    assert {path.stem for path in (tmp_path / "packed").iterdir()} == {"runs", "steps"}


def test_a_folder_of_other_files_stays_as_it_is(file: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("all of it")
    with pytest.raises(UsageError, match=r"thesis\.tex is there"):
        pack(file, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(DatabaseMissing):
        pack(tmp_path / "none.duckdb", tmp_path / "packed")
    assert not (tmp_path / "packed").exists()


@pytest.mark.soak
def test_commands_that_read_accept_the_folder(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pack(file, tmp_path / "packed")
    assert is_packed(tmp_path / "packed")
    for words in (("doctor",), ("show", "runs"), ("show",), ("report",)):
        of_file, of_folder = (run(*words, db=path) for path in (file, tmp_path / "packed"))
        assert of_folder.returncode == of_file.returncode == 0, of_folder.stdout
    assert "rows of an Example CPU that come with Stepscope, not of your machine." in of_folder.stdout
    assert "come with Stepscope" not in of_file.stdout
    assert str(tmp_path / "cache") not in of_folder.stdout, "no command may write measurements into it"


@pytest.mark.soak
def test_rows_that_break_the_contract_are_refused(file: Path, tmp_path: Path) -> None:
    pack(file, tmp_path / "packed")
    steps = tmp_path / "packed/steps.parquet"
    whole = steps.read_bytes()
    rewrite(steps, "SELECT * REPLACE ('banana' AS status) FROM old")
    with pytest.raises(
        RowsRefused, match=r"steps\.parquet holds rows that cannot be used: .* of steps with status 'ban"
    ):
        unpack(tmp_path / "packed", tmp_path / "a.duckdb")
    steps.write_bytes(whole)
    rewrite(steps, "FROM old UNION ALL FROM old")
    with pytest.raises(RowsRefused, match="with the same cell_id"):
        unpack(tmp_path / "packed", tmp_path / "b.duckdb")
    steps.write_bytes(whole)
    rewrite(steps, "SELECT * REPLACE (batch::VARCHAR AS batch) FROM old")
    with pytest.raises(DatabaseForeign, match=r"steps\.batch is of the type VARCHAR, not BIGINT"):
        unpack(tmp_path / "packed", tmp_path / "c.duckdb")
    steps.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DatabaseForeign, match=r"steps\.parquet cannot be read"):
        unpack(tmp_path / "packed", tmp_path / "d.duckdb")


def test_rows_packed_before_an_axis_existed_get_its_default(file: Path, tmp_path: Path) -> None:
    pack(file, tmp_path / "packed")
    rewrite(tmp_path / "packed/steps.parquet", "SELECT * EXCLUDE (optimizer, bound) FROM old")
    unpack(tmp_path / "packed", tmp_path / "back.duckdb")
    default = TABLES["steps"].column("optimizer").absent
    assert read(tmp_path / "back.duckdb", "SELECT DISTINCT optimizer, bound FROM steps") == [(default, None)]
