"""The rates that a machine can reach, as a sweep measures them: when, how exactly, and if measuring fails.

The rates are compared with numpy's product and copy on the same machine: another library and another clock give the
same order of magnitude.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from runner.engines.local import LocalEngine
from runner.job import CeilingJob
from runner.measure import ceilings
from runner.measure.ceilings import measure_ceilings
from runner.schema import new_id
from tests.command import TINY, parsed, rows, run

ALL = ["copy", "matmul bf16", "matmul fp16", "matmul fp32"]


def best(work: Callable[[], object]) -> float:
    """Returns the shortest time of repeating for a second (s), because others may slow down most repetitions."""
    times, ends = list[float](), time.monotonic() + 1
    while len(times) < 5 or time.monotonic() < ends:
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


@pytest.mark.soak
def test_ceilings_are_measured_at_the_start_and_the_end_and_are_those_of_this_machine(db: Path) -> None:
    """A sweep whose time is up before its first cell, and which is then started again."""
    query = "FROM ceilings ORDER BY moment DESC, name"
    run("sweep", *TINY, "--ceilings", "--budget", "0.01s", db=db, code=1)
    assert {row["moment"] for row in rows(db, query)} == {"start"}, "an interrupted sweep has no ceilings at its end"
    assert "not measured" not in run("sweep", *TINY, "--ceilings", db=db, code=0).stdout
    found = rows(db, query)
    assert [(row["moment"], row["name"]) for row in found] == [
        (moment, name) for moment in ("start", "end") for name in ALL
    ]
    (of,) = rows(db, "SELECT run_id FROM runs")
    for row in found:
        assert row["run_id"] == of["run_id"]
        assert (row["flops_per_s"] is None) == (row["name"] == "copy") == (row["bytes_per_s"] is not None)
        assert row["precision"] == (None if row["name"] == "copy" else row["name"].split()[1])
        assert row["interval_share"] >= 0
        assert row["datasheet"] is row["datasheet_flops_per_s"] is row["datasheet_bytes_per_s"] is None
    rates = {(row["moment"], row["name"]): row["flops_per_s"] or row["bytes_per_s"] for row in found}
    matrix = np.random.default_rng(0).standard_normal((512, 512), dtype=np.float32)
    product = 2 * 512**3 / best(lambda: matrix @ matrix)
    source = np.ones(2**25, dtype=np.float32)
    target = np.zeros_like(source)
    copied = 2 * source.nbytes / best(lambda: np.copyto(target, source))
    for moment in ("start", "end"):  # a wrong unit is off by 1000; next to other tests a factor of ten was seen
        assert 0.01 < rates[moment, "matmul fp32"] / product < 100
        assert 0.01 < rates[moment, "copy"] / copied < 100


def test_the_flag_for_ceilings() -> None:
    assert parsed()[1].ceilings
    assert not parsed("--no-ceilings")[1].ceilings
    assert parsed("--ceilings")[1].ceilings


def test_a_device_that_fails_does_not_end_a_sweep() -> None:
    job = CeilingJob(run_id=new_id(), moment="start", device="cuda:99", device_name="none")
    answered = LocalEngine().ceilings(job)
    assert not answered.rows
    assert "exit code" in answered.missing["all"]


def test_a_ceiling_that_fails_does_not_affect_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "COPIED_BYTES", {"cpu": 2**55})
    monkeypatch.setattr(ceilings, "SECONDS", {"cpu": 0.001})
    job = CeilingJob(run_id=new_id(), moment="start", device="cpu", device_name="NVIDIA H200")
    answered = measure_ceilings(job)
    assert sorted(row.name for row in answered.rows) == ALL[1:]
    assert answered.missing.keys() == {"copy"}
    promised = {row.name: row.datasheet_flops_per_s for row in answered.rows}
    assert promised == {"matmul fp32": 67e12, "matmul bf16": 989.5e12, "matmul fp16": 989.5e12}
    assert {row.datasheet for row in answered.rows} == {"NVIDIA H200 Tensor Core GPU datasheet"}
