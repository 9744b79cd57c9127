"""Traces of torch.profiler become the rows that own profiles have: one written by hand, and real ones."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from runner.answers import ask
from runner.errors import UsageError
from runner.importers.files import import_file
from runner.store.read import read as read_rows
from runner.store.read.selection import Selection
from tests.synthetic.stored import read

CASES = Path(__file__).parents[2] / "cases" / "traces"

GEMM, COPY, NCCL = "ampere_sgemm_128x64_tn", "Memcpy HtoD (Pinned -> Device)", "ncclDevKernel_AllReduce_Sum_f32"


def event(cat: str, name: str, ts: float, dur: float, *, tid: int = 1, **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 0, "tid": tid, "args": args}


def launched(number: int, ts: float, *, tid: int = 1, name: str = GEMM, at: float, dur: float) -> list[dict[str, Any]]:
    """Returns an operator, its launch at `ts` and what ran at `at` (µs)."""
    kind = "gpu_memcpy" if name == COPY else "kernel"
    return [
        event("cpu_op", "aten::mm", ts - 1, 5, tid=tid, **{"External id": number}),
        event("cuda_runtime", "cudaLaunchKernel", ts, 2, tid=tid, correlation=number),
        event(kind, name, at, dur, tid=7, correlation=number, **{"External id": number}),
    ]


def a_step(number: int, begin: float) -> list[dict[str, Any]]:
    """A step of 1,000 µs: two products forward, one in `attention`; backward by another thread; the optimizer."""
    first = 100 * number
    return [
        event("user_annotation", f"ProfilerStep#{number}", begin, 1000),
        event("user_annotation", "attention", begin + 50, 50),
        *launched(first + 1, begin + 10, at=begin + 20, dur=100),
        *launched(first + 2, begin + 60, at=begin + 130, dur=50),
        event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", begin + 200, 100, tid=2),
        *launched(first + 3, begin + 210, tid=2, at=begin + 220, dur=200),
        *launched(first + 4, begin + 250, tid=2, name=NCCL, at=begin + 400, dur=70),
        event("user_annotation", "Optimizer.step#AdamW.step", begin + 500, 100),
        *launched(first + 5, begin + 510, name="adam", at=begin + 520, dur=30),
        *launched(first + 6, begin + 700, name=COPY, at=begin + 710, dur=10),
    ]


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    text = json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": events, "traceName": "t"})
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["eager", "compiled", "cuda-graph", "transformers"])
def test_a_recorded_trace_has_the_times_that_torch_says(tmp_path: Path, name: str) -> None:
    """Three training steps on an H100, beside the calls and times (µs) of `key_averages()`, which no file of ours made.
    Without ranges of their own, the phases of a module's pass are those of autograd and the optimizer."""
    db, averages = tmp_path / "own.duckdb", json.loads((CASES / "averages.json").read_text())[name]
    import_file(CASES / f"{name}.json.gz", db=db)
    assert read(db, "SELECT steps FROM traces") == [(3,)]
    named = read(db, "SELECT device, device_name, device_memory_bytes FROM runs")
    assert named == [("cuda", "NVIDIA H100 80GB HBM3", 85_017_493_504)]
    ran = read(db, "SELECT kernel, 3 * sum(calls), 3000 * sum(device_ms) FROM kernels GROUP BY kernel")
    moved = [us for kernel, _, us in ran if kernel.startswith("[CUDA")]
    assert sum(moved) == pytest.approx(sum(us for kernel, (_, us) in averages.items() if kernel.startswith("Mem")))
    found = {kernel: (calls, us) for kernel, calls, us in ran if not kernel.startswith("[CUDA")}
    ranges = ("forward", "loss", "backward", "optimizer", "Optimizer.step#AdamW.step", "ProfilerStep", "Mem")
    assert found == {
        kernel: (pytest.approx(calls), pytest.approx(us, rel=1e-3))
        for kernel, (calls, us) in averages.items()
        if not kernel.startswith(ranges)
    }


