"""Says whether attention, a loss or an optimizer computes what it should, before anybody looks at its time.

    errors = compute_errors(run, (q, k, v), grad, causal=True)
    check_parts(cell, device)          # raises Wrong for an own part that errs more than its precision costs

Errors are against a reference in float64 (`reference`), computed a few rows at a time. It is written from the
equations, without autograd, so that it shares no code with what it judges: with P = softmax(Q Kᵀ / √d) and dO the
output's gradient, dV = Pᵀ dO, dP = dO Vᵀ, dS = P ∘ (dP − rowsum(dP ∘ P)), dQ = dS K / √d, dK = dSᵀ Q / √d (Dao et al.
2022, "FlashAttention", appendix B.2). A block of rows at a time, it needs no S×S tensor.

An own attention may err three times as much as naive attention in the same precision, or as much as the tolerance of
that precision, whichever is more; an own loss likewise beside PyTorch's. An own optimizer has no reference: it must
change the parameters, and keep them finite.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from runner.errors import BadModel
from runner.job import Wrong
from runner.measure import precision
from runner.measure.device import Device
from runner.models.attention import implementation
from runner.models.source import load_part
from runner.schema import Precision, StepCell
from runner.schema.own import is_own_part

SEED = 0
#: The largest ‖x − reference‖ / ‖reference‖ of the output and of each gradient: three to ten times that of PyTorch's
#: own implementations on a CPU up to 2048. The unit roundoffs are 6e-8 (fp32), 5e-4 (tf32, fp16) and 4e-3 (bf16).
TOLERANCE: Mapping[Precision, float] = {"fp32": 5e-6, "tf32": 5e-3, "fp16": 3e-3, "bf16": 2e-2}
ROWS = 128


@torch.no_grad()
def reference(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, *, causal: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the output and the gradients of q, k and v for the output gradient `grad`, in float64; all of shape
    (batch, 1, seq_len, d_head), on the CPU where the device has no float64."""
    q, k, v, grad = (precision.to_float64(tensor) for tensor in (q, k, v, grad))
    output, dq, dk, dv = (torch.zeros_like(tensor) for tensor in (q, q, k, v))
    length, scale = q.shape[-2], 1 / math.sqrt(q.shape[-1])
    columns = torch.arange(length, device=q.device)
    for start in range(0, length, ROWS):
        rows = slice(start, min(start + ROWS, length))
        scores = q[..., rows, :] @ k.mT * scale
        if causal:
            scores.masked_fill_(columns > columns[rows, None], -math.inf)
        p = torch.softmax(scores, dim=-1)
        output[..., rows, :] = p @ v
        dv.add_(p.mT @ grad[..., rows, :])
        dp = grad[..., rows, :] @ v.mT
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * scale
        dq[..., rows, :] = ds @ k
        dk.add_(ds.mT @ q[..., rows, :])
    return output, dq, dk, dv


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Returns ‖actual − expected‖ / ‖expected‖ in the Frobenius norm; NaN where `actual` has a NaN."""
    return float((precision.to_float64(actual) - expected).norm() / expected.norm())


Inputs = tuple[Tensor, Tensor, Tensor]


def compute_errors(
    run: Callable[..., Tensor], inputs: Inputs, grad: Tensor, *, causal: bool, name: str = "Attention"
) -> dict[str, float]:
    """Returns the relative errors of the output, of the worst gradient and of the worst entry of `run(*inputs)`. Raises
    Wrong where there is no gradient of an input."""
    output = run(*inputs)
    gradients = torch.autograd.grad(output, inputs, grad, allow_unused=True)
    names = ("queries", "keys", "values")
    if lost := [one for one, gradient in zip(names, gradients, strict=True) if gradient is None]:
        raise Wrong(
            f"{name}: no gradient reaches {' and '.join(lost)}.",
            expected="gradients of queries, keys and values: detach none, and let an own backward return all three",
            values={},
        )
    found = [*zip((output, *gradients), reference(*inputs, grad, causal=causal), strict=True)]
    return {
        "output_error": relative_error(*found[0]),
        "gradient_error": max(relative_error(*pair) for pair in found[1:]),
        "largest_error": max(_largest_error(*pair) for pair in found),
    }


def _largest_error(tensor: Tensor, expected: Tensor) -> float:
    """Returns max |x − reference| / max |reference|; NaN where `x` has one."""
    return float((precision.to_float64(tensor) - expected).abs().max() / expected.abs().max())


#: The longest sequence at which an own implementation is compared with naive attention, which needs S×S tensors.
MAX_CHECKED = 1024
#: What an own implementation may err, in multiples of naive attention or PyTorch's loss in the same precision; and its
#: largest entry, in multiples of what is allowed on the whole.
TIMES_USUAL, TIMES_LARGEST = 3.0, 10.0


def check_attention(
    name: str, size: tuple[int, int, int, int], of: Precision, *, device: Device, causal: bool
) -> dict[str, float]:
    """Compares an own implementation with float64 and with naive attention, before it is timed. Its inputs have the
    shape `size`. Returns columns of its row. Raises Wrong where it errs more than its precision costs, BadModel where
    it does not return what attention returns."""
    torch.manual_seed(SEED)
    q, k, v, grad = (torch.randn(size, dtype=precision.product_dtype(of), device=device.torch) for _ in range(4))
    inputs = (q.requires_grad_(), k.requires_grad_(), v.requires_grad_())
    run, naive = (functools.partial(implementation(one), causal=causal) for one in (name, "naive"))
    output: Any = run(*inputs)
    shape, dtype = getattr(output, "shape", None), getattr(output, "dtype", type(output).__name__)
    if (shape, dtype) != (q.shape, q.dtype) or not output.requires_grad:
        raise BadModel(
            f"{name} returned {dtype}{f' of shape {tuple(shape)}' if shape else ''}"
            f"{'' if getattr(output, 'requires_grad', False) else ' that needs no gradient'}.",
            expected=f"{q.dtype} of shape {size} (batch, heads, sequence, head width) that autograd can differentiate",
        )
    errors = compute_errors(run, inputs, grad, causal=causal, name=name)
    usual = compute_errors(naive, inputs, grad, causal=causal)
    costs = max(usual["output_error"], usual["gradient_error"])
    errors["naive_error"] = costs
    require_right(name, errors, max(TOLERANCE[of], TIMES_USUAL * costs), usual=costs)
    return errors


def require_right(name: str, errors: Mapping[str, float], allowed: float, *, usual: float | None = None) -> None:
    """Raises Wrong where the errors of an own part, which are columns of its row, are larger than allowed, or not
    numbers. `usual` is what PyTorch's errs in the same precision."""
    typical, largest = max(errors["output_error"], errors["gradient_error"]), errors["largest_error"]
    if typical <= allowed and largest <= TIMES_LARGEST * allowed:
        return
    beside = f"; PyTorch's errs by {usual:.1e}" if usual is not None else ""
    raise Wrong(
        f"{name} differs from float64: output by {errors['output_error']:.1e}, gradients by "
        f"{errors['gradient_error']:.1e}, their worst entry by {largest:.1e}{beside}.",
        expected=f"at most {allowed:.1e}, and {TIMES_LARGEST * allowed:.1e} in one entry",
        values={key: value for key, value in errors.items() if math.isfinite(value)},
    )


