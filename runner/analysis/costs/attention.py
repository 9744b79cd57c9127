"""Predicts what single-head attention costs from its shape: FLOPs, and the bytes of its tensors.

    >>> forward_flops(cell)           # cell: runner.schema.AttentionCell
    >>> peak_breakdown(cell)              # the tensors alive at the peak, each with its formula and bytes

B problems of S queries, keys and values, d wide. FLOPs by FlashAttention's convention: 4 B S² d forward, 2.5 times that
backward, half of both if causal (Dao 2023, "FlashAttention-2", section 4.1: the forward pass is two matrix products of
2 B S² d each, the backward pass five). Bytes follow from the lifetime of each tensor (`attention_tensors`).
"""

from collections.abc import Sequence

from runner.analysis.costs.activations import Device
from runner.analysis.costs.allocator import Lifetime, reserved_bytes
from runner.analysis.costs.attention_tensors import ELEMENT_BYTES, AttentionTensor, moments, tensors
from runner.analysis.costs.tensors import PredictedTensor
from runner.schema import AttentionCell


def forward_flops(cell: AttentionCell) -> int:
    """Returns the FLOPs of the products of queries with keys and of probabilities with values."""
    return 4 * cell.batch * cell.seq_len**2 * cell.d_head // (2 if cell.causal else 1)


def backward_flops(cell: AttentionCell) -> int:
    """Returns the FLOPs of the backward pass, which has five products where forward has two."""
    return forward_flops(cell) * 5 // 2


def forward_bytes(cell: AttentionCell) -> int:
    """Returns the least bytes that any implementation moves: queries, keys and values are read once, the output is
    written once."""
    return 4 * cell.batch * cell.seq_len * cell.d_head * ELEMENT_BYTES[cell.precision]


def square_bytes(cell: AttentionCell) -> int:
    """Returns the bytes of one S×S tensor of all problems, in the cell's precision."""
    return cell.batch * cell.seq_len**2 * ELEMENT_BYTES[cell.precision]


def saved_bytes(cell: AttentionCell, *, device: Device = "cpu") -> int:
    """Returns the bytes that autograd keeps for the backward pass, as torch.autograd.graph.saved_tensors_hooks sees
    them, each once."""
    return sum(item.size for item in saved_tensors(cell, device=device))


def saved_tensors(cell: AttentionCell, *, device: Device = "cpu") -> list[PredictedTensor]:
    """Returns the tensors that autograd keeps for the backward pass."""
    saved = [held for held in tensors(cell, device=device) if held.is_saved]
    return [PredictedTensor(tensor=held.tensor, formula=held.formula, size=held.size) for held in saved]


def before_backward_bytes(cell: AttentionCell, *, device: Device = "cpu", gpu: str = "") -> int:
    """Returns the bytes alive between the passes: inputs, output, the output's gradient, and the saved tensors."""
    return _sum_alive(tensors(cell, device=device, gpu=gpu), moments(cell).index("between"))


def predicted_peak_bytes(cell: AttentionCell, *, device: Device = "cpu", gpu: str = "") -> int:
    """Returns the most bytes alive at once in one iteration, after the gradients of the iteration before were freed."""
    return sum(size for _, _, size in peak_breakdown(cell, device=device, gpu=gpu))


def predicted_reserved_bytes(cell: AttentionCell, *, gpu: str = "") -> int:
    """Returns an estimate of the bytes that CUDA's caching allocator reserves for one iteration. For unfused attention
    it is within 2% of an H200's count, which is one square more than is ever alive: a freed square in which a mask was
    placed no longer has room for another."""
    lives = [
        Lifetime(size=held.size, first=held.first, last=held.last) for held in tensors(cell, device="cuda", gpu=gpu)
    ]
    return reserved_bytes(lives, moments=len(moments(cell)))


def peak_breakdown(cell: AttentionCell, *, device: Device = "cpu", gpu: str = "") -> list[tuple[str, str, int]]:
    """Returns (tensor, formula, bytes) of every tensor alive at the peak. Their sum is the predicted peak."""
    held = tensors(cell, device=device, gpu=gpu)
    peak = max(range(len(moments(cell))), key=lambda moment: _sum_alive(held, moment))
    return [(item.tensor, item.formula, item.size) for item in held if item.first <= peak <= item.last]


def _sum_alive(held: Sequence[AttentionTensor], moment: int) -> int:
    """Returns the bytes alive in a moment."""
    return sum(item.size for item in held if item.first <= moment <= item.last)