def test_two_traces_are_compared_by_kernel(db: Path) -> None:
    for name in ("eager", "compiled"):
        import_file(CASES / f"{name}.json.gz", db=db)
    answer = ask("traces", read_rows(db, Selection(), ("imported",)), {"against": "eager.json.gz"})
    compared, phases, _ = answer.views
    assert answer.sentence.startswith("A step of **compiled.json.gz** takes **0.567 ms** of GPU time")
    assert [row.values[0] for row in phases.rows if row.values[1] == "total"] == [
        "forward", "loss", "backward", "optimizer",
    ]  # fmt: skip
    averages = json.loads((CASES / "averages.json").read_text())
    (fused,) = [row for row in compared.rows if "FusedAdamMath" in row.values[0]]
    a, b = (averages[name][compared.get(fused, "whole_name")][1] for name in ("compiled", "eager"))
    assert compared.get(fused, "ratio") == pytest.approx(a / b, rel=1e-3)
    assert {compared.ended(row) for row in compared.rows} == {"", "only in A", "only in B"}


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_of_a_gpu(tmp_path: Path, db: Path, name: str) -> None:
    """Two steps, of 450 µs of kernels each; 20 of the backward product overlap with communication, and 10 are copied,
    so that the device is busy for 440. Gaps: 10 + 40 + 50 + 160 within a step, and 300 between the two."""
    early = launched(999, 5.0, at=10, dur=50)
    report = import_file(write(tmp_path / name, [*early, *a_step(1, 1e4), *a_step(2, 1.1e4)]), db=db)
    assert "the device is busy for 44% of a step of 1.000 ms" in report.lines[0]
    assert "1 kernels were launched outside of every ProfilerStep" in report.lines[1]
    columns = "origin, steps, kernels, round(kernel_ms, 6), step_ms, round(busy_ms, 6), round(gap_ms, 6)"
    assert read(db, f"SELECT {columns} FROM traces") == [("torch-profiler", 2, 5, 0.45, 1.0, 0.44, 0.41)]
    ran = read(db, "SELECT phase, scope, kernel, kernel_class, calls, round(device_ms, 6), operator FROM kernels")
    assert {kernel for *_, kernel, kind, _, _, _ in ran if kind == "communication"} == {NCCL}
    assert {(phase, scope, kernel): (calls, ms, by) for phase, scope, kernel, _, calls, ms, by in ran} == {
        ("forward", "", GEMM): (1, 0.1, "aten::mm"),
        ("forward", "attention", GEMM): (1, 0.05, "aten::mm"),
        ("backward", "", GEMM): (1, 0.2, "aten::mm"),
        ("backward", "", NCCL): (1, 0.07, "aten::mm"),  # which is communication
        ("optimizer", "", "adam"): (1, 0.03, "aten::mm"),
        ("forward", "", "[CUDA memcpy Host-to-Device]"): (1, 0.01, "aten::mm"),
    }


def test_ranks_of_one_folder_are_traces_of_one_run(tmp_path: Path) -> None:
    folder, db = tmp_path / "ranks", tmp_path / "own.duckdb"
    folder.mkdir()
    for rank in (0, 1):
        write(folder / f"rank{rank}.json.gz", a_step(1, 0.0))
    assert len(import_file(folder, db=db).lines) == 2
    (folder / "a.csv").write_text("size,forward (ms)\nsmall,2\n")
    (folder / "notes.md").write_text("Two ranks.")
    report = import_file(folder, db=tmp_path / "other.duckdb")
    assert [line.partition(": ")[0] for line in report.lines] == ["rank0.json.gz", "rank1.json.gz", "a.csv", "notes.md"]
    assert ("left out" in report.lines[-1], report.is_whole) == (True, False)
    assert read(db, "SELECT title FROM traces ORDER BY ALL") == [("rank0.json.gz",), ("rank1.json.gz",)]
    assert read(db, "SELECT label FROM runs") == [("ranks",)]


def test_broken_traces_are_one_error(tmp_path: Path) -> None:
    whole, on_cpu = json.dumps({"traceEvents": a_step(1, 0.0)}), {"traceEvents": [event("cpu_op", "aten::mm", 1, 5)]}
    for content, words in (
        (whole[:900], "an event that does not end"),
        ('{"schemaVersion": 1}', "no “traceEvents”"),
        (json.dumps(on_cpu), "a trace in which no kernel of a GPU ran"),
    ):
        path = tmp_path / "a.json"
        path.write_text(content)
        with pytest.raises(UsageError, match=words):
            import_file(path, db=tmp_path / "own.duckdb")
    (tmp_path / "b.json.gz").write_bytes(b"no gzip")
    with pytest.raises(UsageError, match="cannot be read"):
        import_file(tmp_path / "b.json.gz", db=tmp_path / "own.duckdb")
