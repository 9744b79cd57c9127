"""Which file the app reads: the reader's own, or the shipped reference rows as long as there is none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runner.places import list_files
from runner.store.checking import check_file
from runner.store.packing import (
    choose_file,
    describe_reference,
    find_file,
    find_reference,
    is_reference,
    unpack,
    with_article,
)
from runner.store.read.runs import load_contents
from tests.command import ROOT, execute, run
from tests.synthetic import rows
from tests.synthetic.reference import DEVICE, pack_reference
from tests.synthetic.stored import read

SHIPPED = ROOT / "data/reference/h200"
MAX_BYTES = 8 * 2**20
OWN = Path("data/results.duckdb")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_reference(tmp_path_factory.mktemp("reference") / "gpu")


@pytest.fixture(autouse=True)
def _elsewhere(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets up a reader who names no file, in a folder without one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPSCOPE_DB", raising=False)
    monkeypatch.setenv("STEPSCOPE_REFERENCE", str(packed))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_reference_is_read_until_the_first_cell(tmp_path: Path) -> None:
    """First there is no file, then a run without a cell, as a sweep starts, and then a first cell in the spool."""
    reference = choose_file()
    assert (is_reference(reference), reference.name) == (True, "reference-gpu.duckdb")
    assert load_contents(reference).runs[0].device_name == DEVICE
    of = rows.run()
    rows.store_tables(OWN, [{"runs": [of]}])
    assert load_contents(OWN).runs
    assert choose_file() == reference
    rows.spooled(OWN, of, rows.ok(of, rows.asked()))
    assert choose_file() == OWN
    assert not is_reference(OWN)


def test_a_named_file_is_read_instead_of_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_DB", "mine.duckdb")
    assert choose_file() == Path("mine.duckdb")
    assert find_file() == Path("mine.duckdb")
    assert not (tmp_path / "cache").exists(), "nothing may be built"


@pytest.mark.soak
def test_own_rows_are_compared_with_packed_ones(packed: Path) -> None:
    """A packed folder may stand in a list of files, so that a command compares two machines."""
    rows.store(OWN, of := rows.run(), [rows.ok(of, rows.asked())])
    both = find_file(Path(f"{OWN}:{packed}"))
    assert [file.name for file in list_files(both)] == ["results.duckdb", "reference-gpu.duckdb"]
    assert {run.device_name for run in load_contents(both).runs} == {of.device_name, DEVICE}
    assert DEVICE in run("compare", "machine:CPU", f"machine:{DEVICE}", db=Path(f"{OWN}:{packed}"), code=0).stdout


def test_without_a_reference_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", str(tmp_path)):
        monkeypatch.setenv("STEPSCOPE_REFERENCE", value)
        assert (choose_file(), find_reference()) == (OWN, None)


def test_an_unreadable_file_is_not_replaced_by_the_reference() -> None:
    OWN.parent.mkdir()
    OWN.write_text("these are no results")
    assert choose_file() == OWN


@pytest.mark.soak
def test_the_reference_is_built_once_a_content(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes build it at once. They and this one read the same file, and no other file is left."""
    script = "from runner.store.packing import choose_file; print(choose_file())"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    both = [subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE, text=True) for _ in "ab"]
    said = {process.communicate()[0].strip() for process in both}
    assert said == {str(choose_file())}
    built = Path(said.pop())
    state = built.stat()
    assert choose_file().stat().st_ino == state.st_ino
    assert [path.name for path in (tmp_path / "cache/stepscope").iterdir()] == [built.parent.name]
    assert [path.name for path in built.parent.iterdir()] == ["reference-gpu.duckdb"]
    other = pack_reference(tmp_path / "other/gpu")
    monkeypatch.setenv("STEPSCOPE_REFERENCE", str(other))
    assert choose_file().parent != built.parent
    assert {path.name for path in packed.iterdir()} == {path.name for path in other.iterdir()}, "and nothing more"


def test_the_same_rows_open_from_a_folder_of_another_name(packed: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(packed, tmp_path / "copy"))
    names = [find_file(folder).name for folder in (packed, copy, packed)]
    assert names == ["reference-gpu.duckdb", "reference-copy.duckdb", "reference-gpu.duckdb"]


def test_without_a_cache_the_reference_is_kept_for_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    script = "from runner.store.packing import choose_file as choose; print(choose(), choose().exists())"
    env = {"XDG_CACHE_HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path)}
    path, was_there = execute(sys.executable, "-c", script, cwd=tmp_path, env=env, code=0).stdout.split()
    assert (Path(path).parents[2], was_there) == (tmp_path, "True")
    assert not Path(path).exists()


def test_short_names_of_devices() -> None:
    for device, said in (("NVIDIA H200", "an"), ("AMD EPYC", "an"), ("Apple M4", "an"), ("Tesla V100", "a")):
        assert with_article(device) == f"{said} {device}"
    words = describe_reference(["NVIDIA H200", None, "NVIDIA H200", "Tesla V100"])
    assert words == "rows of an NVIDIA H200, a Tesla V100 that come with Stepscope, not of your machine."


def test_a_damaged_reference_is_ignored(packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = pack_reference(tmp_path / "broken/gpu")
    (broken / "timings.parquet").write_bytes(b"PAR1 and nothing more")
    monkeypatch.setenv("STEPSCOPE_REFERENCE", str(broken))
    assert choose_file() == OWN
    assert list((tmp_path / "cache/stepscope").iterdir()) == []


def test_the_shipped_rows(tmp_path: Path) -> None:
    """They are complete, pass `runner check`, were all measured, from no published report, and small enough for git."""
    assert sum(file.stat().st_size for file in SHIPPED.iterdir()) < MAX_BYTES
    unpack(SHIPPED, tmp_path / "h200.duckdb")
    found = check_file(tmp_path / "h200.duckdb")
    assert (found.problems, found.notes) == ((), ())
    runs = read(tmp_path / "h200.duckdb", "SELECT DISTINCT source, device, device_name FROM runs")
    assert runs == [("measured", "cuda", "NVIDIA H200")]
    assert read(tmp_path / "h200.duckdb", "SELECT cell_id FROM steps WHERE status = 'ok'")
