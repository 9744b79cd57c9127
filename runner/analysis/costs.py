"""What a step must cost, from its shape alone: parameters, matrix-product FLOPs, bytes.

    >>> step_flops(cell)                    # cell: runner.schema.StepCell
    >>> predicted_peak(cell).total_bytes    # and its parts: parameters, gradients, optimizer state, activations, ...

Letters: B batch, T context, d model width, f feed-forward width, L layers, H heads, V vocabulary, N = B T tokens.
FLOPs count matrix products only (a multiply and an add are two), so softmax, norms and the optimizer cost nothing here.
The model is runner/models/transformer.py, run eagerly; activations have a file of their own, activations.py.
"""

from dataclasses import dataclass
from typing import Literal

from runner.analysis.activations import (
    FLOAT_BYTES,
    Device,
    backward_temporary_bytes,
    checkpoint_groups,
    checkpointed_stream_bytes,
    forward_temporary_bytes,
    inference_temporary_bytes,
    is_autocast,
    kept_bytes,
    product_bytes,
    residual_stream_bytes,
    saved_bytes,
    weight_bytes,
)
from runner.schema import ModelCell

#: AdamW keeps two moments of each parameter, in the parameter's dtype.
ADAMW_MOMENTS = 2


def matrix_parameters(cell: ModelCell) -> int:
    """Weights that multiply: L (4 d^2 + 3 d f) + V d. The embedding is looked up, the norms' gains scale."""
    d = cell.d_model
    return cell.layers * (4 * d * d + 3 * d * cell.d_ff) + cell.vocabulary * d


def parameter_count(cell: ModelCell) -> int:
    """All trainable parameters: 2 V d + L (4 d^2 + 3 d f + 2 d) + d."""
    return matrix_parameters(cell) + cell.vocabulary * cell.d_model + (2 * cell.layers + 1) * cell.d_model


@dataclass(frozen=True, kw_only=True)
class Flops:
    """Matrix-product operations of one forward pass, by the layer that does them, all layers together."""

    projections: int
    attention: int
    feed_forward: int
    head: int

    @property
    def total(self) -> int:
        return self.projections + self.attention + self.feed_forward + self.head


def forward_flops(cell: ModelCell) -> Flops:
    """One forward pass. A product of (m, k) and (k, n) is 2 m n k; attention is two such, 4 B H T^2 (d / H) in all.

    The square of scores is counted whole, although half of it is masked: `naive` computes it whole, and a rate in
    FLOP/s means the same for every implementation (a fused causal kernel that skips the masked half may so exceed its
    peak). Source: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters", appendix.
    """
    tokens, d = cell.batch * cell.context, cell.d_model
    return Flops(
        projections=cell.layers * 2 * tokens * 4 * d * d,
        attention=cell.layers * 4 * tokens * cell.context * d,
        feed_forward=cell.layers * 2 * tokens * 3 * d * cell.d_ff,
        head=2 * tokens * d * cell.vocabulary,
    )


def recomputed_flops(cell: ModelCell) -> int:
    """What checkpointing adds: every block's forward once more, less one down projection for each group of blocks.

    PyTorch ends the second forward as soon as the last tensor that backward needs is there: before the group's last
    product, whose output nobody needs.
    """
    if not cell.checkpoint_blocks:
        return 0
    forward = forward_flops(cell)
    down_projection = 2 * cell.batch * cell.context * cell.d_model * cell.d_ff
    return forward.total - forward.head - checkpoint_groups(cell) * down_projection


def step_flops(cell: ModelCell) -> int:
    """One step of the cell's mode. Backward is twice forward: each product y = x w needs one for dx and one for dw.

    Work that a fused attention backward repeats (it computes the scores again) is not counted, nor is the optimizer.
    """
    forward = forward_flops(cell).total
    if cell.mode in ("inference", "forward"):
        return forward
    return 3 * forward + recomputed_flops(cell)


def parameter_bytes(cell: ModelCell) -> int:
    """The parameters as they are held; autocast's copies of them are part of the activations."""
    return parameter_count(cell) * weight_bytes(cell)


def gradient_bytes(cell: ModelCell) -> int:
    """One gradient for each parameter, in the parameter's dtype."""
    return parameter_bytes(cell)


def optimizer_state_bytes(cell: ModelCell) -> int:
    """AdamW's two moments (Loshchilov and Hutter 2019) from its first step on; 0 in modes without an optimizer."""
    return ADAMW_MOMENTS * parameter_bytes(cell) if cell.mode == "train" else 0


#: When a step's memory can peak. `last block` and `first block` are moments of the backward pass, which begins with the
#: last block; `end` is the end of backward or, in train, the optimizer.
Moment = Literal["forward", "loss", "last block", "first block", "end"]


