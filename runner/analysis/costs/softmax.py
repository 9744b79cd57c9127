"""Counts the FLOPs of softmax, beside the matrix products around it, which take 2 n m k each.

    softmax_flops(cell, phase="forward") / attention_flops(...)

Convention: for every attention weight, forward counts the comparison for the maximum, the subtraction, the exponential,
the addition to the sum and the division, one each; backward, P ∘ (dP - sum(P ∘ dP)), a product and an addition for the
sum, a subtraction and a product. Masked weights count too: the written-out implementation computes them. Limits: an
exponential costs more than an addition; what a kernel really executes is not counted here.
"""

from runner.schema import ProfileCell

_FORWARD, _BACKWARD = 5, 4


def softmax_flops(cell: ProfileCell, *, phase: str) -> int:
    """Returns the FLOPs of all softmaxes of a model's attention in one phase of a step, 0 in phases without any.
    Checkpointed blocks compute their forward pass again during backward."""
    weights = cell.shape.layers * cell.batch * cell.shape.heads * cell.context**2
    again = _FORWARD if cell.checkpoint_blocks else 0
    return weights * {"forward": _FORWARD, "backward": _BACKWARD + again}.get(phase, 0)
