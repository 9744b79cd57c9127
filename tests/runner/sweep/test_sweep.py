"""Real sweeps of tiny cells in their own processes: the rows in the file, and what a second sweep does."""

import os
import platform
import shlex
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from runner.engines.engine import count_cores
from runner.errors import DatabaseMissing
from runner.plan.planning import plan
from runner.store.spool import Spool
from tests.command import TINY, awaited, ended, family, gone, parsed, rows, run, run_apart, start
from tests.synthetic.stored import change, read

#: 3 modes in 2 rounds.
WORDS = (
    *TINY,
    *shlex.split("--modes inference,backward,train --rounds 2 --warmup 2 --steps 7 --max-steps 7 --label 'two rounds'"),
)
#: 5 cells, for tests that interrupt or read during a sweep.
FIVE = (*TINY, "--contexts", "8,12,16,20,24")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "new folder" / "results.duckdb"
    assert "Measured: 6 ok" in run("sweep", *WORDS, db=path, code=0).stdout
    return path


def test_the_run_records_the_request_and_the_machine(swept: Path) -> None:
    (found,) = rows(swept, "FROM runs")
    assert (found["label"], found["preset"], found["source"]) == ("two rounds", "laptop", "measured")
    assert found["argv"].startswith("python -m runner sweep --experiment benchmark")
    assert (found["host"], found["device"], found["python"]) == (platform.node(), "cpu", platform.python_version())
    assert found["omp_wait_policy"] == "PASSIVE"


def test_every_cell_is_a_row_in_the_order_of_its_rounds(swept: Path) -> None:
    found = rows(swept, "SELECT cell_key, round, status, run_id, ingested_at FROM steps ORDER BY cell_id")
    wanted = plan(parsed(*WORDS)[0], device="cpu", device_memory_bytes=None, seed=platform.node())
    assert [(row["cell_key"], row["round"]) for row in found] == [(item.cell.key, item.round) for item in wanted]
    assert [row["round"] for row in found] == [0] * 3 + [1] * 3, "one round after the other"
    assert Counter(row["cell_key"] for row in found) == dict.fromkeys({row["cell_key"] for row in found}, 2)
    assert {row["status"] for row in found} == {"ok"}
    assert len({row["run_id"] for row in found}) == 1
    assert all(row["ingested_at"] for row in found)
    per_cell = "SELECT count(*), count(DISTINCT phase), min(n) FROM {} GROUP BY cell_id ORDER BY 1"
    assert read(swept, per_cell.format("timings")) == [(n, n, 7) for n in (2, 2, 5, 5, 6, 6)], "phases and their sums"
    samples = read(swept, per_cell.replace("min(n)", "count(*) FILTER (is_warmup)").format("samples"))
    assert samples == [(9 * n, n, 2 * n) for n in (2, 2, 5, 5, 6, 6)], "2 warm-up steps of each cell are kept"


def test_the_time_of_a_cell_includes_all_its_parts(swept: Path) -> None:
    for row in rows(swept, "FROM steps"):
        assert row["build_seconds"] + row["warmup_seconds"] + row["measure_seconds"] < row["cell_seconds"]
        assert row["omp_wait_policy"] == "PASSIVE"
        assert 0.0 <= row["other_cpu_share"] <= 1.0
        assert row["peak_resident_bytes"] is None or row["peak_resident_bytes"] > 2**20
        assert row["compile_seconds"] is row["recompiles"] is row["compiler_fallback"] is None


def test_a_second_sweep_measures_nothing_unless_fresh(swept: Path) -> None:
    before, words = swept.read_bytes(), (*WORDS, "--modes", "train", "--rounds", "1")
    assert "Nothing to measure" in run("sweep", *words, db=swept, code=0).stdout, "it asks for one of the 6 cells"
    assert swept.read_bytes() == before
    assert (Spool(swept).files(), Spool(swept).plans(), rows(swept, "FROM plan")) == ([], [], [])
    assert run("sweep", *words, "--fresh", db=swept).returncode == 0
    found = rows(swept, "SELECT run_id, count(*) AS cells FROM steps GROUP BY run_id ORDER BY run_id")
    assert [row["cells"] for row in found] == [6, 1], "the cell is measured again under a new run"


