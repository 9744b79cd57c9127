"""The cost of precision: errors compared with a second float64 model, statistics by hand, and dtypes."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from runner.job import Measurement
from runner.measure import numerics, precision
from runner.measure.device import Device
from runner.measure.model_step import ModelStep
from runner.measure.numerics import (
    Pass,
    compute_errors,
    measure_numerics,
    reference_dtype,
    run_reference_pass,
    run_scaled_pass,
    widen,
)
from runner.models.transformer import ROPE_BASE
from runner.schema import DtypeRow, NormalisationRow, NumericsCell, step_of
from runner.store.read.memory import load_accumulations, load_precise
from runner.store.read.selection import Selection
from tests.command import make_job, run
from tests.command import rows as read
from tests.runner.measure.test_accumulation import SUMS
from tests.runner.models.reference_model import logits as reference_logits

CPU = Device("cpu")
TINY = {"d_model": 16, "d_ff": 24, "layers": 2, "heads": 2, "vocabulary": 32, "batch": 2, "context": 6}


def cell(**asked: Any) -> NumericsCell:
    return NumericsCell(**{**TINY, "precision": "bf16", **asked})


def measured(asked: NumericsCell, *, limit_bytes: int | None = None) -> Measurement:
    return measure_numerics(make_job(asked, limit_bytes=limit_bytes), lambda doing: None)


def test_the_reference_is_float64_throughout() -> None:
    """It agrees with the model in NumPy to the last digits; float32 anywhere in between would differ by 1e-7."""
    step = ModelStep(step_of(cell(precision="fp32", attention="sdpa")), CPU)
    widen(step.workload, torch.float64)
    # The model's own rotary tables are rounded to float32 on purpose.
    angles = np.outer(np.arange(6), ROPE_BASE ** (-np.arange(0, 8, 2) / 8))
    cosine, sine = np.cos(angles).repeat(2, axis=-1), np.sin(angles).repeat(2, axis=-1)
    sine[:, ::2] *= -1
    step.model.rope_2te = torch.from_numpy(np.stack((cosine, sine)))
    weights = {name: value.detach().numpy() for name, value in step.model.state_dict().items()}
    expected = reference_logits(weights, step.workload.inputs[0].numpy(), heads=2)
    found = step.model(step.workload.inputs[0])
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-11, atol=1e-13)


def test_the_gradients_of_the_reference_by_differences() -> None:
    """Along a random direction v, (L(w + hv) − L(w − hv)) / 2h equals the gradient times v."""
    step = ModelStep(step_of(cell(precision="fp32")), CPU)
    expected = run_reference_pass(step, torch.float64, device=CPU)
    torch.manual_seed(1)
    direction = {name: torch.randn_like(value) for name, value in step.model.named_parameters()}
    losses = []
    for h in (1e-5, -2e-5):
        with torch.no_grad():
            for name, value in step.model.named_parameters():
                value.add_(direction[name], alpha=h)
            found = step.model(step.workload.inputs[0]).flatten(0, 1)
            losses.append(torch.nn.functional.cross_entropy(found, step.workload.inputs[1]).item())
    along = sum((expected.gradients[name] * direction[name]).sum().item() for name in direction)
    assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(along, rel=1e-7)


def test_errors_against_a_second_computation() -> None:
    """The row's errors of bf16 agree with the same passes computed here, with the reference in NumPy."""
    values = measured(cell()).values
    step = ModelStep(step_of(cell()), CPU)
    weights = {name: value.detach().double().numpy() for name, value in step.model.state_dict().items()}
    expected = reference_logits(weights, step.workload.inputs[0].numpy(), heads=2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = step.model(step.workload.inputs[0])
        loss = torch.nn.functional.cross_entropy(found.flatten(0, 1), step.workload.inputs[1])
    off = found.detach().double().numpy() - expected
    assert values["logits_error"] == pytest.approx(np.linalg.norm(off) / np.linalg.norm(expected), rel=1e-4)
    flat, targets = expected.reshape(-1, 32), step.workload.inputs[1].numpy()
    exact = np.mean(np.log(np.exp(flat).sum(axis=1)) - flat[np.arange(12), targets])
    assert values["reference_loss"] == pytest.approx(exact, rel=1e-7)
    assert values["loss"] == loss.item()
    assert values["loss_error"] == pytest.approx(abs(loss.item() - exact) / exact, rel=1e-2)
    assert 1e-3 < values["gradient_error"] <= values["worst_gradient_error"] < 0.1
    assert values["reference"] == "fp64"


def test_errors_by_hand() -> None:
    """Gradients (3, 4) and (0, 0, 12) instead of (3, 0) and (5, 0, 12): errors of 4 and 5, relative to √(9 + 169)."""

    def made(*gradients: list[float], loss: float) -> Pass:
        named = {name: torch.tensor(values) for name, values in zip("ab", gradients, strict=True)}
        return Pass(loss=torch.tensor(loss), logits=torch.ones(2), gradients=named)

    right = made([3, 0], [5, 0, 12], loss=2.0)
    found = compute_errors(made([3, 4], [0, 0, 12], loss=2.2), right, is_reference=False)
    assert found["gradient_error"] == pytest.approx(math.sqrt((16 + 25) / (9 + 169)))
    assert (found["worst_gradient"], found["worst_gradient_error"]) == ("a", pytest.approx(4 / 3))
    assert found["loss_error"] == pytest.approx(0.1)
    assert found["zero_gradient_share"] == pytest.approx(1 / 3)
    lost = compute_errors(made([3, math.inf], [0, 0, 12], loss=math.nan), right, is_reference=False)
    assert [lost[name] for name in ("loss", "loss_error", "gradient_error", "worst_gradient")] == [None] * 4


def test_each_precision_has_a_smaller_error_than_the_next() -> None:
    found = {name: measured(cell(precision=name)).values for name in ("fp32", "fp16", "bf16")}
    sizes = [found[name]["gradient_error"] for name in ("fp32", "fp16", "bf16")]
    assert sizes[0] < 5e-6 < sizes[1] < sizes[2] < 5e-2
    assert found["fp16"]["loss_scale"] == 2**16
    assert found["bf16"]["loss_scale"] is None
    assert found["fp16"]["unscaled_zero_gradient_share"] >= found["fp16"]["zero_gradient_share"]
    assert all(values["matmul_precision"] == "ieee" for values in found.values())


def test_the_gradient_scale_is_halved_until_gradients_are_finite() -> None:
    precision.apply("fp16", CPU)
    step = ModelStep(step_of(cell(precision="fp16")), CPU)
    usual = run_scaled_pass(step)
    step.scaler.update(2.0**28)
    found = run_scaled_pass(step)
    assert usual.loss_scale == 2**16
    assert found.loss_scale is not None
    assert 2**16 <= found.loss_scale < 2**28
    for name, gradient in usual.gradients.items():
        torch.testing.assert_close(found.gradients[name], gradient, rtol=1e-2, atol=1e-4)


def test_the_reference_is_fp32_without_memory_for_float64_and_fp32_then_has_no_error() -> None:
    assert reference_dtype(cell(), CPU, limit_bytes=None) == "fp64"
    large = replace(cell(), d_model=1600, d_ff=4288, layers=48, heads=25, vocabulary=10_000, batch=4, context=512)
    assert reference_dtype(large, CPU, limit_bytes=2**60) == "fp32"
    assert reference_dtype(cell(), Device("mps") if torch.backends.mps.is_available() else CPU, limit_bytes=1) == "fp32"
    values = measured(cell(precision="fp32"), limit_bytes=1).values
    assert values["loss"] == values["reference_loss"]
    assert (values["reference"], values.get("gradient_error"), values.get("loss_error")) == ("fp32", None, None)
    assert measured(cell(precision="bf16"), limit_bytes=1).values["gradient_error"] > 1e-3


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_dtypes_equal_those_of_a_pass_done_by_hand(name: str) -> None:
    kind = getattr(torch, name)
    found = precision.run_toy_pass(torch.autocast("cpu", dtype=kind), device=torch.device("cpu"), weights=torch.float32)
    with torch.autocast("cpu", dtype=kind):
        first = torch.nn.Linear(20, 10, bias=False)(torch.randn(8, 20))
        normed = torch.nn.LayerNorm(10)(torch.relu(first))
        logits = torch.nn.Linear(10, 5, bias=False)(normed)
        loss = torch.nn.functional.cross_entropy(logits, torch.zeros(8, dtype=torch.int64))
    by_hand = {key: str(value.dtype)[6:] for key, value in (("first", first), ("layer_norm", normed), ("last", logits))}
    seen = {(part, module): dtype for part, module, dtype in found}
    assert {key: seen["output", key] for key in by_hand} == by_hand
    assert by_hand["first"] == seen["logits", ""] == name
    assert seen["loss", ""] == str(loss.dtype)[6:] == "float32"
    assert {dtype for part, _, dtype in found if part in ("parameter", "gradient")} == {"float32"}


def test_dtypes_of_the_transformer() -> None:
    found = [row for row in measured(cell()).details["dtypes"] if isinstance(row, DtypeRow)]
    by_module = {(row.model, row.part, row.module): row.dtype for row in found}
    assert by_module["transformer", "output", "blocks.0.attention.query"] == "bfloat16"
    assert by_module["transformer", "output", "blocks.0.attention_norm"] == "float32"
    assert by_module["transformer", "logits", ""] == "bfloat16"
    assert by_module["transformer", "gradient", "head.weight"] == "float32"
    assert not any(".1." in row.module for row in found)
    held = measured(cell(weights_dtype="bf16")).details["dtypes"]
    assert {row.dtype for row in held if isinstance(row, DtypeRow) and row.part != "loss"} == {"bfloat16"}


def test_overflow_by_hand() -> None:
    """300² = 90,000 is more than fp16's 65,504, and in bf16 it is 176 · 512 = 90,112. Half of the tokens are ones."""
    x = torch.ones(1, 4, 16)
    x[:, :2] = 300
    found = numerics.measure_statistic(x, statistic="mean of squares", computed_in="fp16")
    assert found == {"error": None, "overflowed_share": 0.5, "underflowed_share": 0.0}
    coarse = numerics.measure_statistic(x, statistic="mean of squares", computed_in="bf16")
    assert coarse["overflowed_share"] == 0
    assert coarse["error"] == pytest.approx(math.sqrt(2 * 112**2 / (2 * 90_000**2 + 2)), rel=1e-6)
    # 1/√∞ is 0, so the output of those tokens is zero without any warning.
    output = numerics.measure_statistic(x, statistic="output", computed_in="fp16")
    assert (output["overflowed_share"], output["underflowed_share"]) == (0.0, 0.5)
    tiny = numerics.measure_statistic(x / 300 * 2**-14, statistic="mean of squares", computed_in="fp16")
    assert tiny["underflowed_share"] == 1.0


def test_streams_of_the_first_and_the_last_block() -> None:
    assert [numerics.choose_layers(layers) for layers in (1, 2, 4, 12)] == [[0], [0, 1], [0, 1, 2, 3], [0, 4, 7, 11]]
    found = [row for row in measured(cell()).details["normalisation"] if isinstance(row, NormalisationRow)]
    assert {row.layer for row in found} == {0, 1}
    by_dtype = {row.computed_in: row.error for row in found if row.scale == 1 and row.layer == 0
                and row.statistic == "variance"}  # fmt: skip
    assert (by_dtype["fp32"] or 1) < 1e-6 < (by_dtype["fp16"] or 0) < (by_dtype["bf16"] or 0) < 1e-2


@pytest.mark.soak
def test_a_sweep_and_the_output_of_show(db: Path) -> None:
    shape = ",".join(f"{name}={TINY[name]}" for name in ("d_model", "d_ff", "layers", "heads", "vocabulary"))
    words = ["--experiment", "numerics", "--shape", shape, "--contexts", "6", "--batch", "2", "--device", "cpu"]
    words += ["--sums", "fp32,fp16,fp16-in-fp32,fp16-upcast-in-fp32", "--precisions", "fp32,tf32,bf16"]
    run("sweep", *words, db=db, code=0)
    sums = load_accumulations(db, Selection())
    assert {(row.accumulator, row.addend, row.upcast, f"{row.total:.9g}") for row in sums} == {
        (*how, f"{total:.9g}") for *how, total in SUMS
    }
    found = {one.precision: one for one in load_precise(db, Selection())}
    assert {name: row.status for name, row in found.items()} == {"fp32": "ok", "tf32": "skipped", "bf16": "ok"}
    assert found["bf16"].gradient_error == measured(cell()).values["gradient_error"], "in another process"
    assert found["bf16"].normalization
    assert read(db, "SELECT count(*) AS n FROM dtypes WHERE model = 'toy' AND part = 'parameter'")[0]["n"] == 2 * 4
    shown = run("show", db=db).stdout
    assert "9.953125" in shown
    assert f"{found['bf16'].gradient_error:.1e}" in shown
