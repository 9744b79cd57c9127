"""`check` reports what is wrong with a file and nothing else; `check --repair` repairs it and keeps a copy."""

import os
import shutil
import time
from pathlib import Path

import pytest

from runner.errors import DatabaseForeign
from runner.schema import new_id
from runner.store.checking import check_file, repair_file
from runner.store.database import ingest
from runner.store.spool import LEFTOVER_AGE_S, Spool
from tests.command import TINY, run
from tests.runner.store.test_damage import damage
from tests.some import some
from tests.synthetic import rows
from tests.synthetic.stored import change, read

COUNTS = """SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM steps), (SELECT count(*) FROM timings),
            (SELECT count(*) FROM samples)"""
STRANGER = str(new_id())


@pytest.fixture(scope="module")
def whole(module_db: Path) -> Path:
    return rows.store(module_db, of := rows.run(), rows.laptop(of))


@pytest.fixture
def file(whole: Path, tmp_path: Path) -> Path:
    """Returns a file with one run of 29 cells, of which 27 ended ok."""
    shutil.copytree(whole.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / whole.name


def counts(file: Path) -> tuple[int, ...]:
    return read(file, COUNTS)[0]


def test_a_whole_file_has_nothing_wrong(file: Path) -> None:
    before = file.read_bytes()
    assert "nothing wrong" in run("doctor", db=file, code=0).stdout
    assert run("doctor", "--repair", db=file).returncode == 0
    assert file.read_bytes() == before
    assert sorted(os.listdir(file.parent)) == ["results.duckdb", "results.duckdb.spool"], "there is no copy"
    change(file, "ALTER TABLE steps DROP COLUMN compile_cache", "DROP TABLE telemetry")
    assert "it gains 1 column and 1 table with the next sweep" in run("doctor", db=file, code=0).stdout


FIRST = "(SELECT min(cell_id) FROM steps WHERE status = 'ok')"
#: The statement that damages the file, the kind and the words of the problem, and how many rows of each table the
#: repair removes. An ok cell of the fixture has 5 or 6 timings.
WRONG: dict[str, tuple[str, str, str, tuple[int, int, int, int]]] = {
    "duplicates": ("INSERT INTO timings SELECT * FROM timings WHERE phase = 'step' LIMIT 2",
                   "duplicate", "2 rows of timings with the cell_id, phase of an earlier", (0, 0, 0, 0)),
    "rows of no cell": (f"INSERT INTO timings (run_id, cell_id, phase, n, clock) "
                        f"SELECT run_id, '{STRANGER}', 'step', 3, 'host' FROM runs",
                        "orphan", "1 row of timings whose cell is not in the file", (0, 0, 0, 0)),
    "a cell of no run": (f"UPDATE steps SET run_id = '{STRANGER}' WHERE cell_id = {FIRST}",
                         "orphan", "1 row of steps whose run is not in the file", (-1, 0, 0, 0)),
    "values that cannot be": ("UPDATE timings SET median_ms = -1 WHERE phase = 'loss'",
                              "impossible", "median_ms '-1.0'", (0, 0, 24, 0)),
    "an impossible cell": ("UPDATE steps SET status = 'banana' WHERE status = 'oom'",
                           "impossible", "1 of steps with status 'banana'", (0, 1, 0, 0)),
}  # fmt: skip


@pytest.mark.parametrize("what", some(WRONG))
def test_problems_are_reported_and_repaired(file: Path, what: str) -> None:
    statement, kind, words, fewer = WRONG[what]
    before = counts(file)
    change(file, statement)
    damaged = file.read_bytes()
    (problem,) = check_file(file).problems
    assert (problem.kind, words in problem.sentence) == (kind, True), problem
    done = run("doctor", db=file)
    assert (done.returncode, "doctor --repair --db" in done.stdout, "are removed" in done.stdout) == (1, True, False)
    assert file.read_bytes() == damaged, "checking must change nothing"
    done = run("doctor", "--repair", db=file)
    assert (done.returncode, "nothing wrong" in done.stdout) == (0, True), done.stdout
    assert counts(file) == tuple(count - less for count, less in zip(before, fewer, strict=True))
    (copy,) = file.parent.glob("results.duckdb.before-repair-*")
    assert copy.read_bytes() == damaged
    assert str(copy) in done.stdout


@pytest.mark.parametrize(
    ("statement", "kind", "words"),
    [
        (f"DELETE FROM timings WHERE cell_id = {FIRST}", "incomplete", "1 cell of steps with status ok and no times"),
        (f"UPDATE steps SET cell_key = (SELECT max(cell_key) FROM steps WHERE status = 'ok') WHERE cell_id = {FIRST}",
         "doubled", "1 cell of steps measured more than once in one round"),
    ],
)  # fmt: skip
def test_problems_beyond_repair_are_reported_and_left(file: Path, statement: str, kind: str, words: str) -> None:
    change(file, statement)
    before = counts(file)
    (problem,) = check_file(file).problems
    assert (problem.kind, words in problem.sentence, problem.repair) == (kind, True, "")
    assert run("doctor", "--repair", db=file).returncode == 1
    assert counts(file) == before


@pytest.mark.parametrize("table", [pytest.param("samples", marks=pytest.mark.soak), "steps"])
def test_readable_rows_of_damaged_tables_are_kept(file: Path, table: str) -> None:
    before = counts(file)
    damaged = damage(file, table).read_bytes()
    assert "damaged" in {problem.kind for problem in check_file(file).problems}
    copy = repair_file(file)
    assert copy is not None
    assert copy.read_bytes() == damaged
    assert not [problem for problem in check_file(file).problems if problem.repair]
    left = counts(file)
    assert all(now <= then for now, then in zip(left[1:], before[1:], strict=True))
    assert left[table == "samples"] > 0, "other tables keep their rows"
    assert not list(file.parent.glob(".stepscope-repair-*"))
    rows.store(file, of := rows.run(), [rows.ok(of, rows.asked())])
    assert counts(file)[1] == left[1] + 1, "the repaired file can be written"


@pytest.mark.soak
def test_a_large_damaged_table_loses_only_rows_near_the_damage(file: Path) -> None:
    """A block of 256 KiB holds 2**15 numbers of 8 bytes, packed a few more: far fewer than the table's 300,000."""
    change(
        file,
        f"""INSERT INTO samples (run_id, cell_id, phase, step, duration_ms, is_warmup)
            SELECT run_id, {FIRST}, 'forward', 1000 + i, random(), false FROM runs, range(300_000) t(i)""",
    )
    before = counts(file)[3]
    damage(file, "samples", "duration_ms")
    repair_file(file)
    assert 0 < before - counts(file)[3] < 2 * 2**15


#: What is said of a file that is left over, and its name.
LEFT = {
    "without a finished cell": "torn.json",
    "a finished cell: torn.json": "torn.json",
    "left over by killed programs": ".cell.json.1.tmp",
}


@pytest.mark.soak
@pytest.mark.parametrize("words", LEFT)
def test_files_left_over_in_the_spool_are_reported(file: Path, words: str, recwarn: pytest.WarningsRecorder) -> None:
    spool, of = Spool(file), rows.run()
    rows.spooled(file, of, rows.ok(of, rows.asked("toy-256", context=512)))
    assert "1 finished cell waits" in check_file(file).notes[0]
    (cell,) = spool.files()
    other = cell.read_text().replace(cell.stem, STRANGER).replace('"status":"ok"', '"status":"fine"')
    (left := spool.folder / LEFT[words]).write_text(other if "a finished cell: " in words else '{"steps": [{')
    os.utime(left, times=(0, time.time() - 2 * LEFTOVER_AGE_S))
    (problem,) = check_file(file).problems
    assert (problem.kind, words in problem.sentence) == ("spool", True)
    repair_file(file)
    assert spool.files() == spool.leftovers() == []
    assert counts(file)[0] == 2, "the waiting cell is in the file"
    aside = [problem.sentence for problem in check_file(file).problems]
    assert [("set aside: torn.json.bad" in one) for one in aside] == ([True] if "a finished" in words else [])


def test_a_newer_file_is_read_and_not_added_to(file: Path) -> None:
    change(file, "ALTER TABLE steps ADD COLUMN tomorrow INTEGER")
    assert counts(file)[1] == 29
    before, listed = file.read_bytes(), sorted(os.listdir(file.parent))
    assert "newer Stepscope wrote it (steps.tomorrow)" in run("doctor", db=file, code=0).stdout
    done = run("sweep", *TINY, db=file)
    assert (done.returncode, "newer Stepscope" in done.stdout, "Update" in done.stdout) == (2, True, True), done.stdout
    assert (file.read_bytes(), sorted(os.listdir(file.parent))) == (before, listed), "nothing was measured"
    with pytest.raises(DatabaseForeign, match="newer Stepscope"):
        repair_file(file)
    rows.spooled(file, of := rows.run(), rows.ok(of, rows.asked()))
    with pytest.raises(DatabaseForeign, match=r"steps\.tomorrow"):
        ingest(file)
    assert len(Spool(file).files()) == 1
    assert counts(file)[1] == 30, "the new cell waits in the spool, where readers see it"


def test_a_file_without_results_is_an_error(tmp_path: Path) -> None:
    other, missing = tmp_path / "other.duckdb", tmp_path / "missing.duckdb"
    change(other, "CREATE TABLE stairs AS SELECT 17 AS height")
    for path, words in ((other, "holds no results"), (missing, "does not exist")):
        assert words in run("doctor", "--repair", db=path, code=2).stdout
    assert os.listdir(tmp_path) == ["other.duckdb"]
