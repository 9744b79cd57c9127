"""The errors of one pass in a lower precision against the same pass in float64: of loss, logits and every gradient.

One model does both passes: first in the cell's precision, as a training loop would; then, widened in place, in the
reference precision. Weights, rotary tables and tokens are the same numbers, so that only the arithmetic differs. fp16's
gradients are those that the gradient scaler passes to the optimizer. Limits: a fresh model, random tokens, and one
pass.

The statistics of normalization, computed in each dtype and compared with float64. The inputs are residual streams of
the real model, times powers of two, because activations of a trained model are larger than those of a fresh one. The
input and the result of every operation are rounded to the dtype, as under autocast. Limits: within one operation torch
adds in float32 and rounds once, on CUDA and on a CPU; a device that added in the dtype itself would be less exact.

The sum of many equal numbers in a dtype, bit for bit, and where it stops growing as it should. A tensor of one element
is added as often as the cell says: `total += addend` in the cell's dtypes, where torch promotes the narrower one, or
with the addend converted first. Limits: one addition at a time, as in a loop; torch's own `sum` adds in pairs and in
float32.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from runner.allowance import usable_memory
from runner.analysis.costs import steps
from runner.errors import Skipped
from runner.job import Job, Measurement
from runner.measure import precision
from runner.measure.device import Device
from runner.measure.model_step import ModelStep, require_attention, take_gradients
from runner.measure.precision import DTYPES, to_float64
from runner.models.attention import implementation
from runner.models.transformer import NORM_EPSILON, WEIGHTS_DTYPES, RMSNorm, SelfAttention, Transformer
from runner.models.workload import Workload, first_tensor
from runner.schema import (
    AccumulationCell,
    FloatName,
    NormalisationRow,
    NormStatistic,
    NumericsCell,
    PartialSumRow,
    step_of,
)
from runner.schema.own import PassFlops


def spacing(value: float, name: FloatName) -> float:
    """Returns the distance from |value| to the next larger number of the format (IEEE 754-2019, section 3.6). `value`
    is finite and in the format's range."""
    format_ = torch.finfo(DTYPES[name])
    return max(2.0 ** (math.frexp(value)[1] - 1) if value else 0.0, format_.tiny) * format_.eps


#: The most operations of a float64 pass, which then takes seconds; a consumer GPU does them at 1/64 of its fp32 rate.
MAX_FP64_FLOPS: Mapping[str, float] = {"cpu": 3e12, "cuda": 5e13}
#: The memory of both passes together, in peaks of an fp32 pass: the reference twice, and the gradients beside it.
PEAKS_HELD = 3


@dataclass(frozen=True, kw_only=True)
class Pass:
    """The results of a forward and backward pass: gradients by parameter, unscaled; own models may return no logits."""

    loss: Tensor
    logits: Tensor | None
    gradients: Mapping[str, Tensor]
    loss_scale: float | None = None

    @classmethod
    def of(cls, output: Any, loss: Tensor, gradients: Mapping[str, Tensor], *, loss_scale: float | None = None) -> Self:
        """Returns the results without their graph."""
        logits = first_tensor(output)
        logits = None if logits is None else logits.detach()
        return cls(loss=loss.detach(), logits=logits, gradients=gradients, loss_scale=loss_scale)


