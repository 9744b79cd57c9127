"""`python -m runner replay`: a cell measured again by a real sweep, its new row, and the verdict on its median."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.command import TINY, run, run_apart, tiny
from tests.command import rows as stored
from tests.synthetic import memory_rows, rows

T_2 = 4.3027  # Student's t for three rounds


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file after a sweep of two cells in three rounds."""
    path = tmp_path_factory.mktemp("replay") / "results.duckdb"
    done = run("sweep", *TINY, "--modes", "inference,train", "--rounds", "3", db=path)
    assert done.returncode == 0, done.stdout
    return path


def synthetic(path: Path, medians_ms: Sequence[float]) -> str:
    """Stores a tiny cell whose rounds had these medians on a machine that does not exist; returns its first id."""
    of = rows.run(torch="1.0.0")
    cells = []
    for number, median_ms in enumerate(medians_ms):
        found = rows.ok(of, tiny(), round=number)
        timings = tuple(replace(timing, median_ms=median_ms) for timing in found.timings)
        cells.append(replace(found, timings=timings))
    rows.store(path, of, cells)
    return str(cells[0].step.cell_id)


def test_the_same_cell_is_measured_again_under_a_run_of_its_own(db: Path) -> None:
    before = stored(db, "FROM steps WHERE mode = 'train' ORDER BY round")
    medians = [row["median_ms"] for row in stored(
        db, "SELECT median_ms FROM timings JOIN steps USING (cell_id) WHERE mode = 'train' AND phase = 'step'")
    ]  # fmt: skip
    wanted = before[1]
    done = run("replay", str(wanted["cell_id"]), db=db)
    (new,) = stored(db, f"FROM steps WHERE run_id <> '{wanted['run_id']}'")
    asked = ("cell_key", "context", "mode", "warmup_steps", "min_steps", "max_steps", "max_seconds")
    assert {name: new[name] for name in asked} == {name: wanted[name] for name in asked}
    assert (new["status"], new["round"]) == ("ok", 0)
    (started,) = stored(db, f"FROM runs WHERE run_id = '{new['run_id']}'")
    assert started["argv"].startswith(f"python -m runner replay {wanted['cell_id']}")
    assert (started["preset"], started["label"]) == (None, f"replay of {str(wanted['cell_id'])[:13]}")
    ((again,),) = (
        [row["median_ms"]] for row in stored(db, f"FROM timings WHERE cell_id = '{new['cell_id']}' AND phase = 'step'")
    )
    logs = [math.log(median) for median in medians]
    reach = T_2 * statistics.stdev(logs) * math.sqrt(4 / 3)
    inside = abs(math.log(again) - statistics.fmean(logs)) <= reach
    assert done.returncode == (0 if inside else 1), done.stdout
    assert ("It lands inside" in done.stdout) == inside
    assert f"The new row is {new['cell_id']}." in done.stdout
    assert "another machine" not in done.stdout
    assert "preset" not in done.stdout


def test_a_sweep_of_the_same_cell_does_not_go_on_with_the_run_of_a_replay(tmp_path: Path) -> None:
    path = tmp_path / "r.duckdb"
    assert run("sweep", *TINY, db=path).returncode == 0
    (row,) = stored(path, "FROM steps")
    assert run("replay", str(row["cell_id"])[:18], db=path).returncode == 0
    assert "unknown, because the cell was measured in one process" in run("replay", str(row["cell_id"]), db=path).stdout
    keys = {found["sweep_key"] for found in stored(path, "FROM runs")}
    assert len(keys) == 2
    assert "every cell is done" in run("sweep", *TINY, db=path).stdout


@pytest.mark.parametrize(
    ("medians", "code", "words"),
    [
        ((1e-3, 1.0, 1e3), 0, "It lands inside"),
        ((1e6, 1.01e6, 1.02e6), 1, "It lands outside, below"),
        ((1e-6, 1.01e-6, 1.02e-6), 1, "It lands outside, above"),
        ((5.0,), 0, "claims no interval"),
    ],
)
def test_the_exit_code_is_the_verdict_and_another_machine_is_named_first(
    tmp_path: Path, medians: Sequence[float], code: int, words: str
) -> None:
    path = tmp_path / "r.duckdb"
    done = run("replay", synthetic(path, medians), db=path)
    assert (done.returncode, words in done.stdout) == (code, True), done.stdout
    assert "This is another machine or another torch" in done.stdout
    assert done.stdout.index("Example CPU →") < done.stdout.index("takes")
    assert "torch (1.0.0 →" in done.stdout


def test_an_attention_cell_is_compared_by_both_passes(tmp_path: Path) -> None:
    path = tmp_path / "r.duckdb"
    words = "--experiment attention --attention naive --seq-lens 32 --d-heads 16 --batch 1 --precisions fp32 --steps 5"
    done = run(
        "sweep", *words.split(), "--max-steps", "5", "--warmup", "1", "--rounds", "1", "--device", "cpu", db=path
    )
    assert done.returncode == 0, done.stdout
    (row, *_) = stored(path, "FROM attention WHERE status = 'ok'")
    replayed = run("replay", str(row["cell_id"]), db=path)
    assert replayed.returncode == 0, replayed.stdout
    assert "The forward and backward takes" not in replayed.stdout
    assert "Forward and backward take" in replayed.stdout
    assert len(stored(path, f"FROM attention WHERE cell_key = '{row['cell_key']}'")) == 2


def test_what_is_not_there_or_not_one_is_one_clear_error(db: Path, tmp_path: Path) -> None:
    ids = [str(row["cell_id"]) for row in stored(db, "FROM steps ORDER BY cell_id")]
    before = len(ids)
    several = run("replay", ids[0][:6], db=db)
    assert several.returncode == 2
    assert f"{ids[0][:6]} is the beginning of several ids: {ids[0]} (toy-64 · 16 · " in several.stdout
    for wrong, words in (("ffff", "No cell has an id that begins with ffff"), ("toy-64", "'toy-64' is no cell")):
        done = run("replay", wrong, db=db)
        assert (done.returncode, words in done.stdout) == (2, True), done.stdout
    assert run("replay", "0", db=tmp_path / "none.duckdb").returncode == 2
    assert len(stored(db, "FROM steps")) == before, "nothing was measured"


def test_a_row_of_another_table_says_what_can_be_replayed(tmp_path: Path) -> None:
    path, of = tmp_path / "r.duckdb", rows.run()
    memory_rows.store(path, [memory_rows.memory(of, {"parameters": 2**20})])
    (row,) = stored(path, "FROM memory")
    done = run("replay", str(row["cell_id"]), db=path)
    assert done.returncode == 2
    assert "is a row of memory. Expected a row of steps or attention" in done.stdout


def test_a_device_that_is_missing_is_an_error_and_leaves_no_run(db: Path) -> None:
    (row, *_) = stored(db, "FROM steps WHERE mode = 'inference'")
    runs = len(stored(db, "FROM runs"))
    done = run_apart("replay", str(row["cell_id"]), "--device", "tpu", db=db)
    assert (done.returncode, "Traceback" in done.stdout) == (2, False), done.stdout
    assert len(stored(db, "FROM runs")) == runs