def check_parts(cell: StepCell, device: Device) -> None:
    """Checks what of a step is the user's own. Raises Wrong, and BadModel where it cannot be used at all."""
    try:
        if is_own_part(cell.attention):
            shape = cell.shape
            size = (1, shape.heads, min(cell.context, MAX_CHECKED), shape.d_model // shape.heads)
            check_attention(cell.attention, size, cell.precision, device=device, causal=True)
        if is_own_part(cell.loss_function):
            _check_loss(cell, device)
        if is_own_part(cell.optimizer) and cell.mode == "train":
            _check_optimizer(cell.optimizer, device)
    except Wrong as error:  # whose values are columns of attention alone
        raise Wrong(str(error), values={}) from None


def _check_loss(cell: StepCell, device: Device) -> None:
    """Compares an own loss and its gradient with PyTorch's cross-entropy in float64, on logits of the step's dtype."""
    torch.manual_seed(SEED)
    count, dtype = min(cell.batch * cell.context, MAX_CHECKED), precision.product_dtype(cell.precision)
    logits = torch.randn((count, cell.shape.vocabulary), dtype=dtype, device=device.torch, requires_grad=True)
    targets = torch.randint(cell.shape.vocabulary, (count,), device=device.torch)

    def run(compute: Callable[[Tensor, Tensor], Tensor], logits: Tensor) -> tuple[Tensor, Tensor]:
        with precision.autocast(cell, device):
            value: Any = compute(logits, targets)
        if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
            raise BadModel(f"{cell.loss_function} returned {value!r:.80}.", expected="one number with a gradient")
        return value, torch.autograd.grad(value.reshape(()), logits)[0]

    exact = precision.to_float64(logits).requires_grad_()
    loss = functional.cross_entropy(exact, targets.to(exact.device))
    (reference,), value = torch.autograd.grad(loss, exact), loss.detach()
    own, usual = run(load_part(cell.loss_function), logits), run(functional.cross_entropy, logits)
    errors = {
        "output_error": float((precision.to_float64(own[0]) - value).abs() / value),
        "gradient_error": relative_error(own[1], reference),
        "largest_error": _largest_error(own[1], reference),
    }
    costs = relative_error(usual[1], reference)
    require_right(cell.loss_function, errors, max(TOLERANCE[cell.precision], TIMES_USUAL * costs), usual=costs)


def _check_optimizer(name: str, device: Device) -> None:
    torch.manual_seed(SEED)
    parameters = [nn.Parameter(torch.randn(size, device=device.torch)) for size in ((16, 16), (16,))]
    before = [parameter.detach().clone() for parameter in parameters]
    optimizer = load_part(name)(iter(parameters))
    if missing := [one for one in ("step", "zero_grad", "state") if not hasattr(optimizer, one)]:
        raise BadModel(f"{name} returned {type(optimizer).__name__}, without {', '.join(missing)}.",
                       expected="an optimizer such as those of torch.optim")  # fmt: skip
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    for parameter, old in zip(parameters, before, strict=True):
        if not parameter.isfinite().all() or torch.equal(parameter, old):
            raise Wrong(
                f"A step of {name} left parameters of shape {tuple(old.shape)} unchanged or not finite.", values={}
            )
