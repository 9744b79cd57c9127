"""The same sweep on an NVIDIA GPU: its clock uses events, TF32 is a precision of its own, and peaks are the
allocator's.

pytest -m gpu
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from runner.analysis.costs.steps import parameter_count, step_flops
from runner.models.transformer import Transformer
from runner.schema import SUMS, ProfileCell
from runner.schema.sizes import SIZES
from tests.command import rows, run_apart, tiny
from tests.runner.models.test_model import check_compiled
from tests.synthetic.stored import read

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]
#: The preset with the fewest grids, whatever the device, so that a sweep contains only what a test asks for.
LAPTOP = ("--preset", "laptop", "--rounds", "1", "--device", "cuda")
TRAINED = (
    "--experiment benchmark --modes train --precisions fp32,tf32,bf16 --batch 4 --contexts 512 --steps 20 "
    "--max-steps 60 --max-seconds 3 --warmup 5"
)


def sweep(words: str, db: Path) -> None:
    run_apart("sweep", *LAPTOP, *words.split(), db=db, code=0)


@pytest.fixture(scope="module")
def swept(module_db: Path) -> Path:
    """Returns the file of eager toy and small cells, and the compiled toy."""
    for words in ("--sizes toy-256,small --backends eager", "--sizes toy-256 --backends compiled"):
        sweep(f"{TRAINED} {words}", module_db)
    return module_db


def cells(db: Path) -> list[dict[str, Any]]:
    found = rows(db, "FROM steps ORDER BY cell_id")
    assert [row["status"] for row in found] == ["ok"] * 9, [row["message"] for row in found]
    return found


def test_the_phases_add_up_to_the_step(swept: Path) -> None:
    """Events at the boundaries agree with the host's clock around the synchronized step."""
    for row in cells(swept):
        assert row["phase_sum_share"] == pytest.approx(1.0, abs=0.02), row
    assert {row["clock"] for row in rows(swept, "SELECT clock FROM timings WHERE phase <> 'step'")} == {"cuda-event"}


def test_precisions_really_differ(swept: Path) -> None:
    for row in cells(swept):
        assert row["matmul_precision"] == ("tf32" if row["precision"] == "tf32" else "ieee")
        assert row["logits_dtype"] == ("bfloat16" if row["precision"] == "bf16" else "float32")
    losses = {row["precision"]: row["loss"] for row in cells(swept) if row["d_model"] == 768}
    assert len(set(losses.values())) == 3, "three different precisions cannot agree to the last digit"


def test_peaks_are_those_of_the_allocator(swept: Path) -> None:
    for row in cells(swept):
        cell = tiny(**SIZES["small" if row["d_model"] == 768 else "toy-256"].numbers)
        assert row["parameters"] == parameter_count(cell)
        assert row["peak_allocated_bytes"] > 16 * row["parameters"], "weights, gradients and two moments in fp32"
        assert row["peak_reserved_bytes"] >= row["peak_allocated_bytes"]
        if row["backend"] == "eager":
            assert row["peak_allocated_bytes"] == pytest.approx(row["predicted_peak_bytes"], rel=0.1)


def test_compiled_cells_were_really_compiled(swept: Path) -> None:
    for row in cells(swept):
        if row["backend"] == "compiled":
            assert (row["recompiles"], row["compiler_fallback"]) == (0, False)
            assert row["compiled_gradient_error"] < 0.05
            assert row["compile_seconds"] > 0


def test_the_machine_is_the_gpu(swept: Path) -> None:
    for row in rows(swept, "SELECT device, device_name, device_memory_bytes, compute_capability, driver FROM runs"):
        assert row["device"] == "cuda"
        assert row["device_name"] == torch.cuda.get_device_name()
        assert row["device_memory_bytes"] == torch.cuda.get_device_properties(0).total_memory
        assert row["compute_capability"]
        assert row["driver"]


def test_out_of_memory_on_the_device_is_a_row(db: Path) -> None:
    words = "--experiment benchmark --sizes toy-64 --contexts 300000 --batch 1 --modes train --precisions fp32"
    sweep(f"{words} --backends eager --warmup 5 --max-steps 10", db)
    (row,) = rows(db, "SELECT status, failed_phase, message FROM steps")
    assert (row["status"], row["failed_phase"]) == ("oom", "forward")
    assert "out of memory" in row["message"]


def test_numerics_on_cuda(db: Path) -> None:
    """The four sums are a CPU's, each precision is coarser than the one before, and autocast follows CUDA's rules."""
    axes = f"--sums {','.join(SUMS)} --precisions fp32,tf32,bf16,fp16"
    sweep(f"--experiment numerics --sizes toy-256 --contexts 128 {axes}", db)
    totals = read(db, "SELECT total FROM accumulation ORDER BY accumulator, addend DESC, upcast")
    assert [f"{total:.9g}" for (total,) in totals] == ["9.953125", "10.0001335", "10.0021362", "10.0021362"]
    found = {row["precision"]: row for row in rows(db, "FROM numerics")}
    assert {row["reference"] for row in found.values()} == {"fp64"}
    errors = [found[name]["gradient_error"] for name in ("fp32", "tf32", "bf16")]
    assert 0 < errors[0] < 1e-5 < errors[1] < errors[2] < 0.1
    assert 1e-5 < found["fp16"]["gradient_error"] < found["bf16"]["gradient_error"]
    toy = "precision = 'fp16' AND dtypes.model = 'toy'"
    query = f"SELECT module, dtype FROM dtypes JOIN numerics USING (cell_id) WHERE {toy}"
    dtypes = dict(read(db, f"{query} AND part = 'output'"))
    assert dtypes == {"first": "float16", "relu": "float16", "layer_norm": "float32", "last": "float16"}
    assert {dtype for _, dtype in read(db, f"{query} AND part IN ('parameter', 'loss', 'gradient')")} == {"float32"}


