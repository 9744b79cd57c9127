"""Counts of CUDA's allocator, compared with the predictions for CUDA; skipped without an NVIDIA GPU."""

from pathlib import Path
from typing import Any

import pytest
import torch

from runner.analysis.costs import attention, steps
from runner.engines.local import LocalEngine
from runner.job import Outcome
from runner.schema import AttentionCell, MemoryCell
from runner.schema.sizes import size_named
from tests.command import make_job, rows, run_apart

pytestmark = pytest.mark.gpu


def outcome(engine: LocalEngine, experiment: str, cell: AttentionCell | MemoryCell) -> Outcome:
    job = make_job(cell, experiment=experiment, device="cuda", device_name=torch.cuda.get_device_name())
    found = engine.measure(job, timeout_s=300)
    assert found.status == "ok", found.message
    return found


WAYS = [("naive", "fp32"), ("naive", "bf16"), ("sdpa-math", "bf16"), ("sdpa-flash", "bf16"), ("sdpa-efficient", "fp32")]


@pytest.mark.parametrize(("implementation", "precision"), WAYS)
def test_the_bytes_of_attention_are_as_predicted(engine: LocalEngine, implementation: Any, precision: Any) -> None:
    # Tensors under 10 MiB share segments of 20 MiB, which would decide what a fused kernel without squares reserves.
    seq_len = 2048 if implementation in ("naive", "sdpa-math") else 16_384
    cell = AttentionCell(implementation=implementation, precision=precision, batch=8, seq_len=seq_len, d_head=64,
                         warmup_steps=2, min_steps=3, max_steps=3)  # fmt: skip
    found = outcome(engine, "attention", cell).measurement
    gpu = torch.cuda.get_device_name()
    predicted = attention.predicted_peak_bytes(cell, device="cuda", gpu=gpu)
    assert found.values["saved_bytes"] == attention.saved_bytes(cell, device="cuda")
    assert found.values["peak_allocated_bytes"] == pytest.approx(predicted, rel=0.001)
    reserved = attention.predicted_reserved_bytes(cell, gpu=gpu)
    assert found.values["peak_reserved_bytes"] == pytest.approx(reserved, rel=0.15)
    kept: Any = found.details["saved_tensors"]
    assert sum(row.storage_bytes for row in kept) == found.values["saved_bytes"]


@pytest.mark.parametrize(
    ("mode", "context", "checkpoint_blocks"),
    [("inference", 128, 0), ("forward", 128, 0), ("train", 128, 0), *(("train", 512, blocks) for blocks in (0, 1, 4))],
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_step_is_as_predicted(
    engine: LocalEngine, mode: Any, context: int, checkpoint_blocks: int, precision: Any
) -> None:
    """Every part agrees to a few KiB, because the allocator rounds up; a checkpointed block reports what it saves in
    its second run."""
    shape: dict[str, Any] = size_named("small").numbers
    cell = MemoryCell(**shape, context=context, mode=mode, precision=precision, checkpoint_blocks=checkpoint_blocks,
                      timeline=context == 128)  # fmt: skip
    found = outcome(engine, "memory", cell).measurement
    values: Any = found.values
    assert values["parameters_bytes"] == steps.parameter_bytes(cell)
    assert values["optimizer_state_bytes"] == steps.optimizer_state_bytes(cell)
    predicted = steps.predict_peak(cell, device="cuda", gpu=torch.cuda.get_device_name())
    within = {"abs": 4096} if context == 128 else {"abs": 8192, "rel": 0.001}
    for part, size in predicted.parts.items():
        assert values[f"{part}_bytes"] == pytest.approx(size, **within), part
    rounding, residual = (0.1, 0.02) if context == 128 else (0.05, 0.005)
    assert 0 < values["rounding_bytes"] < rounding * values["peak_allocated_bytes"]
    assert abs(values["residual_bytes"]) <= residual * values["peak_allocated_bytes"]
    if mode != "inference":
        assert values["block_saved_bytes"] == steps.saved_bytes(cell, device="cuda").block
    if context == 512:
        assert values["saved_bytes"] == steps.retained_bytes(cell, device="cuda")
        rows: Any = found.details["saved_tensors"]
        assert {row.operation for row in rows} >= {"aten::pow", "aten::_softmax", "aten::silu", "aten::mm"}
    timelines: Any = found.details.get("timelines", ())
    assert [one.lost_events for one in timelines] == [0] * cell.timeline


FUSED = [("sdpa-flash", "bf16"), ("sdpa-efficient", "fp32"), ("sdpa-cudnn", "fp16"), ("flex", "bf16")]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("implementation", "precision"), [*WAYS, *FUSED])
def test_an_iteration_that_is_not_computed_takes_the_same_memory(
    engine: LocalEngine, implementation: Any, precision: Any, causal: bool
) -> None:
    """A trial of the frontier is compared with computed iterations, but for small allocations of the kernels."""
    cell = AttentionCell(implementation=implementation, precision=precision, batch=8, seq_len=8192, d_head=64,
                         causal=causal, warmup_steps=2, min_steps=3, max_steps=3)  # fmt: skip
    issued, computed = (
        outcome(engine, experiment, cell).measurement.values["peak_allocated_bytes"]
        for experiment in ("frontier", "attention")
    )
    assert issued == pytest.approx(computed, abs=8192, rel=1e-4)


def test_a_fused_kernels_frontier_takes_no_longer_than_its_allocations(db: Path) -> None:
    """With all memory of the card a trial has millions of tokens, which the kernel would compute for minutes. There are
    ten tensors as wide as the queries (q, k, v, output, four gradients; the queries' once more in float32), at most 20
    numbers of 2 bytes for each token and channel."""
    words = "--attention sdpa-flash --d-heads 128 --precisions bf16 --step 262144 --device cuda"
    run_apart("frontier", *words.split(), db=db, code=0)
    (found,) = rows(db, "FROM frontier")
    assert found["status"] == "ok", found["message"]
    assert found["largest"] * 8 * 128 * 20 > 0.9 * found["limit_bytes"]
    assert found["largest"] == pytest.approx(found["predicted"], rel=0.05, abs=262_144)
    assert found["cell_seconds"] < 60 * found["trials"]