@dataclass(frozen=True, kw_only=True)
class PeakBytes:
    """What is held at the moment of the peak. `temporaries` are logits, and what the loss, a block's backward or the
    optimizer needs for a while."""

    moment: Moment
    parameters: int
    gradients: int
    optimizer_state: int
    activations: int
    temporaries: int

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer_state + self.activations + self.temporaries


def predicted_peak(cell: ModelCell, *, device: Device = "cuda") -> PeakBytes:
    """The peak of a step that is not the first of its process: the greatest of a few moments, worked out one by one.

    While backward runs, activations are given back as gradients appear, block by block, so what both hold together is
    greatest at the start or at the end. Logits live until the step ends; gradients are freed between steps. Left out:
    what the allocator rounds up and fragments, workspaces of matrix products (tens of MB), the CUDA context (hundreds
    of MB, outside the allocator), scratch of fused kernels, and all that a compiler saves.
    """
    moments = [_forward_moment(cell, device)]
    if cell.mode in ("backward", "train"):
        moments += _backward_moments(cell, device)
    return max(moments, key=lambda moment: moment.total)


def _forward_moment(cell: ModelCell, device: Device) -> PeakBytes:
    logits = logits_bytes(cell)
    if cell.mode == "inference":
        # Autocast keeps its copies of the weights until its context ends; the head reads a stream and its norm.
        kept = matrix_parameters(cell) * product_bytes(cell) if is_autocast(cell) else 0
        temporaries = max(logits + 2 * residual_stream_bytes(cell), inference_temporary_bytes(cell, device=device))
    else:
        kept = kept_bytes(cell, device=device)
        temporaries = max(logits, forward_temporary_bytes(cell, device=device))
    return PeakBytes(
        moment="forward",
        parameters=parameter_bytes(cell),
        gradients=0,
        optimizer_state=optimizer_state_bytes(cell),
        activations=kept,
        temporaries=temporaries,
    )


def _backward_moments(cell: ModelCell, device: Device) -> list[PeakBytes]:
    """The loss's backward; that of the last block, which comes first; that of the first block; the end of the step."""
    logits = logits_bytes(cell)
    working = logits + backward_temporary_bytes(cell, device=device)
    gradients, table = gradient_bytes(cell), cell.vocabulary * cell.d_model * weight_bytes(cell)
    together = min(cell.checkpoint_blocks or 1, cell.layers)
    group = together * saved_bytes(cell, device=device).block
    kept = kept_bytes(cell, device=device)
    first_pending = table + together * (gradients - 2 * table) // cell.layers
    ending = optimizer_temporary_bytes(cell) if cell.mode == "train" else 0

    def moment(name: Moment, *, gradients: int, activations: int, temporaries: int) -> PeakBytes:
        return PeakBytes(
            moment=name,
            parameters=parameter_bytes(cell),
            gradients=gradients,
            optimizer_state=optimizer_state_bytes(cell),
            activations=activations,
            temporaries=temporaries,
        )

    return [
        moment("loss", gradients=0, activations=kept, temporaries=logits + loss_bytes(cell)),
        moment(
            "last block",
            gradients=table,
            activations=checkpointed_stream_bytes(cell) + group if cell.checkpoint_blocks else kept,
            temporaries=working,
        ),
        moment("first block", gradients=gradients - first_pending, activations=group, temporaries=working),
        moment("end", gradients=gradients, activations=0, temporaries=logits + ending),
    ]


def logits_bytes(cell: ModelCell) -> int:
    """The model's output: N V numbers, in half precision under autocast."""
    return cell.batch * cell.context * cell.vocabulary * product_bytes(cell)


def loss_bytes(cell: ModelCell) -> int:
    """What cross-entropy holds when backward begins: log-softmax, its gradient and the logits' (N V each), in float32
    under autocast."""
    number_bytes = FLOAT_BYTES if is_autocast(cell) else product_bytes(cell)
    return 3 * cell.batch * cell.context * cell.vocabulary * number_bytes


def optimizer_temporary_bytes(cell: ModelCell) -> int:
    """AdamW's denominator: of all parameters at once (foreach), in registers (fused), or of one parameter, as its root,
    its quotient and the previous parameter's (for-loop)."""
    largest = max(cell.vocabulary, cell.d_ff, cell.d_model) * cell.d_model * weight_bytes(cell)
    return {"foreach": parameter_bytes(cell), "for-loop": 3 * largest, "fused": 0}[cell.optimizer]


def predicted_peak_bytes(cell: ModelCell, *, device: Device = "cuda") -> int:
    """`predicted_peak(cell).total`, in bytes."""
    return predicted_peak(cell, device=device).total
