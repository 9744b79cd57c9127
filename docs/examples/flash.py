"""FlashAttention-2 in Triton (Dao 2023), forward and backward, short enough to read.

    stepscope sweep --preset flash --attention docs/examples/flash.py:flash,sdpa-flash --precisions bf16

A program holds a tile of queries and walks over tiles of keys and values, so that no S × S tensor is written. Exponents
are of base 2. Of each row it keeps the logarithm of its softmax's sum, which gives the backward pass the weights again.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _load(tensor, base, rows, length, d: tl.constexpr):
    places = base + rows[:, None] * d + tl.arange(0, d)[None, :]
    return tl.load(tensor + places, mask=rows[:, None] < length, other=0.0)


@triton.jit
def _store(tensor, base, rows, length, values, d: tl.constexpr):
    places = base + rows[:, None] * d + tl.arange(0, d)[None, :]
    tl.store(tensor + places, values.to(tensor.dtype.element_ty), mask=rows[:, None] < length)


@triton.jit
def _scores(q, k, rows, columns, scale, length, causal: tl.constexpr, exact: tl.constexpr):
    scores = tl.dot(q, tl.trans(k), input_precision=exact) * scale
    visible = columns[None, :] < length
    if causal:
        visible = visible & (rows[:, None] >= columns[None, :])
    return tl.where(visible, scores, float("-inf"))


@triton.jit
def _forward(q, k, v, out, logs, scale, length, d: tl.constexpr, tile: tl.constexpr, step: tl.constexpr,
             causal: tl.constexpr, exact: tl.constexpr):  # fmt: skip
    first, problem = tl.program_id(0) * tile, tl.program_id(1).to(tl.int64)
    base, rows = problem * length * d, first + tl.arange(0, tile)
    q_tile = _load(q, base, rows, length, d)
    largest = tl.full((tile,), float("-inf"), tl.float32)
    total, mixed = tl.zeros((tile,), tl.float32), tl.zeros((tile, d), tl.float32)
    end = tl.minimum(first + tile, length) if causal else length
    for start in range(0, end, step):
        columns = start + tl.arange(0, step)
        scores = _scores(q_tile, _load(k, base, columns, length, d), rows, columns, scale, length, causal, exact)
        larger = tl.maximum(largest, tl.max(scores, 1))
        weights, shrink = tl.exp2(scores - larger[:, None]), tl.exp2(largest - larger)
        v_tile = _load(v, base, columns, length, d)
        mixed = mixed * shrink[:, None] + tl.dot(weights.to(v_tile.dtype), v_tile, input_precision=exact)
        total, largest = total * shrink + tl.sum(weights, 1), larger
    _store(out, base, rows, length, mixed / total[:, None], d)
    tl.store(logs + problem * length + rows, largest + tl.log2(total), mask=rows < length)


@triton.jit
def _gradients(q_tile, k_tile, v_tile, grad_tile, logs, deltas, problem, rows, columns, scale, length,
               causal: tl.constexpr, exact: tl.constexpr):  # fmt: skip
    """Returns the weights and the gradient of the scores, for a tile of rows and columns."""
    log = tl.load(logs + problem * length + rows, mask=rows < length, other=0.0)
    delta = tl.load(deltas + problem * length + rows, mask=rows < length, other=0.0)
    scores = _scores(q_tile, k_tile, rows, columns, scale, length, causal, exact)
    weights = tl.where(rows[:, None] < length, tl.exp2(scores - log[:, None]), 0.0)
    products = tl.dot(grad_tile, tl.trans(v_tile), input_precision=exact)
    return weights, weights * (products - delta[:, None])


@triton.jit
def _backward_keys(q, k, v, grad, logs, deltas, dk, dv, scale, length, d: tl.constexpr, tile: tl.constexpr,
                   step: tl.constexpr, causal: tl.constexpr, exact: tl.constexpr):  # fmt: skip
    first, problem = tl.program_id(0) * tile, tl.program_id(1).to(tl.int64)
    base, columns = problem * length * d, first + tl.arange(0, tile)
    k_tile, v_tile = _load(k, base, columns, length, d), _load(v, base, columns, length, d)
    dk_tile, dv_tile = tl.zeros((tile, d), tl.float32), tl.zeros((tile, d), tl.float32)
    for start in range(first // step * step if causal else 0, length, step):
        rows = start + tl.arange(0, step)
        q_tile, grad_tile = _load(q, base, rows, length, d), _load(grad, base, rows, length, d)
        weights, ds = _gradients(q_tile, k_tile, v_tile, grad_tile, logs, deltas, problem, rows, columns, scale, length,
                                 causal, exact)  # fmt: skip
        dv_tile += tl.dot(tl.trans(weights.to(grad_tile.dtype)), grad_tile, input_precision=exact)
        dk_tile += tl.dot(tl.trans(ds.to(q_tile.dtype)), q_tile, input_precision=exact)
    _store(dk, base, columns, length, dk_tile * (scale * 0.6931471805599453), d)
    _store(dv, base, columns, length, dv_tile, d)


@triton.jit
def _backward_queries(q, k, v, grad, logs, deltas, dq, scale, length, d: tl.constexpr, tile: tl.constexpr,
                      step: tl.constexpr, causal: tl.constexpr, exact: tl.constexpr):  # fmt: skip
    first, problem = tl.program_id(0) * tile, tl.program_id(1).to(tl.int64)
    base, rows = problem * length * d, first + tl.arange(0, tile)
    q_tile, grad_tile = _load(q, base, rows, length, d), _load(grad, base, rows, length, d)
    dq_tile = tl.zeros((tile, d), tl.float32)
    end = tl.minimum(first + tile, length) if causal else length
    for start in range(0, end, step):
        columns = start + tl.arange(0, step)
        k_tile, v_tile = _load(k, base, columns, length, d), _load(v, base, columns, length, d)
        _, ds = _gradients(q_tile, k_tile, v_tile, grad_tile, logs, deltas, problem, rows, columns, scale, length,
                           causal, exact)  # fmt: skip
        dq_tile += tl.dot(ds.to(k_tile.dtype), k_tile, input_precision=exact)
    _store(dq, base, rows, length, dq_tile * (scale * 0.6931471805599453), d)


class _Flash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        batch, heads, length, d = q.shape
        out, logs = torch.empty_like(q), torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
        wide = q.dtype == torch.float32
        ctx.how = {"scale": math.log2(math.e) / math.sqrt(d), "length": length, "d": d, "causal": causal,
                   "exact": "ieee" if wide else "tf32", "tile": 64 if wide else 128, "step": 32 if wide else 64,
                   "num_warps": 4 if d <= 64 else 8}  # fmt: skip
        _forward[triton.cdiv(length, ctx.how["tile"]), batch * heads](q, k, v, out, logs, **ctx.how)
        ctx.save_for_backward(q, k, v, out, logs)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, logs = ctx.saved_tensors
        batch, heads, length, _ = q.shape
        grad, (dq, dk, dv) = grad.contiguous(), (torch.empty_like(q) for _ in range(3))
        deltas = (out.float() * grad.float()).sum(-1)
        how = ctx.how | {"tile": 32 if ctx.how["exact"] == "ieee" else 64, "step": 32}
        grid = triton.cdiv(length, how["tile"]), batch * heads
        _backward_keys[grid](q, k, v, grad, logs, deltas, dk, dv, **how)
        _backward_queries[grid](q, k, v, grad, logs, deltas, dq, **how)
        return dq, dk, dv, None


def flash(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """Returns softmax(q kᵀ / √d) v. Tensors have the shape (batch, heads, sequence, d), d a power of two from 16 on."""
    return _Flash.apply(q, k, v, causal)
