"""What single-head attention must cost, from its shape alone: FLOPs, and the bytes of its tensors.

    >>> forward_flops(cell)           # cell: runner.schema.AttentionCell
    >>> peak_breakdown(cell)              # the tensors alive at the peak, each with its formula and bytes

B problems of S queries, keys and values, d wide. FLOPs by FlashAttention's convention: 4 B S² d forward, 2.5 times that
backward, half of both if causal (Dao 2023, "FlashAttention-2", section 4.1: the forward pass is two matrix products of
2 B S² d each, the backward pass five). Bytes follow from the life of each tensor (`attention_tensors`).
"""

from collections.abc import Sequence

from runner.analysis.costs.activations import Device
from runner.analysis.costs.allocator import Lifetime, reserved_bytes
from runner.analysis.costs.attention_tensors import ELEMENT_BYTES, AttentionTensor, moments, tensors
from runner.analysis.costs.tensors import PredictedTensor
from runner.schema import AttentionCell


def forward_flops(cell: AttentionCell) -> int:
    """Products of queries with keys and of probabilities with values."""
    return 4 * cell.batch * cell.seq_len**2 * cell.d_head // (2 if cell.causal else 1)


def backward_flops(cell: AttentionCell) -> int:
    """Five products where forward has two."""
    return forward_flops(cell) * 5 // 2


def forward_bytes(cell: AttentionCell) -> int:
    """Queries, keys and values read once, the output written once: what no implementation can do without."""
    return 4 * cell.batch * cell.seq_len * cell.d_head * ELEMENT_BYTES[cell.precision]


def square_bytes(cell: AttentionCell) -> int:
    """One S×S tensor of all problems, in the cell's precision."""
    return cell.batch * cell.seq_len**2 * ELEMENT_BYTES[cell.precision]


def saved_bytes(cell: AttentionCell, *, device: Device = "cpu") -> int:
    """What autograd keeps for the backward pass: what torch.autograd.graph.saved_tensors_hooks sees, each once."""
    return sum(item.size for item in saved_tensors(cell, device=device))


def saved_tensors(cell: AttentionCell, *, device: Device = "cpu") -> list[PredictedTensor]:
    """The same, one by one."""
    saved = [held for held in tensors(cell, device=device) if held.is_saved]
    return [PredictedTensor(tensor=held.tensor, formula=held.formula, size=held.size) for held in saved]


def before_backward_bytes(cell: AttentionCell, *, device: Device = "cpu", gpu: str = "") -> int:
    """All that is alive between the passes: inputs, output, the output's gradient, and what is saved."""
    return _alive(tensors(cell, device=device, gpu=gpu), moments(cell).index("between"))


def predicted_peak_bytes(cell: AttentionCell, *, device: Device = "cpu", gpu: str = "") -> int:
    """The most that is alive at once in one iteration, gradients of the iteration before gone."""
    return sum(size for _, _, size in peak_breakdown(cell, device=device, gpu=gpu))


def predicted_reserved_bytes(cell: AttentionCell, *, gpu: str = "") -> int:
    """What CUDA's caching allocator must take for one iteration: an estimate, within 2% of an H200's count for what is
    written out, which holds a square more than is ever alive. A freed square that a mask was put into is whole no more.
    """
    lives = [
        Lifetime(size=held.size, first=held.first, last=held.last) for held in tensors(cell, device="cuda", gpu=gpu)
    ]
    return reserved_bytes(lives, moments=len(moments(cell)))


def peak_breakdown(cell: AttentionCell, *, device: Device = "cpu", gpu: str = "") -> list[tuple[str, str, int]]:
    """(tensor, its formula in words, bytes) of all that is alive at the peak; the sum is the predicted peak."""
    held = tensors(cell, device=device, gpu=gpu)
    peak = max(range(len(moments(cell))), key=lambda moment: _alive(held, moment))
    return [(item.tensor, item.formula, item.size) for item in held if item.first <= peak <= item.last]


def _alive(held: Sequence[AttentionTensor], moment: int) -> int:
    return sum(item.size for item in held if item.first <= moment <= item.last)
