"""How far is one pass in a lower precision from the same pass in float64? Loss, logits, every gradient, and why.

    measurement = measure_numerics(job, report=print)

One model does both passes: first in the cell's precision, as a training loop would; then, widened in place, in the
reference precision. Weights, rotary tables and tokens are so the same numbers, and what differs is the arithmetic.
fp16's gradients are those that the gradient scaler hands to the optimizer. Limits: a fresh model and random tokens;
what errors do over many steps is another question.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from runner.analysis.costs import steps
from runner.errors import Skipped
from runner.job import Job, Measurement
from runner.measure.machine import precision
from runner.measure.machine.device import Device
from runner.measure.memory import limits
from runner.measure.numerics import dtypes
from runner.measure.numerics.dtypes import DTYPES, PassDtypes
from runner.measure.numerics.normalization import exactly, measure_sensitivity, streams_of
from runner.measure.timing.step import ModelStep, take_gradients
from runner.models.attention import implementation, unavailable
from runner.models.transformer import NORM_EPSILON, WEIGHTS_DTYPES, RMSNorm, SelfAttention, Transformer
from runner.schema import FloatName, NumericsCell

#: Operations of a float64 pass that are a matter of seconds: a GPU for games does them at 1/64 of its fp32 rate.
MAX_FP64_FLOPS: Mapping[str, float] = {"cpu": 3e12, "cuda": 5e13}
#: What both passes hold together, in peaks of an fp32 pass: the reference twice, and the gradients beside it.
PEAKS_HELD = 3


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What one forward and backward pass gave. Gradients are by parameter, not scaled any more."""

    loss: Tensor
    logits: Tensor
    gradients: Mapping[str, Tensor]
    loss_scale: float | None = None


def measure_numerics(job: Job, report: Callable[[str], None]) -> Measurement:
    """Measures one precision of a model. `report` is told what is being done.

    Raises Skipped where this machine cannot run the cell; whatever torch raises goes through."""
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, NumericsCell)
    reason = unavailable(cell.attention, device.type, dtype=precision.product_dtype(cell.precision))
    if reason:
        raise Skipped(reason)
    precision.apply(cell.precision, device)
    wide = reference_dtype(cell, device, limit_bytes=job.limit_bytes)
    report("build")
    began = time.perf_counter()
    step = ModelStep(cell.step(), device)
    device.synchronize()
    built = time.perf_counter()
    report(f"pass in {cell.precision}")
    seen, found = _seen_pass(step)
    lost = _zeros_without_scaling(step) if found.loss_scale is not None else None
    toy = dtypes.toy_pass(step.autocast, device=device.torch, weights=WEIGHTS_DTYPES[cell.weights_dtype])
    values: dict[str, object] = {"matmul_precision": precision.read_back(device), "reference": wide}
    report(f"reference in {wide}")
    with streams_of(step.model) as streams:
        expected = reference_pass(step, DTYPES[wide], device=device)
    report("compare")
    is_reference = wide == cell.precision
    values |= {
        **errors(found, expected, is_reference=is_reference),
        "loss_scale": found.loss_scale,
        "unscaled_zero_gradient_share": None if lost is None else _zero_share(lost, expected.gradients),
    }
    details: dict[str, Sequence[object]] = {
        "dtypes": dtypes.dtype_rows(job, {"toy": toy, "transformer": seen}),
        "normalisation": measure_sensitivity(job, streams),
    }
    device.synchronize()
    values |= {"build_seconds": built - began, "measure_seconds": time.perf_counter() - built}
    return Measurement(values=values, details=details)


def reference_dtype(cell: NumericsCell, device: Device, *, limit_bytes: int | None) -> FloatName:
    """float64 where the device has it, both passes fit and it is a matter of seconds; else fp32."""
    wide = replace(cell.step(), precision="fp32", weights_dtype="fp32", attention="naive")
    if device.type not in MAX_FP64_FLOPS or steps.step_flops(wide) > MAX_FP64_FLOPS[device.type]:
        return "fp32"
    kind: Literal["cuda", "cpu"] = "cuda" if device.type == "cuda" else "cpu"
    free = torch.cuda.mem_get_info(device.torch)[0] if kind == "cuda" else limits.free_bytes()
    needed = PEAKS_HELD * steps.predicted_peak_bytes(wide, device=kind)
    return "fp64" if needed < min(free, limit_bytes or free) else "fp32"


def _seen_pass(step: ModelStep) -> tuple[PassDtypes, Pass]:
    """The pass in the cell's precision, and which dtypes it met."""
    with ExitStack() as stack:
        outputs = stack.enter_context(dtypes.outputs_of(dtypes.modules_to_read(step.model)))
        found = run_scaled_pass(step)
    seen = PassDtypes(
        outputs=outputs,
        logits=dtypes.name_of(found.logits),
        loss=dtypes.name_of(found.loss),
        parameters=dtypes.of_parameters(step.model),
        gradients=dtypes.of_gradients(found.gradients),
    )
    return seen, found


