"""A copy is a complete results file, even if the file changes while it is made."""

import os
from pathlib import Path

import duckdb
import pytest

from runner.errors import UsageError
from runner.schema import new_id
from runner.store.checking import check_file
from runner.store.database import ingest
from runner.store.packing import copy_file
from runner.store.spool import Spool
from tests.command import run
from tests.runner.store.test_merge import TABLES, content
from tests.runner.store.test_processes import python, read_line
from tests.synthetic import rows
from tests.synthetic.stored import change, counts, made, write_cell


def test_a_copy_has_all_rows_as_they_are_and_those_of_the_spool(tmp_path: Path) -> None:
    db, out = tmp_path / "results.duckdb", tmp_path / "copy.duckdb"
    rows.store(db, of := rows.run(), [rows.ok(of, rows.asked(size)) for size in ("toy-64", "toy-128")])
    rows.spooled(db, of, rows.ok(of, rows.asked("toy-256")))
    with duckdb.connect(str(db)) as con:
        con.execute("CREATE TABLE mine AS SELECT 17 AS height")
        arrived = con.execute("SELECT ingested_at FROM steps ORDER BY cell_id").fetchall()
    before = db.read_bytes()
    assert "1 cell from the spool" in run("export", str(out), db=db, code=0).stdout
    assert [content(out, table) for table in TABLES] == [content(db, table) for table in TABLES]
    assert check_file(out).problems == ()
    with duckdb.connect(str(out), read_only=True) as con:
        assert con.execute("SELECT height FROM mine").fetchall() == [(17,)]
        assert con.execute("SELECT ingested_at FROM steps ORDER BY cell_id").fetchall()[:2] == arrived
    assert (db.read_bytes(), len(Spool(db).files())) == (before, 1), "the file is unchanged"
    assert sorted(os.listdir(tmp_path)) == ["copy.duckdb", "results.duckdb", "results.duckdb.spool"]
    assert write_cell(out).cell_id
    assert ingest(out) == 1, "the copy accepts new rows"


WRITES = """
from tests.synthetic.stored import write_cell
from pathlib import Path
file = Path(sys.argv[1])
written = 0
print("begun", flush=True)
while True:
    write_cell(file); written += 1
    print(written, flush=True)
    ingest(file, patience_s=0.03)
    while len(Spool(file).files()) > 5:
        ingest(file, patience_s=10)
"""


@pytest.mark.soak
def test_copies_of_a_file_in_use_are_whole(tmp_path: Path, db: Path) -> None:
    """A process writes and ingests one cell after the other, and pauses for the copy whenever more than five cells
    wait. A copy has at least the cells that were written before it was made."""
    made(db)
    with python(WRITES, db, cwd=Path(__file__).parents[3]) as writer:
        assert read_line(writer) == "begun"
        for number in range(3):
            written = int(read_line(writer))
            out = tmp_path / f"copy{number}.duckdb"
            copy_file(db, out)
            cells, different, samples, runs = counts(out)
            assert cells == different >= 3 + written
            assert (samples, runs) == (3 * cells, 2)
            wrong = {problem.kind for problem in check_file(out).problems}
            assert wrong == {"incomplete", "doubled"}, "these cells have one key and no times"


def test_a_copy_that_cannot_be_made_is_one_error(tmp_path: Path) -> None:
    db, out = tmp_path / "results.duckdb", tmp_path / "copy.duckdb"
    assert "does not exist" in run("export", str(out), db=db, code=2).stdout
    assert os.listdir(tmp_path) == []
    made(db)
    assert "Expected a name ending in .duckdb" in run("export", str(out.with_suffix(".csv")), db=db, code=2).stdout
    with pytest.raises(UsageError, match="there already"):
        copy_file(db, db)
    done = run("export", str(tmp_path / "none" / f"{new_id()}.duckdb"), db=db)
    assert (done.returncode, "cannot be written: No such file" in done.stdout) == (2, True), done.stdout
    for words in (("export", str(out)), ("doctor",)):
        assert "is a list. Expected one results file" in run(*words, db=Path(f"{db}:{db}"), code=2).stdout
    (other := tmp_path / "other.duckdb").write_bytes(db.read_bytes())
    change(other, "ALTER TABLE steps ALTER COLUMN tokens_per_s TYPE VARCHAR")
    assert f"{other} is not a results file" in run("export", str(out), db=other).stdout
    db.write_bytes(db.read_bytes()[:20_000])
    assert "is not a results file" in run("export", str(out), db=db, code=2).stdout
    assert not out.exists()
