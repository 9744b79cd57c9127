"""A real step does what its mode and precision say, and its row records what it did."""

import statistics
from typing import get_args

import pytest
import torch

from runner.analysis.costs.steps import parameter_count
from runner.job import Measurement
from runner.measure import precision
from runner.measure.device import Device
from runner.measure.model_step import ModelStep
from runner.measure.step import measure_step
from runner.schema import PHASES, Mode, SampleRow, StepCell, TimingRow
from tests.command import make_job, tiny


def measured(cell: StepCell) -> Measurement:
    return measure_step(make_job(cell, device_name="a CPU without a datasheet"), report=lambda doing: None)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_real_cell(mode: Mode, dtype: str) -> None:
    cell = tiny(mode=mode, precision=dtype, batch=3, context=8)
    measurement = measured(cell)
    values = dict(measurement.values)
    timings = {row.phase: row for row in measurement.details["timings"] if isinstance(row, TimingRow)}
    samples = [row for row in measurement.details["samples"] if isinstance(row, SampleRow)]
    sums = ("forward_backward", "step") if mode in ("backward", "train") else ("step",)
    assert tuple(timings) == PHASES[mode] + sums
    assert len(samples) == len(timings) * 4, "each phase has one warm-up and three measured steps"
    assert values["parameters"] == parameter_count(cell) == 2 * 2048 * 64 + 2 * (4 * 64**2 + 3 * 64 * 192 + 2 * 64) + 64
    measured_ms = {phase: [row.duration_ms for row in samples if row.phase == phase][1:] for phase in timings}
    median = statistics.median(measured_ms["step"])
    assert timings["step"].median_ms == pytest.approx(median)
    parts = zip(*(measured_ms[phase] for phase in PHASES[mode]), strict=True)
    shares = [sum(phases) / whole for phases, whole in zip(parts, measured_ms["step"], strict=True)]
    assert values["phase_sum_share"] == pytest.approx(statistics.median(shares))
    assert values["tokens_per_s"] == pytest.approx(3 * 8 / median * 1e3)
    assert values["flops_per_s"] == pytest.approx(values["step_flops"] / median * 1e3)
    assert values["logits_dtype"] == {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[dtype]
    assert values["matmul_precision"] == "ieee"
    assert (values["steps"], values["stopped_by"], values["mfu"]) == (3, "max_steps", None)
    assert 0.0 < values["phase_sum_share"] <= 1.0
    assert (values["loss"] is None) == (mode in ("inference", "forward"))
    assert mode in ("inference", "forward") or 6.0 < values["loss"] < 9.0, "the loss of random logits is ln 2048 = 7.6"
    assert "compile_seconds" not in values
    assert values["peak_allocated_bytes"] is values["peak_reserved_bytes"] is None, "they are not counted on a CPU"
    assert values["bound"] is values["device_share"] is None, "a CPU's call returns when its work is done"
    assert {(row.loop_ms, row.device_ms) for row in timings.values()} == {(None, None)}
    assert min(values["page_faults"], values["context_switches"]) >= 0
    assert values["threads"] == torch.get_num_threads()


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_a_training_step_lowers_the_loss_and_leaves_no_gradients(dtype: str) -> None:
    step = ModelStep(tiny(precision=dtype), Device("cpu"))
    losses = []
    for _ in range(6):
        step(lambda: None)
        assert step.loss is not None
        losses.append(step.loss.item())
    assert losses == sorted(losses, reverse=True), "repeated tokens are learned"
    assert losses[0] - losses[-1] > 0.5
    assert all(one.grad is None for one in step.model.parameters()), "zero_grad is counted with the optimizer"


def test_each_mode_does_what_its_name_says() -> None:
    def after(mode: Mode) -> tuple[ModelStep, bool, bool]:
        step = ModelStep(tiny(mode=mode), Device("cpu"))
        before = [parameter.clone() for parameter in step.model.parameters()]
        step(lambda: None)
        changed = any(not torch.equal(a, b) for a, b in zip(before, step.model.parameters(), strict=True))
        return step, changed, all(parameter.grad is not None for parameter in step.model.parameters())

    for mode in ("inference", "forward"):
        step, changed, has_gradients = after(mode)
        assert (step.loss, changed, has_gradients) == (None, False, False)
    step, changed, has_gradients = after("backward")
    assert (changed, has_gradients) == (False, True)
    step.between()
    assert all(parameter.grad is None for parameter in step.model.parameters())
    assert after("train")[1]


def test_forward_keeps_a_graph_and_inference_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs: list[torch.Tensor] = []
    forward = ModelStep.forward

    def kept(step: ModelStep) -> torch.Tensor:
        outputs.append(forward(step))
        return outputs[-1]

    monkeypatch.setattr(ModelStep, "forward", kept)
    for mode in get_args(Mode):
        ModelStep(tiny(mode=mode), Device("cpu"))(lambda: None)
    assert [output.requires_grad for output in outputs] == [False, True, True, True]


def test_the_same_cell_starts_from_the_same_weights_and_tokens() -> None:
    one, other = (ModelStep(tiny(), Device("cpu")) for _ in range(2))
    assert torch.equal(one.workload.inputs[0], other.workload.inputs[0])
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True))


def test_the_optimizer_is_adamw_as_designed() -> None:
    for name, foreach, fused in (("foreach", True, False), ("for-loop", False, False), ("fused", False, True)):
        optimizer = ModelStep(tiny(optimizer=name), Device("cpu")).optimizer
        assert isinstance(optimizer, torch.optim.AdamW)
        settings = optimizer.param_groups[0]
        assert (settings["lr"], settings["betas"], settings["eps"]) == (1e-3, (0.9, 0.999), 1e-8)
        assert (settings["weight_decay"], settings["foreach"], settings["fused"]) == (0.01, foreach, fused)


def test_weights_in_bf16_need_no_autocast() -> None:
    cell = tiny(precision="bf16", weights_dtype="bf16")
    assert measured(cell).values["logits_dtype"] == "bfloat16"
    assert {parameter.dtype for parameter in ModelStep(cell, Device("cpu")).model.parameters()} == {torch.bfloat16}
    assert not isinstance(precision.autocast(cell, Device("cpu")), torch.autocast)