def measure_numerics(job: Job, report: Callable[[str], None]) -> Measurement:
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, NumericsCell)
    require_attention(cell, device)
    precision.apply(cell.precision, device)
    wide = reference_dtype(cell, device, limit_bytes=job.limit_bytes, flops=job.flops)
    report("build")
    began = time.perf_counter()
    step = ModelStep(step_of(cell), device)
    if cell.model_key is not None:
        step.model.eval()  # dropout would draw other masks in other dtypes
    device.synchronize()
    built = time.perf_counter()
    report(f"pass in {cell.precision}")
    with precision.record_outputs(step.model, blocks=step.workload.blocks) as outputs:
        actual = run_scaled_pass(step)
    found = precision.name_dtypes(
        step.model, outputs, logits=actual.logits, loss=actual.loss, gradients=actual.gradients,
        blocks=step.workload.blocks,
    )  # fmt: skip
    zeros: dict[str, Tensor] | None = None  # which elements of each gradient are 0 when the loss is not scaled
    if actual.loss_scale is not None:
        step.scaler.update(1.0)
        zeros = {name: gradient == 0 for name, gradient in run_scaled_pass(step).gradients.items()}
    toy = precision.run_toy_pass(step.autocast, device=device.torch, weights=WEIGHTS_DTYPES[cell.weights_dtype])
    values: dict[str, object] = {"matmul_precision": precision.read_back(device)}
    report(f"reference in {wide}")
    with record_streams(step.workload) as streams:
        wide, expected = _run_widest(step, wide, device=device)
    report("compare")
    values |= {
        "reference": wide,
        **compute_errors(actual, expected, is_reference=wide == cell.precision),
        "loss_scale": actual.loss_scale,
        "unscaled_zero_gradient_share": None if zeros is None else _zero_share(zeros, expected.gradients),
    }
    details: dict[str, Sequence[object]] = {
        "dtypes": precision.dtype_rows(job, {"toy": toy, "own" if cell.model_key else "transformer": found}),
        "normalisation": measure_sensitivity(job, streams),
    }
    device.synchronize()
    values |= {"build_seconds": built - began, "measure_seconds": time.perf_counter() - built}
    return Measurement(values=values, details=details)


def reference_dtype(
    cell: NumericsCell, device: Device, *, limit_bytes: int | None, flops: PassFlops | None = None
) -> FloatName:
    """Returns fp64 where the device has it, both passes fit and it takes seconds; else fp32. Of an own model nobody
    knows whether it fits before it is tried."""
    if cell.model_key is not None:
        count = flops.of_mode("backward") if flops else 0
        return "fp64" if count <= MAX_FP64_FLOPS.get(device.type, -1) else "fp32"
    wide = replace(step_of(cell), precision="fp32", weights_dtype="fp32", attention="naive")
    if device.type not in MAX_FP64_FLOPS or steps.step_flops(wide) > MAX_FP64_FLOPS[device.type]:
        return "fp32"
    kind: Literal["cuda", "cpu"] = "cuda" if device.type == "cuda" else "cpu"
    free = torch.cuda.mem_get_info(device.torch)[0] if kind == "cuda" else usable_memory()
    needed = PEAKS_HELD * steps.predicted_peak_bytes(wide, device=kind)
    return "fp64" if needed < min(free, limit_bytes or free) else "fp32"


def run_scaled_pass(step: ModelStep) -> Pass:
    """Runs one pass as training does: where scaled gradients are not finite, it halves the scale and starts again.

    At a scale of 1 it returns them as they are."""
    while True:
        step.model.zero_grad()
        output = step.forward()
        step.backward(output, lambda: None)
        assert step.loss is not None
        gradients, scale = take_gradients(step.model), step.scaler.get_scale() if step.scaler.is_enabled() else None
        if scale is None:
            return Pass.of(output, step.loss, gradients)
        if scale <= 1 or all(bool(gradient.isfinite().all()) for gradient in gradients.values()):
            unscaled = {name: gradient / scale for name, gradient in gradients.items()}
            return Pass.of(output, step.loss, unscaled, loss_scale=scale)
        step.scaler.update(scale / 2)


def _run_widest(step: ModelStep, wide: FloatName, *, device: Device) -> tuple[FloatName, Pass]:
    """Returns the reference pass with its dtype, which is fp32 where an own model cannot run in fp64."""
    try:
        return wide, run_reference_pass(step, DTYPES[wide], device=device)
    except RuntimeError:  # of memory, or an operator that has no float64
        if step.cell.model_key is None or wide == "fp32":
            raise
    step.model.zero_grad()
    return "fp32", run_reference_pass(step, DTYPES["fp32"], device=device)


def run_reference_pass(step: ModelStep, dtype: torch.dtype, *, device: Device) -> Pass:
    """Runs the same pass in `dtype`, with IEEE float32 products. Widens the step's model in place."""
    precision.apply("fp32", device)
    with widen(step.workload, dtype):
        output = step.workload.run()
        loss = step.workload.loss(output)
        loss.backward()  # type: ignore[no-untyped-call]
    assert loss.dtype == dtype
    return Pass.of(output, loss, take_gradients(step.model))


class WideNorm(RMSNorm):
    """RMS normalization in the input's dtype throughout."""

    def forward(self, x_btd: Tensor) -> Tensor:
        return x_btd * torch.rsqrt(x_btd.square().mean(dim=-1, keepdim=True) + NORM_EPSILON) * self.gain