def test_cells_of_another_commit_are_done_if_that_is_said(swept: Path) -> None:
    change(swept, "UPDATE runs SET git_commit = '0123456789'")
    words = (*WORDS, "--modes", "train", "--rounds", "1")
    assert "1 cell" in run("sweep", *words, "--dry-run", db=swept).stdout
    assert "Nothing to measure" in run("sweep", *words, "--any-commit", db=swept, code=0).stdout
    third = run("sweep", *words[:-1], "3", "--any-commit", "--dry-run", db=swept)
    assert "3 cells" in third.stdout, "a third round at this commit would count alone"


@pytest.mark.soak
@pytest.mark.parametrize(
    "others",
    [{"OMP_NUM_THREADS": str(count_cores() + 1)}, {"MALLOC_MMAP_THRESHOLD_": "65536"}],
    ids=["threads", "allocator"],
)
def test_a_sweep_with_other_settings_is_another_sweep(swept: Path, others: dict[str, str]) -> None:
    if sys.platform != "linux" and "MALLOC_MMAP_THRESHOLD_" in others:
        pytest.skip("glibc's allocator")
    words = (*WORDS, "--modes", "train", "--rounds", "1", "--dry-run")
    assert "1 cell" in run_apart("sweep", *words, db=swept, env=others).stdout


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_a_step_keeps_its_memory_unless_the_user_says_otherwise(db: Path) -> None:
    words = (*TINY, "--contexts", "64", "--batch", "4", "--warmup", "3", "--fresh")
    for environment in ({}, {"MALLOC_MMAP_THRESHOLD_": "65536"}):
        run_apart("sweep", *words, db=db, env=environment, code=0)
    kept, returned = rows(db, "SELECT page_faults, allocator FROM steps JOIN runs USING (run_id) ORDER BY cell_id")
    assert "MALLOC_MMAP_THRESHOLD_=65536" in returned["allocator"]
    assert 5 * kept["page_faults"] < returned["page_faults"], "large blocks come from the system every time"


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_an_interrupted_sweep_continues_under_its_run(tmp_path: Path, number: signal.Signals) -> None:
    """Warm-up makes its cells long enough for the signal to arrive before the last one."""
    db, words = tmp_path / "results.duckdb", (*FIVE, "--warmup", "50")
    process = start("sweep", *words, db=db)
    awaited(process, lambda: len(load_visible(db)) >= 1)
    everyone = family(process)
    process.send_signal(number)
    output = ended(process)
    assert process.returncode == 130, output
    assert "Interrupted" in output
    assert "Traceback" not in output
    assert gone(everyone)
    kept = load_visible(db)
    assert 1 <= len(kept) < 5
    states = Counter(row["state"] for row in rows(db, "SELECT state FROM plan"))
    assert states["done"] <= len(kept)
    assert states.total() == 5, "the plan still shows the cells that are left"
    if number == signal.SIGTERM:
        return  # one of the signals is enough to test how the sweep continues
    assert f"{len(kept)} of them measured before" in run("sweep", *words, db=db, code=0).stdout
    every = rows(db, "SELECT cell_key, status, cell_id FROM steps ORDER BY cell_id")
    assert [row["cell_id"] for row in every[: len(kept)]] == [row["cell_id"] for row in kept]
    assert Counter(row["cell_key"] for row in every).most_common(1)[0][1] == 1
    assert [row["status"] for row in every] == ["ok"] * 5
    counts = rows(db, "SELECT count(DISTINCT run_id) AS n FROM steps UNION ALL SELECT count(*) FROM runs")
    assert counts == [{"n": 1}] * 2
    assert rows(db, "FROM plan") == []


def load_visible(db: Path) -> list[dict[str, Any]]:
    """Returns the cells that a reader sees; none before the file exists."""
    try:
        return rows(db, "SELECT cell_id FROM steps ORDER BY cell_id")
    except DatabaseMissing:
        return []


def test_out_of_budget_is_exit_1(db: Path) -> None:
    assert "The budget ran out" in run("sweep", *FIVE, "--budget", "0.3s", db=db, code=1).stdout
    assert len(load_visible(db)) < 5


