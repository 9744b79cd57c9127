"""Reference outputs and gradients of attention in float64, a few rows at a time, to judge implementations by.

    expected = reference(q, k, v, grad, causal=True)
    relative_error(output, expected.output) <= TOLERANCE["bf16"]

Written from the equations, without autograd, so that it shares no code with what it judges: with P = softmax(Q Kᵀ / √d)
and dO the output's gradient, dV = Pᵀ dO, dP = dO Vᵀ, dS = P ∘ (dP − rowsum(dP ∘ P)), dQ = dS K / √d, dK = dSᵀ Q / √d
(Dao et al. 2022, "FlashAttention", appendix B.2). A block of rows at a time, it needs no S×S tensor.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from runner.schema import Precision

#: The largest ‖x − reference‖ / ‖reference‖ of the output and of each gradient: three to ten times that of PyTorch's
#: own implementations on a CPU up to 2048. The unit roundoffs are 6e-8 (fp32), 5e-4 (tf32, fp16) and 4e-3 (bf16).
TOLERANCE: Mapping[Precision, float] = {"fp32": 5e-6, "tf32": 5e-3, "fp16": 3e-3, "bf16": 2e-2}
ROWS = 128


class Reference(NamedTuple):
    """Shapes (batch, 1, seq_len, d_head), float64."""

    output: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor


@torch.no_grad()
def reference(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, *, causal: bool) -> Reference:
    """Returns output and gradients for the output gradient `grad`; all of shape (batch, 1, seq_len, d_head)."""
    q, k, v, grad = (tensor.detach().double() for tensor in (q, k, v, grad))
    result = Reference(*(torch.zeros_like(tensor) for tensor in (q, q, k, v)))
    length, scale = q.shape[-2], 1 / math.sqrt(q.shape[-1])
    columns = torch.arange(length, device=q.device)
    for start in range(0, length, ROWS):
        rows = slice(start, min(start + ROWS, length))
        scores = q[..., rows, :] @ k.mT * scale
        if causal:
            scores.masked_fill_(columns > columns[rows, None], -math.inf)
        p = torch.softmax(scores, dim=-1)
        result.output[..., rows, :] = p @ v
        result.dv.add_(p.mT @ grad[..., rows, :])
        dp = grad[..., rows, :] @ v.mT
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * scale
        result.dq[..., rows, :] = ds @ k
        result.dk.add_(ds.mT @ q[..., rows, :])
    return result


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Returns ‖actual − expected‖ / ‖expected‖ in the Frobenius norm; NaN where `actual` has a NaN."""
    return float((actual.detach().double() - expected).norm() / expected.norm())