class WideCasts(TorchFunctionMode):
    """Turns casts to float32 into casts to `dtype`, because own models often compute a norm or a softmax in float32 and
    would round the reference there."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.float:
            return args[0].to(self.dtype)
        named = {name: self.dtype if value is torch.float32 else value for name, value in (kwargs or {}).items()}
        return func(*(self.dtype if value is torch.float32 else value for value in args), **named)


def widen(workload: Workload, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Casts model and data to `dtype`, with the same numbers, and returns a context in which it computes in it
    throughout; the Transformer with naive attention."""
    workload.model.to(dtype)
    for module in workload.model.modules():
        if isinstance(module, RMSNorm):
            module.__class__ = WideNorm
        if isinstance(module, SelfAttention):
            module.attend = implementation("naive")
    if isinstance(workload.model, Transformer):
        return nullcontext()

    def cast(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

    workload.arguments = tuple(map(cast, workload.arguments))
    workload.keywords = {name: cast(value) for name, value in workload.keywords.items()}
    return WideCasts(dtype)


def compute_errors(actual: Pass, expected: Pass, *, is_reference: bool) -> Mapping[str, object]:
    """Returns the errors of `actual` against `expected` by column of the row; the reference itself has none."""
    losses = {"loss": _finite(actual.loss.item()), "reference_loss": _finite(expected.loss.item())}
    if is_reference:
        return losses
    parts = {name: _squares(actual.gradients[name], reference) for name, reference in expected.gradients.items()}
    relative = {name: _relative([part]) for name, part in parts.items()}
    known = {name: error for name, error in relative.items() if error is not None}
    worst = max(known, key=lambda name: known[name]) if len(known) == len(parts) else None
    return {
        **losses,
        "loss_error": _relative([_squares(actual.loss, expected.loss)]),
        "logits_error": None
        if actual.logits is None or expected.logits is None
        else _relative([_squares(actual.logits, expected.logits)]),
        "gradient_error": _relative(list(parts.values())),
        "worst_gradient_error": known[worst] if worst else None,
        "worst_gradient": worst,
        "zero_gradient_share": _zero_share({n: g == 0 for n, g in actual.gradients.items()}, expected.gradients),
    }


def _squares(actual: Tensor, expected: Tensor) -> tuple[float, float]:
    """Returns ‖actual − expected‖² and ‖expected‖², in float64."""
    reference = to_float64(expected)
    return (to_float64(actual) - reference).square().sum().item(), reference.square().sum().item()


def _relative(parts: Sequence[tuple[float, float]]) -> float | None:
    """Returns ‖x − ref‖ / ‖ref‖ over all parts together; None where that is no number."""
    difference, norm = (math.fsum(values) for values in zip(*parts, strict=True))
    return _finite(math.sqrt(difference / norm)) if norm else None


def _zero_share(zeros: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float | None:
    """Returns the share of zeros among the elements that are not 0 in the reference."""
    count = sum(int((reference != 0).sum()) for reference in expected.values())
    lost = sum(int(((reference != 0) & zeros[name]).sum()) for name, reference in expected.items())
    return lost / count if count else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


#: The factors of the streams. The squares of the least and of the largest are outside fp16's range.
SCALES = (2.0**-14, 2.0**-7, 1.0, 2.0**5, 2.0**7, 2.0**10)
COMPARED: tuple[FloatName, ...] = ("fp32", "bf16", "fp16")
#: The most blocks whose streams are recorded; more would show nothing new.
MAX_BLOCKS = 4


def _mean(x: Tensor) -> Tensor:
    """Returns the mean over the width: (…, width) -> (…, 1)."""
    return x.mean(dim=-1, keepdim=True)


#: The variance is in two passes, as layer normalization computes it; mean of squares and output are RMS normalization's
#: with a gain of 1 (Zhang and Sennrich 2019).
STATISTICS: Mapping[NormStatistic, Callable[[Tensor], Tensor]] = {
    "mean": _mean,
    "variance": lambda x: _mean((x - _mean(x)).square()),
    "mean of squares": lambda x: _mean(x.square()),
    "output": lambda x: x * torch.rsqrt(_mean(x.square()) + NORM_EPSILON),
}


@contextmanager
def record_streams(workload: Workload) -> Iterator[dict[int, Tensor]]:
    """Records the inputs of a few blocks, spread over the depth: block -> (batch, time, width)."""
    streams: dict[int, Tensor] = {}

    def record(layer: int, block: object, inputs: tuple[Tensor, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor) and inputs[0].is_floating_point():
            streams[layer] = inputs[0].detach()

    with ExitStack() as hooks:
        for layer in choose_layers(len(workload.blocks)):
            block = workload.model.get_submodule(workload.blocks[layer])
            hooks.enter_context(block.register_forward_pre_hook(partial(record, layer)))
        yield streams


def choose_layers(layers: int) -> list[int]:
    """Returns at most MAX_BLOCKS of the layers, evenly spread, the first and the last among them."""
    count = min(layers, MAX_BLOCKS)
    return sorted({round(place * (layers - 1) / max(count - 1, 1)) for place in range(count)})


def measure_sensitivity(job: Job, streams: Mapping[int, Tensor]) -> list[NormalisationRow]:
    exact = {layer: to_float64(stream) for layer, stream in streams.items()}
    return [
        NormalisationRow(
            **job.ids,
            layer=layer,
            statistic=statistic,
            computed_in=name,
            scale=scale,
            **measure_statistic(exact[layer] * scale, statistic=statistic, computed_in=name),
        )
        for layer, scale, statistic, name in itertools.product(exact, SCALES, STATISTICS, COMPARED)
    ]


def measure_statistic(x: Tensor, *, statistic: NormStatistic, computed_in: FloatName) -> dict[str, Any]:
    """Returns the error and the lost shares of a statistic of `x` (…, width), by column of the row."""
    compute = STATISTICS[statistic]
    expected, actual = compute(to_float64(x)), to_float64(compute(x.to(DTYPES[computed_in])))
    finite = actual.isfinite().all(dim=-1)
    vanished = (actual == 0).all(dim=-1) & (expected != 0).any(dim=-1)
    error = (actual - expected).norm() / expected.norm()
    return {
        "error": error.item() if finite.all() else None,
        "overflowed_share": 1 - finite.double().mean().item(),
        "underflowed_share": vanished.double().mean().item(),
    }


#: The approximate number of partial sums that are kept.
POINTS = 100
#: The sum slips where an increment is off by more than this share of the addend.
SLIP = 0.1


def measure_accumulation(job: Job, report: Callable[[str], None]) -> Measurement:
    """Adds on the job's device. Raises Skipped for a dtype that the device lacks."""
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, AccumulationCell)
    if device.type == "mps" and "fp64" in (cell.accumulator, cell.addend):
        raise Skipped("MPS has no float64.")
    report("measure")
    accumulator, sums = DTYPES[cell.accumulator], list[float]()  # the sum after each addition, unrounded
    total = torch.tensor(0, dtype=accumulator, device=device.torch)
    addend = torch.tensor(cell.value, dtype=DTYPES[cell.addend], device=device.torch)
    for _ in range(cell.addends):
        total += addend.type(accumulator) if cell.upcast else addend
        sums.append(total.item())
    values = _values(cell, sums, rounded=addend.item())
    shown = {*range(1, cell.addends + 1, max(cell.addends // POINTS, 1)), cell.addends, values["slips_at"] or 1}
    partial_sums = [
        PartialSumRow(**job.ids, addend=number, total=one, spacing=spacing(one, cell.accumulator))
        for number, one in enumerate(sums, 1)
        if number in shown and math.isfinite(one)
    ]
    return Measurement(values=values, details={"partial_sums": partial_sums})


def _values(cell: AccumulationCell, sums: Sequence[float], *, rounded: float) -> Mapping[str, float | int | None]:
    """Returns the columns of the row; `rounded` is the addend as its dtype holds it."""
    total, exact = sums[-1], cell.value * cell.addends
    increments = [after - before for before, after in itertools.pairwise([0.0, *sums])]
    slips = (at for at, increment in enumerate(increments, 1) if not abs(increment - rounded) <= SLIP * abs(rounded))
    known = {
        "total": total,
        "exact": exact,
        "error": total - exact,
        "rounded_value": rounded,
        "spacing": spacing(total, cell.accumulator) if math.isfinite(total) else None,
        "last_increment": increments[-1],
        "slips_at": next(slips, None),
    }
    return {name: value if value is None or math.isfinite(value) else None for name, value in known.items()}
