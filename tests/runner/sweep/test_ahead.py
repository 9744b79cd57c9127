"""Compiling cells ahead of their turn, in real processes; a CPU's cores stand for the idle ones beside a GPU."""

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from runner.engines.local import Worker, compile_at_once
from runner.experiments.experiment import Prediction
from runner.job import CompileJob, Job
from runner.plan.planning import Planned
from runner.schema import AttentionCell, Cell, new_id
from runner.schema.steps import StepCell
from runner.sweep.ahead import choose_compiled, select_reached
from runner.sweep.prepare import Expected
from tests.command import ROOT, TINY, rows, tiny

Ends = Callable[[Connection], None]


def expected(cell: Cell, seconds: float = 1.0) -> Expected:
    return Expected(
        planned=Planned(cell=cell, experiment="compile", round=0),
        predicted=Prediction(step_flops=1, seconds=seconds, peak_bytes=1),
    )


def test_each_compilable_cell_is_compiled_once() -> None:
    compiled, carefully = tiny(backend="compiled"), tiny(backend="compiled", max_steps=9)
    tuned, eager = tiny(backend="compiled-max-autotune"), tiny()
    cold = tiny(backend="compiled", compile_cache="empty")
    attention = AttentionCell(
        implementation="naive", seq_len=64, d_head=16, precision="fp32", causal=True, backend="compiled"
    )
    chosen = choose_compiled(map(expected, (eager, compiled, carefully, tuned, cold, attention)))
    assert [item.planned.cell for item in chosen] == [compiled, cold, attention]


def test_the_longest_is_compiled_first() -> None:
    short, long = (tiny(backend="compiled", layers=layers) for layers in (1, 3))
    chosen = choose_compiled([expected(short, 2.0), expected(long, 9.0)])
    assert [item.planned.cell for item in chosen] == [long, short]


def test_only_cells_within_the_budget_are_compiled() -> None:
    cells = [expected(tiny(layers=layers), 10.0) for layers in (1, 2, 3)]
    assert select_reached(cells, budget_s=25.0) == cells[:2]
    assert select_reached(cells, budget_s=math.inf) == cells
    assert select_reached(cells, budget_s=9.0) == []


# ----------------------------------------------------------------------------------------------------- at the same time


def works(pipe: Connection) -> None:
    time.sleep(0.2)
    pipe.send(("compiled", 1500.0, True))


def is_killed(pipe: Connection) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuses(pipe: Connection) -> None:
    pipe.send(("refused", ValueError("no compiler")))


def hangs(pipe: Connection) -> None:
    time.sleep(600)


def compile_all(*ends: Ends, peak_bytes: int = 1, at_once: int = 2) -> tuple[list[str], int]:
    """Returns the names of the jobs that were compiled, and the largest number that ran at the same time. There is room
    for 10 bytes, and each job has 3 s."""
    jobs = {new_id(): end for end in ends}
    started: list[Worker] = []
    most = 0

    def start(job: CompileJob, log: Path) -> Worker:
        nonlocal most
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=jobs[job.job.cell_id], args=(theirs,))
        process.start()
        theirs.close()
        started.append(Worker(process=process, pipe=ours))
        most = max(most, sum(not worker.pipe.closed for worker in started))
        return started[-1]

    def job(number: int, cell_id: object) -> CompileJob:
        cell: StepCell = tiny(backend="compiled")
        made = Job(
            experiment="compile", cell=cell, run_id=new_id(), cell_id=[*jobs][number], device="cpu", device_name=""
        )
        return CompileJob(job=made, folder=Path(str(cell_id)), peak_bytes=peak_bytes)

    found = compile_at_once(
        [job(number, cell_id) for number, cell_id in enumerate(jobs)],
        start=start,
        at_once=at_once,
        room_bytes=10,
        timeout_s=3.0,
        beat=lambda ended: None,
    )
    assert all(worker.process.exitcode is not None for worker in started), "no process may be left running"
    assert all(known and known.first_ms == 1500.0 and known.folder.name == str(key) for key, known in found.items())
    return [jobs[key].__name__ for key in found], most