@pytest.mark.soak
def test_a_reader_during_a_sweep_sees_complete_cells(db: Path) -> None:
    """Its cells take so long that the slowest reader sees the plan of several."""
    words = (*FIVE, "--steps", "300", "--max-steps", "300", "--max-seconds", "100")
    run("sweep", *words, "--budget", "0.3s", db=db)
    kept = len(load_visible(db))
    process = start("sweep", *words, db=db)
    count, beats, of_cell = 0, set(), "(SELECT count(*) FROM {} t WHERE t.cell_id = s.cell_id)"
    while process.poll() is None:
        time.sleep(0.1)
        try:
            cells = read(db, f"SELECT {of_cell.format('timings')}, {of_cell.format('samples')} FROM steps s")
        except DatabaseMissing:
            continue
        assert {*cells} <= {(6, 6 * 301)}, "complete or not there"
        assert len(cells) >= count, "no cell that was seen disappears"
        count = len(cells)
        owed = rows(db, "FROM plan ORDER BY position")
        if owed:
            assert [row["position"] for row in owed] == list(range(5))
            states = [row["state"] for row in owed]
            assert states == sorted(states, key=["done", "running", "waiting"].index)
            assert sum(row["state"] == "running" for row in owed) <= 1
            assert all(row["status"] == "ok" for row in owed if row["state"] == "done")
            beats.add(owed[0]["heartbeat_at"])
    assert process.communicate()[0].count(" ok ") == 5 - kept
    assert len(beats) > 1, "the plan is renewed while the sweep runs"
    assert None not in beats
    assert rows(db, "SELECT count(*) AS cells, count(DISTINCT run_id) AS runs FROM steps") == [{"cells": 5, "runs": 1}]


def test_a_cell_that_times_out_is_exit_1_and_tried_again(db: Path) -> None:
    words = (*TINY, "--steps", "10000000", "--max-steps", "10000000", "--max-seconds", "500", "--timeout", "1s")
    for tries in (1, 2):
        run("sweep", *words, db=db, code=1)
        found = rows(db, "SELECT status, failed_phase, context, message, steps FROM steps")
        assert [row["status"] for row in found] == ["timeout"] * tries
    assert found[0]["context"] == 16, "a failure keeps its whole key"
    assert found[0]["failed_phase"] in ("start", "build", "warm-up", "measure")
    assert (found[0]["steps"], "1 s" in found[0]["message"]) == (None, True)
    assert rows(db, "SELECT count(*) AS n FROM runs") == [{"n": 1}]


@pytest.mark.soak
def test_skipped_and_out_of_memory_cells_are_done(db: Path) -> None:
    words = (*TINY, "--precisions", "tf32,fp32", "--contexts", "300000")
    assert run("sweep", *words, db=db).returncode == 0
    found = rows(db, "SELECT precision, status, message FROM steps ORDER BY precision")
    assert [(row["precision"], row["status"]) for row in found] == [("fp32", "oom"), ("tf32", "skipped")]
    other = run("sweep", *words, "--contexts", "300000,400000", "--skip-predicted-oom", db=db, code=0)
    assert "4 cells, 2 of them measured before" in other.stdout
    (row,) = rows(db, "SELECT status, message, build_seconds FROM steps WHERE context = 400000 AND precision = 'fp32'")
    assert (row["status"], row["build_seconds"]) == ("skipped", None)
    assert "Predicted to need" in row["message"]


def test_a_file_of_another_program_is_left_unchanged(tmp_path: Path) -> None:
    db = tmp_path / "mine.duckdb"
    change(db, "CREATE TABLE steps_of_a_stair AS SELECT 17 AS height")
    before = db.read_bytes()
    done = run("sweep", *TINY, db=db, code=2)
    assert "error:" in done.stdout
    assert "Traceback" not in done.stdout
    assert db.read_bytes() == before
    assert os.listdir(tmp_path) == ["mine.duckdb"]


@pytest.mark.soak
def test_two_sweeps_measure_one_after_the_other(tmp_path: Path) -> None:
    files = [tmp_path / "one.duckdb", tmp_path / "two.duckdb"]
    both = [start("sweep", *FIVE, "--contexts", "8,16", "--precisions", "fp32", db=db) for db in files]
    outputs = [ended(process) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert any("waiting for it to end" in output for output in outputs)
    ended_at = "started_at + to_milliseconds(CAST(cell_seconds * 1000 AS BIGINT))"
    spans = sorted(read(db, f"SELECT min(started_at), max({ended_at}) FROM steps")[0] for db in files)
    assert spans[0][1] <= spans[1][0]