def run_scaled_pass(step: ModelStep) -> Pass:
    """One pass as training does it: where the scaled gradients are not finite, the scale is halved and it starts again.

    At a scale of 1 they are taken as they are."""
    while True:
        step.model.zero_grad()
        logits = step.forward()
        step.backward(logits, lambda: None)
        assert step.loss is not None
        gradients = take_gradients(step.model)
        if not step.scaler.is_enabled():
            return Pass(loss=step.loss.detach(), logits=logits.detach(), gradients=gradients)
        scale = step.scaler.get_scale()
        if scale <= 1 or all(bool(gradient.isfinite().all()) for gradient in gradients.values()):
            unscaled = {name: gradient / scale for name, gradient in gradients.items()}
            return Pass(loss=step.loss.detach(), logits=logits.detach(), gradients=unscaled, loss_scale=scale)
        step.scaler.update(scale / 2)


def _zeros_without_scaling(step: ModelStep) -> dict[str, Tensor]:
    """Which gradient elements are 0 when the loss is not scaled, by parameter."""
    step.scaler.update(1.0)
    return {name: gradient == 0 for name, gradient in run_scaled_pass(step).gradients.items()}


def reference_pass(step: ModelStep, dtype: torch.dtype, *, device: Device) -> Pass:
    """The same pass in `dtype`, float32 products as IEEE has them. Widens the step's model in place."""
    precision.apply("fp32", device)
    widen(step.model, dtype)
    logits = step.model(step.inputs)
    loss = functional.cross_entropy(logits.flatten(0, 1), step.targets)
    loss.backward()  # type: ignore[no-untyped-call]
    assert logits.dtype == loss.dtype == dtype
    return Pass(loss=loss.detach(), logits=logits.detach(), gradients=take_gradients(step.model))


class WideNorm(RMSNorm):
    """The same normalization without the way through float32."""

    def forward(self, x_btd: Tensor) -> Tensor:
        return x_btd * torch.rsqrt(x_btd.square().mean(dim=-1, keepdim=True) + NORM_EPSILON) * self.gain


def widen(model: Transformer, dtype: torch.dtype) -> None:
    """Lets the model compute in `dtype` throughout, with the numbers that it holds, and attention written out."""
    model.to(dtype)
    for module in model.modules():
        if isinstance(module, RMSNorm):
            module.__class__ = WideNorm
        if isinstance(module, SelfAttention):
            module.attend = implementation("naive")


def errors(found: Pass, expected: Pass, *, is_reference: bool) -> Mapping[str, object]:
    """How far `found` is from `expected`, by column of the row; a pass that is the reference itself has no error."""
    losses = {"loss": _finite(found.loss.item()), "reference_loss": _finite(expected.loss.item())}
    if is_reference:
        return losses
    parts = {name: _squares(found.gradients[name], wanted) for name, wanted in expected.gradients.items()}
    relative = {name: _relative([part]) for name, part in parts.items()}
    known = {name: error for name, error in relative.items() if error is not None}
    worst = max(known, key=lambda name: known[name]) if len(known) == len(parts) else None
    return {
        **losses,
        "loss_error": _relative([_squares(found.loss, expected.loss)]),
        "logits_error": _relative([_squares(found.logits, expected.logits)]),
        "gradient_error": _relative(list(parts.values())),
        "worst_gradient_error": known[worst] if worst else None,
        "worst_gradient": worst,
        "zero_gradient_share": _zero_share({n: g == 0 for n, g in found.gradients.items()}, expected.gradients),
    }


def _squares(found: Tensor, expected: Tensor) -> tuple[float, float]:
    """‖found − expected‖² and ‖expected‖², in float64."""
    wanted = exactly(expected)
    return (exactly(found) - wanted).square().sum().item(), wanted.square().sum().item()


def _relative(parts: Sequence[tuple[float, float]]) -> float | None:
    """‖x − ref‖ / ‖ref‖ over all parts together; None where that is no number."""
    off, whole = (math.fsum(values) for values in zip(*parts, strict=True))
    return _finite(math.sqrt(off / whole)) if whole else None


def _zero_share(zeros: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float | None:
    """Of the elements that are not 0 in the reference, the share that is 0."""
    there = sum(int((wanted != 0).sum()) for wanted in expected.values())
    lost = sum(int(((wanted != 0) & zeros[name]).sum()) for name, wanted in expected.items())
    return lost / there if there else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