def test_cells_are_compiled_at_the_same_time_as_cores_and_memory_allow() -> None:
    assert compile_all(works, works, works) == (["works"] * 3, 2)
    assert compile_all(works, works, works, at_once=3) == (["works"] * 3, 3)
    assert compile_all(works, works, works, peak_bytes=5, at_once=3) == (["works"] * 3, 2), "10 bytes are room for two"
    assert compile_all(works, works, peak_bytes=11) == (["works"] * 2, 1), "a job that is too large is tried alone"


def test_a_cell_that_fails_ahead_is_compiled_in_its_turn() -> None:
    assert compile_all(is_killed, works, refuses, hangs) == (["works"], 2)


# ----------------------------------------------------------------------------------------------------------- in a sweep


#: Runs the command line as if this machine had two cores that nothing is measured on.
TWO_COMPILERS = """
import runpy
from unittest.mock import patch
with patch("runner.engines.local.count_compilers", lambda device: 2):
    runpy.run_module("runner", run_name="__main__", alter_sys=True)
"""

#: A compiler that keeps the time (s since the epoch) and the words of each of its calls.
LOGGED = """#!/bin/sh
echo "$(date +%s.%N) $*" >> {log}
exec g++ "$@"
"""


def compile_ahead(folder: Path, cache: str) -> tuple[list[dict[str, Any]], list[float]]:
    """Sweeps one forward pass with a loss and one without, compiled at the same time. Returns their rows and when each
    kernel was compiled (s since the epoch)."""
    compiler, log, cached, db = (folder / name for name in ("compiler", "log", "cache", "results.duckdb"))
    compiler.write_text(LOGGED.format(log=log))
    compiler.chmod(0o755)
    words = ("--modes", "inference,forward", "--backends", "compiled-block", "--compile-cache", cache, "--warmup", "2")
    done = subprocess.run(
        [sys.executable, "-c", TWO_COMPILERS, "sweep", *TINY, *words, "--attention", "sdpa", "--no-ceilings"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        env={**os.environ, "STEPSCOPE_DB": str(db), "CXX": str(compiler), "TORCHINDUCTOR_CACHE_DIR": str(cached)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "2 cells were compiled ahead of their turn" in done.stdout
    calls = [line.split() for line in log.read_text().splitlines()]
    kernels = [float(call[0]) for call in calls if any(word.endswith(".main.cpp") for word in call)]
    return rows(db, "SELECT *, epoch(started_at) AS began_s FROM steps"), kernels


@pytest.mark.soak
def test_cells_compiled_ahead_have_cold_and_warm_compile_times(tmp_path: Path) -> None:
    compiled, kernels = compile_ahead(tmp_path, "empty")
    assert 0 < max(kernels) < min(row["began_s"] for row in compiled), "none was compiled again in its turn"
    assert [row["compiled_at_once"] for row in compiled] == [2, 2], "both cells were compiled at once"
    for row in compiled:
        assert row["compile_cold_seconds"] == row["compile_seconds"] > row["compile_warm_seconds"] > 0
        assert (row["graphs"], row["recompiles"], row["compiler_fallback"]) == (1, 0, False)


@pytest.mark.soak
def test_a_cell_with_the_shared_cache_uses_what_was_compiled_ahead(tmp_path: Path) -> None:
    compiled, kernels = compile_ahead(tmp_path, "shared")
    assert 0 < max(kernels) < min(row["began_s"] for row in compiled), "none was compiled again in its turn"
    assert {(row["status"], row["compile_cache"], row["compiled_at_once"]) for row in compiled} == {
        ("ok", "shared", None)
    }
    assert not [*(tmp_path / "cache").rglob("*.best_config")], "nothing was tuned"
