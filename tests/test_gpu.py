"""The same sweep on an NVIDIA GPU: events for a clock, TF32 as a precision of its own, peaks by the allocator.

pytest -m gpu
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from runner.analysis.costs import parameter_count
from runner.sizes import SIZES
from tests.command import rows, run, tiny

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU"),
    pytest.mark.timeout(900),
]
WORDS = (
    "--experiment",
    "benchmark",
    "--modes",
    "train",
    "--precisions",
    "fp32,tf32,bf16",
    "--batch",
    "4",
    "--device",
    "cuda",
    "--steps",
    "20",
    "--max-steps",
    "60",
    "--max-seconds",
    "3",
)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eager toy and small cells, and the toy compiled."""
    db = tmp_path_factory.mktemp("gpu") / "results.duckdb"
    eager = run("sweep", *WORDS, "--sizes", "toy-256,small", "--contexts", "512", "--backends", "eager", db=db)
    assert eager.returncode == 0, eager.stdout
    compiled = run("sweep", *WORDS, "--sizes", "toy-256", "--contexts", "512", "--backends", "compiled", db=db)
    assert compiled.returncode == 0, compiled.stdout
    return db


def cells(db: Path) -> list[dict[str, Any]]:
    found = rows(db, "FROM steps ORDER BY cell_id")
    assert [row["status"] for row in found] == ["ok"] * 9, [row["message"] for row in found]
    return found


def test_the_phases_add_up_to_the_step(swept: Path) -> None:
    """Events at the boundaries against the host's clock around the synchronized step: two clocks, one answer."""
    for row in cells(swept):
        assert row["phase_sum_share"] == pytest.approx(1.0, abs=0.02), (
            row["d_model"],
            row["precision"],
            row["backend"],
        )
    assert {row["clock"] for row in rows(swept, "SELECT clock FROM timings WHERE phase <> 'step'")} == {"cuda-event"}


def test_precisions_are_what_they_are_called(swept: Path) -> None:
    for row in cells(swept):
        assert row["matmul_precision"] == ("tf32" if row["precision"] == "tf32" else "ieee")
        assert row["logits_dtype"] == ("bfloat16" if row["precision"] == "bf16" else "float32")
    losses = {row["precision"]: row["loss"] for row in cells(swept) if row["d_model"] == 768}
    assert len(set(losses.values())) == 3, "three precisions that agree to the last digit are one"


def test_peaks_are_those_of_the_allocator(swept: Path) -> None:
    for row in cells(swept):
        cell = tiny(**SIZES["small" if row["d_model"] == 768 else "toy-256"].numbers)
        assert row["parameters"] == parameter_count(cell)
        assert row["peak_allocated_bytes"] > 16 * row["parameters"], "weights, gradients and two moments in fp32"
        assert row["peak_reserved_bytes"] >= row["peak_allocated_bytes"]
        if row["backend"] == "eager":
            assert row["peak_allocated_bytes"] == pytest.approx(row["predicted_peak_bytes"], rel=0.1)


def test_compiled_cells_were_compiled(swept: Path) -> None:
    for row in cells(swept):
        if row["backend"] == "compiled":
            assert (row["recompiles"], row["compiler_fallback"]) == (0, False)
            assert row["compile_seconds"] > 0


def test_the_machine_is_the_gpu(swept: Path) -> None:
    for row in rows(swept, "SELECT device, device_name, device_memory_bytes, compute_capability, driver FROM runs"):
        assert row["device"] == "cuda"
        assert row["device_name"] == torch.cuda.get_device_name()
        assert row["device_memory_bytes"] == torch.cuda.get_device_properties(0).total_memory
        assert row["compute_capability"]
        assert row["driver"]


def test_more_than_the_device_has_is_a_row(tmp_path: Path) -> None:
    words = (
        "--experiment",
        "benchmark",
        "--sizes",
        "toy-64",
        "--contexts",
        "300000",
        "--batch",
        "1",
        "--modes",
        "train",
        "--precisions",
        "fp32",
        "--backends",
        "eager",
        "--device",
        "cuda",
    )
    assert run("sweep", *words, db=tmp_path / "r.duckdb").returncode == 0
    (row,) = rows(tmp_path / "r.duckdb", "SELECT status, failed_phase, message FROM steps")
    assert (row["status"], row["failed_phase"]) == ("oom", "forward")
    assert "out of memory" in row["message"]
