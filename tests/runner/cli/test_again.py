"""`sweep --again` measures a cell again: a real sweep, its new row, and the verdict on its median."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from runner.analysis.statistics import next_process_interval
from runner.store.read.runs import load_progress
from runner.store.read.timed import find_timed
from runner.store.spool import Spool
from tests.command import TINY, run, run_apart, tiny
from tests.command import rows as stored
from tests.synthetic import memory_rows, rows
from tests.synthetic.stored import read

#: Student's t, two-sided 95%, for four degrees of freedom.
T_4 = 2.7764


@pytest.fixture(scope="module")
def swept(module_db: Path) -> Path:
    """Returns the file after a sweep of two cells in three rounds."""
    run("sweep", *TINY, "--modes", "inference,train", "--rounds", "3", db=module_db, code=0)
    return module_db


def with_median(of: rows.Rows, median_ms: float) -> rows.Rows:
    """Returns the cell with this median in every phase; its samples differ from it by less than a millionth."""
    low, high = median_ms * (1 - 1e-6), median_ms * (1 + 1e-6)
    timings = (replace(found, median_ms=median_ms, low_ms=low, high_ms=high) for found in of.timings)
    return replace(of, timings=tuple(timings))


def synthetic(path: Path, medians_ms: Sequence[float]) -> str:
    """Stores a tiny cell whose rounds had these medians, on a machine that does not exist. Returns its first id."""
    of = rows.run(torch="1.0.0")
    cells = [with_median(rows.ok(of, tiny(), round=number), ms) for number, ms in enumerate(medians_ms)]
    rows.store(path, of, cells)
    return str(cells[0].step.cell_id)


def logs_of(path: Path, mode: str) -> list[float]:
    """Returns the logarithms of the medians of the rounds in the file."""
    found = f"FROM timings JOIN steps USING (cell_id) WHERE mode = '{mode}' AND phase = 'step'"
    return [math.log(ms) for (ms,) in read(path, f"SELECT median_ms {found}")]


@pytest.mark.soak
def test_the_new_row_is_one_more_round_of_the_run_it_was_compared_with(swept: Path) -> None:
    before = stored(swept, "FROM steps WHERE mode = 'train' ORDER BY round")
    logs, others = logs_of(swept, "train"), logs_of(swept, "inference")
    wanted = before[1]
    done = run("sweep", "--again", str(wanted["cell_id"]), db=swept)
    rows_now = stored(swept, "FROM steps WHERE mode = 'train' ORDER BY round")
    assert rows_now[:3] == before
    (new,) = rows_now[3:]
    asked = ("run_id", "cell_key", "context", "mode", "warmup_steps", "min_steps", "max_steps", "max_seconds")
    assert {name: new[name] for name in asked} == {name: wanted[name] for name in asked}
    assert (new["status"], new["round"]) == ("ok", 3)
    assert len(stored(swept, "FROM runs")) == 1
    # Both cells were measured in three rounds. Their 4 degrees of freedom count as 2 for the noise of the machine.
    noise = (statistics.variance(logs) + statistics.variance(others)) / 2
    std = math.sqrt((2 * statistics.variance(logs) + 2 * noise) / 4)
    ((again,),) = read(swept, f"SELECT median_ms FROM timings WHERE cell_id = '{new['cell_id']}' AND phase = 'step'")
    inside = abs(math.log(again) - statistics.fmean(logs)) <= T_4 * std * math.sqrt(4 / 3)
    assert done.returncode == (0 if inside else 1), done.stdout
    assert ("It lands inside" in done.stdout) == inside
    assert f"The new row is {new['cell_id']}, one more round of that run." in done.stdout
    assert "another machine" not in done.stdout
    assert "preset" not in done.stdout


@pytest.mark.soak
def test_measuring_again_keeps_the_plan_of_an_interrupted_sweep(db: Path) -> None:
    assert run("sweep", *TINY, db=db).returncode == 0
    (row,) = stored(db, "FROM steps")
    of = replace(rows.run(), run_id=row["run_id"])
    Spool(db).write_plan(rows.plan(of, ["measured", "owed"], done=1), run_id=of.run_id)
    assert run("sweep", "--again", str(row["cell_id"]), db=db).returncode == 0
    assert [found.total for found in load_progress(db)] == [2]


@pytest.mark.soak
def test_a_sweep_of_the_same_cell_is_still_done_after_measuring_again(db: Path) -> None:
    assert run("sweep", *TINY, db=db).returncode == 0
    (row,) = stored(db, "FROM steps")
    first = run("sweep", "--again", str(row["cell_id"])[:18], db=db)
    assert (first.returncode, "unknown, because the cell was measured in one process" in first.stdout) == (0, True)
    assert "(the mean of 2 processes)" in run("sweep", "--again", str(row["cell_id"]), db=db).stdout
    assert len(stored(db, "FROM runs")) == 1
    assert [found["round"] for found in stored(db, "FROM steps ORDER BY cell_id")] == [0, 1, 2]
    assert "every cell is done" in run("sweep", *TINY, db=db).stdout


def test_a_cell_of_one_process_has_the_interval_of_its_machines_noise(tmp_path: Path) -> None:
    """Another cell in three rounds has a std of 0.2 in ln(median), and 1 degree of freedom, so t is 12.706."""
    path, of = tmp_path / "r.duckdb", rows.run(torch="1.0.0")
    cells = [rows.ok(of, tiny(context=32), round=number) for number in range(3)] + [rows.ok(of, tiny())]
    medians = (10 * math.exp(-0.2), 10.0, 10 * math.exp(0.2), 5.0)
    rows.store(path, of, [with_median(cell, ms) for cell, ms in zip(cells, medians, strict=True)])
    _, times = find_timed(path, str(cells[-1].step.cell_id))
    interval = next_process_interval(times["step"].step)
    reach = math.exp(12.706 * 0.2 * math.sqrt(2))
    assert interval == pytest.approx((5.0 / reach, 5.0 * reach), rel=1e-3)
    done = run("sweep", "--again", str(cells[-1].step.cell_id), db=path, code=0)
    assert "It lands inside" in done.stdout
    assert "from the noise that 1 cell repeated on that machine showed" in done.stdout


@pytest.mark.parametrize(
    ("medians", "code", "words"),
    [
        ((2.0, 5.0, 12.5), 0, "It lands inside"),
        ((1e6, 1.01e6, 1.02e6), 1, "It lands outside, below"),
        pytest.param((1e-6, 1.01e-6, 1.02e-6), 1, "It lands outside, above", marks=pytest.mark.soak),
        ((5.0,), 0, "claims no interval"),
    ],
)
def test_the_exit_code_is_the_verdict_and_another_machine_is_named(
    db: Path, medians: Sequence[float], code: int, words: str
) -> None:
    done = run("sweep", "--again", synthetic(db, medians), db=db, code=code)
    assert words in done.stdout
    assert "This is another machine or another torch" in done.stdout
    assert done.stdout.index("Example CPU →") < done.stdout.index("takes")
    assert "(1.0.0 →" in done.stdout
    assert "in a run of its own" in done.stdout
    synthetic_run, own = stored(db, "FROM runs ORDER BY run_id")
    (new,) = stored(db, f"FROM steps WHERE run_id = '{own['run_id']}'")
    assert (new["round"], len(stored(db, "FROM steps"))) == (0, len(medians) + 1)
    assert own["argv"].startswith("python -m runner sweep --again ")
    assert own["label"].endswith(" again")
    assert own["sweep_key"] != synthetic_run["sweep_key"]


@pytest.mark.soak
def test_an_attention_cell_is_compared_by_the_time_of_both_passes(db: Path) -> None:
    words = "--experiment attention --attention naive --seq-lens 32 --d-heads 16 --batch 1 --precisions fp32 --steps 5"
    run("sweep", *words.split(), "--max-steps", "5", "--warmup", "1", "--rounds", "1", "--device", "cpu", db=db, code=0)
    (row, *_) = stored(db, "FROM attention WHERE status = 'ok'")
    replayed = run("sweep", "--again", str(row["cell_id"]), db=db, code=0)
    assert "The forward and backward takes" not in replayed.stdout
    assert "Forward and backward take" in replayed.stdout
    assert len(stored(db, f"FROM attention WHERE cell_key = '{row['cell_key']}'")) == 2


def test_a_missing_or_ambiguous_cell_is_one_clear_error(swept: Path, tmp_path: Path) -> None:
    ids = [str(row["cell_id"]) for row in stored(swept, "FROM steps ORDER BY cell_id")]
    before = len(ids)
    assert "runs and cells begin so" in run("sweep", "--again", ids[0][:6], db=swept, code=2).stdout
    for wrong, words in (("ffff", "'ffff': no run or cell is called so"), ("toy-64", "no run or cell is called so")):
        assert words in run("sweep", "--again", wrong, db=swept, code=2).stdout
    assert run("sweep", "--again", "0", db=tmp_path / "none.duckdb").returncode == 2
    assert len(stored(swept, "FROM steps")) == before, "nothing was measured"


def test_a_row_of_another_table_is_refused(tmp_path: Path) -> None:
    path, of = tmp_path / "r.duckdb", rows.run()
    rows.store_tables(path, [memory_rows.memory(of, {"parameters": 2**20})])
    (row,) = stored(path, "FROM memory")
    done = run("sweep", "--again", str(row["cell_id"]), db=path, code=2)
    assert "is no row of steps or attention" in done.stdout
    assert "`python -m runner sweep --fresh`" in " ".join(done.stdout.split())


@pytest.mark.soak
def test_a_device_that_is_missing_is_an_error_and_leaves_no_run(swept: Path) -> None:
    (row, *_) = stored(swept, "FROM steps WHERE mode = 'inference'")
    runs = len(stored(swept, "FROM runs"))
    words = ("sweep", "--again", str(row["cell_id"]), "--device", "tpu")
    assert "Traceback" not in run_apart(*words, db=swept, code=2).stdout
    assert len(stored(swept, "FROM runs")) == runs
