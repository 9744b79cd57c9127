"""A folder or a list of results files is read like one file that has all their rows, each of them once."""

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.errors import DatabaseMissing, StoreError, UsageError
from runner.places import absolute, list_files
from runner.store.console import run_query
from runner.store.database import fingerprint, ingest, look_through, open_reader, plan_fingerprint
from runner.store.merging import merge_files
from runner.store.read.runs import load_contents
from runner.store.spool import Spool
from tests.command import TINY, run
from tests.runner.store.test_damage import damage
from tests.runner.store.test_merge import TABLES, content
from tests.synthetic import rows
from tests.synthetic.stored import change, read

SIZES = ("toy-64", "toy-128", "toy-256")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the files of three machines, with one, two and three cells, the last of which waits in its spool."""
    found = tmp_path_factory.mktemp("fleet")
    for number in range(3):
        of = rows.run(host=f"node{number}")
        cells = [rows.ok(of, rows.asked(size)) for size in SIZES[: number + 1]]
        rows.store(found / f"node{number}.duckdb", of, cells[:2])
        for cell in cells[2:]:
            rows.spooled(found / f"node{number}.duckdb", of, cell)
    return found


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "fleet")


@pytest.fixture
def merged(folder: Path, tmp_path: Path) -> Path:
    into = tmp_path / "merged.duckdb"
    assert not [one for one in merge_files(list_files(folder), into=into) if one.refused]
    return into


def hosts(path: Path) -> Counter[str]:
    return Counter(host for (host,) in read(path, "SELECT host FROM steps JOIN runs USING (run_id)"))


def test_several_files_are_read_within_the_memory_of_one(folder: Path) -> None:
    """Without a limit the comparison with the reference rows took 430 MB of a server."""
    limit = "SELECT current_setting('memory_limit')"
    assert read(folder, limit) == read(folder / "node0.duckdb", limit)


def test_the_files_that_a_path_names(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [folder / f"node{number}.duckdb" for number in range(3)]
    (folder / "waiting.duckdb.spool").mkdir()
    (folder / "notes.txt").touch()
    (folder / "node0.duckdb.before-repair-20260101-000000").touch()
    assert list_files(folder) == [*files, folder / "waiting.duckdb"]
    assert list_files(files[0]) == [files[0]]
    both = Path(f"{files[1]}{os.pathsep}{files[0]}{os.pathsep}{files[1]}")
    assert list_files(both) == [files[1], files[0]], "in the order named, each once"
    assert list_files(Path(f"{files[0]}{os.pathsep}{folder}"))[1:3] == files[1:]
    odd = tmp_path / f"a{os.pathsep}b.duckdb"
    odd.touch()
    assert list_files(odd) == [odd], "one file with such a name"
    monkeypatch.chdir(folder)
    assert list_files(absolute(Path("node0.duckdb:node1.duckdb"))) == files[:2]


@pytest.mark.parametrize("listed", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_fleet_is_read_as_the_merged_file_is(folder: Path, merged: Path, listed: bool) -> None:
    path = Path(os.pathsep.join(map(str, list_files(folder)))) if listed else folder
    before = {file: file.read_bytes() for file in list_files(folder)}
    for table in TABLES:
        assert content(path, table) == content(merged, table), table
    assert hosts(path) == {"node0": 1, "node1": 2, "node2": 3}
    assert load_contents(path).machines == load_contents(merged).machines
    assert len(Spool(folder / "node2.duckdb").files()) == 1
    assert {file: file.read_bytes() for file in list_files(folder)} == before


def test_a_fleet_grows_with_its_files(folder: Path) -> None:
    states = [fingerprint(folder)]
    rows.spooled(folder / "node9.duckdb", of := rows.run(host="node9"), rows.ok(of, rows.asked()))
    states.append(fingerprint(folder))
    assert hosts(folder)["node9"] == 1
    ingest(folder / "node9.duckdb")
    states.append(fingerprint(folder))
    assert hosts(folder)["node9"] == 1
    assert len(set(states)) == 3
    plans = plan_fingerprint(folder)
    Spool(folder / "node9.duckdb").write_plan(rows.plan(of, ["a", "b"], done=1), of.run_id)
    assert plan_fingerprint(folder) != plans
    assert fingerprint(folder) == states[-1]
    assert read(folder, "SELECT count(*) FROM plan") == [(2,)]


@pytest.mark.soak
def test_a_run_in_several_files_is_read_once(folder: Path, merged: Path) -> None:
    """With a merged file and an old copy in one folder, each run is read from the file that has most of it."""
    shutil.copy(folder / "node2.duckdb", folder / "copy.duckdb")
    shutil.copy(merged, folder / "merged.duckdb")
    rows.store(folder / "merged.duckdb", of := rows.run(host="node5"), [rows.ok(of, rows.asked())])
    assert hosts(folder) == {"node0": 1, "node1": 2, "node2": 3, "node5": 1}
    for table in ("runs", "timings", "samples"):
        found = content(folder, table)
        assert len(set(map(str, found))) == len(found)


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no database": (lambda path: path.write_bytes(b"nothing"), "not a results file"),
    "cut short": (lambda path: path.write_bytes(path.read_bytes()[:30_000]), "not a results file"),
    "another's": (lambda path: _replace(path, "CREATE TABLE stairs AS SELECT 17 AS height"), "it holds no results"),
    "a view": (lambda path: _replace(path, "CREATE VIEW runs AS SELECT 1 AS run_id, 2 AS sweep_key"), "runs is a view"),
}  # fmt: skip


def _replace(path: Path, statement: str) -> None:
    path.unlink()
    change(path, statement)


@pytest.mark.soak
@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_named_and_the_others_are_read(folder: Path, kind: str) -> None:
    make, words = BROKEN[kind]
    make(folder / "node1.duckdb")
    assert hosts(folder) == {"node0": 1, "node2": 3}
    ((name, why),) = look_through(folder).broken.items()
    assert (name, words in why) == ("node1.duckdb", True), why
    assert "cannot be read: node1.duckdb" in run("show", "runs", db=folder, code=0).stdout
    with run_query(folder, "SELECT count(*) FROM steps") as question:
        answer = question.answer(wait_s=60.0)
    assert answer is not None
    assert answer.rows == ((4,),)


def test_a_damaged_table_of_one_file_is_named_and_the_rest_is_read(folder: Path) -> None:
    damage(rows.store(folder / "node3.duckdb", of := rows.run(host="node3"), rows.laptop(of)), "samples")
    broken = look_through(folder).broken
    assert "node3.duckdb, table samples" in broken
    if "node3.duckdb, table steps" not in broken and "node3.duckdb, table runs" not in broken:
        assert hosts(folder)["node3"] == 29
    assert hosts(folder)["node2"] == 3


def test_where_nothing_can_be_read_the_reason_is_raised(tmp_path: Path) -> None:
    with pytest.raises(DatabaseMissing, match="has no results file"), open_reader(tmp_path):
        pass
    (tmp_path / "a.duckdb").write_bytes(b"nothing")
    with pytest.raises(StoreError, match=r"a\.duckdb is not a results file"), open_reader(tmp_path):
        pass


@pytest.mark.soak
def test_nothing_is_added_to_a_fleet(folder: Path, merged: Path) -> None:
    before = sorted(os.listdir(folder.parent))
    imports = (["import", str(merged)], ["import", str(merged), str(merged)])
    for words in (["sweep", *TINY], ["sweep", "--experiment", "frontier"], *imports):
        assert "names several results files" in run(*words, db=folder, code=2).stdout
    assert sorted(os.listdir(folder.parent)) == before
    with pytest.raises(UsageError):
        ingest(folder)