def test_kernels_on_cuda(db: Path) -> None:
    """Kernels are attributed to their callers, also those of autograd's thread, and their FLOPs equal the formula's."""
    axes = "--modes inference,train --precisions fp32,bf16 --backends eager,compiled"
    sweep(f"--experiment kernels --sizes toy-256 --contexts 512 {axes}", db)
    found = rows(db, "FROM profiles")
    assert [row["status"] for row in found] == ["ok"] * 8, [row["message"] for row in found]
    for row in found:
        cell = ProfileCell(**{name: row[name] for name in ProfileCell.names()})
        kernels = rows(db, f"FROM kernels WHERE cell_id = '{row['cell_id']}'")
        phases = {"forward"} if cell.mode == "inference" else {"forward", "loss", "backward", "optimizer"}
        assert {kernel["phase"] for kernel in kernels} - {"unknown"} == phases
        assert row["attributed_share"] > 0.99
        assert row["kernel_ms"] == pytest.approx(sum(kernel["device_ms"] for kernel in kernels))
        assert 0 < row["busy_ms"] <= min(1.001 * row["kernel_ms"], 1.1 * row["profiled_step_ms"])
        assert row["host_bound_share"] == pytest.approx(max(1 - row["busy_ms"] / row["unprofiled_step_ms"], 0))
        products = [kernel for kernel in kernels if kernel["operator"] in ("aten::mm", "aten::bmm")]
        assert sum(kernel["flops"] or 0 for kernel in products) == step_flops(cell)
        if cell.backend == "eager":
            softmax = {
                (kernel["phase"], kernel["scope"]): kernel["calls"]
                for kernel in kernels
                if kernel["kernel_class"] == "softmax" and kernel["scope"] == "attention softmax"
            }
            backward = {} if cell.mode == "inference" else {("backward", "attention softmax"): cell.layers}
            assert softmax == {("forward", "attention softmax"): cell.layers, **backward}


GRAPHS = (
    "--experiment benchmark --sizes toy-256 --contexts 128 --backends eager,cuda-graphs --warmup 3 --steps 10 "
    "--max-steps 10"
)


@pytest.mark.parametrize(
    "words",
    [
        "--modes inference,forward,backward,train --precisions fp32,bf16",
        "--modes train --precisions bf16 --attention sdpa --optimizers fused,for-loop",
        "--modes train --precisions fp32 --checkpoint 1",
    ],
)
def test_cuda_graphs_compute_the_eager_step(words: str, db: Path) -> None:
    """After equally many steps from the same weights the loss is the same, and every phase is there."""
    sweep(f"{GRAPHS} {words}", db)
    found = rows(db, "FROM steps")
    assert {row["status"] for row in found} == {"ok"}, [row["message"] for row in found]
    key = ("mode", "precision", "optimizer", "checkpoint_blocks")
    pairs: dict[Any, dict[str, dict[str, Any]]] = {}
    for row in found:
        pairs.setdefault(tuple(row[name] for name in key), {})[row["backend"]] = row
    for pair in pairs.values():
        eager, graphs = pair["eager"], pair["cuda-graphs"]
        assert graphs["loss"] == pytest.approx(eager["loss"], rel=2e-3) if eager["loss"] else graphs["loss"] is None
        assert graphs["logits_dtype"] == eager["logits_dtype"]
        query = "SELECT phase FROM timings WHERE cell_id = '{}' ORDER BY phase"
        assert read(db, query.format(eager["cell_id"])) == read(db, query.format(graphs["cell_id"]))
    steps = "FROM timings JOIN steps USING (cell_id) WHERE phase = 'step'"
    ms = dict(read(db, f"SELECT backend, median(median_ms) {steps} GROUP BY backend"))
    assert ms["cuda-graphs"] < ms["eager"], "a toy's step is bound by the host"


def test_the_scaler_of_fp16_cannot_be_captured(db: Path) -> None:
    sweep(f"{GRAPHS} --modes forward,train --precisions fp16", db)
    ended = read(db, "SELECT mode, status FROM steps WHERE backend = 'cuda-graphs' ORDER BY mode")
    assert ended == [("forward", "ok"), ("train", "skipped")]


def test_every_compile_mode_has_a_cold_and_a_warm_time(db: Path) -> None:
    words = "--experiment compile --sizes toy-64 --contexts 128 --modes train --precisions bf16 --compile-cache empty"
    sweep(f"{words} --backends compiled,compiled-block,compiled-reduce-overhead --steps 10 --max-steps 10", db)
    for row in rows(db, "FROM steps"):
        assert row["status"] == "ok", row["message"]
        assert row["compile_cold_seconds"] > row["compile_warm_seconds"] > 0
        assert (row["graph_breaks"], row["recompiles"], row["compiler_fallback"]) == (0, 0, False)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:TensorFloat32 tensor cores")  # the compiler's own
@pytest.mark.parametrize(("precision", "attention"), [("fp32", "naive"), ("bf16", "naive"), ("bf16", "sdpa")])
def test_the_compiled_model_has_the_gradients_of_the_eager_one(precision: str, attention: str) -> None:
    sizes = SIZES["toy-256"].numbers | {"vocabulary": 2000}
    cell = tiny(**sizes, context=128, batch=4, precision=precision, attention=attention)
    torch.manual_seed(0)
    model = Transformer(cell, device="cuda")
    check_compiled(model, torch.compile(model), cell, error=1e-3 if precision == "fp32" else 0.05)
