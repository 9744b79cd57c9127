"""Predicts what a step costs from the model's shape: parameters, matrix-product FLOPs, bytes.

    >>> step_flops(cell)                    # cell: runner.schema.StepCell
    >>> predict_peak(cell).total          # and its parts: parameters, gradients, optimizer state, activations, ...

Letters: B batch, T context, d model width, f feed-forward width, L layers, H heads, V vocabulary, N = B T tokens.
FLOPs count matrix products only (a multiply and an add are two), so softmax, norms and the optimizer cost nothing here.
The model is runner/models/transformer.py, run eagerly; activations are in activations.py.

The peak is the greatest of the moments at which memory can peak, each with its parts (`forward_moments`,
`backward_moments`); `activations` counts what a block keeps and what it holds for a moment.
"""

from dataclasses import dataclass, fields, replace
from typing import Literal

from runner.analysis.costs.activations import (
    FLOAT_BYTES,
    TOKEN_BYTES,
    Device,
    checkpoint_groups,
    checkpointed_stream_bytes,
    forward_temporary_bytes,
    head_input_bytes,
    is_autocast,
    is_unfused,
    product_bytes,
    residual_stream_bytes,
    rotary_bytes,
    saved_bytes,
    softmax_backward_bytes,
    swiglu_backward_bytes,
    tensors_retained_at,
    unsaved_attention_bytes,
    unsaved_feed_forward_bytes,
    unsaved_streams,
    weight_bytes,
    workspace_bytes,
)
from runner.analysis.costs.activations import logits_bytes as logits_bytes
from runner.schema import ModelCell

#: The tensors of N V numbers in cross-entropy's backward pass: log-softmax, its gradient, the logits' gradient.
LOSS_TENSORS = 3
#: The moments at which a step's memory can peak. `last block` and `first block` are moments of the backward pass, which
#: begins with the last block; `end` is the end of backward or, in train, the optimizer.
Moment = Literal["forward", "loss", "last block", "first block", "end"]


@dataclass(frozen=True, kw_only=True)
class PeakBytes:
    """The bytes held at one moment, in the parts of a measured peak's breakdown. `temporaries` are logits, and what the
    loss, a block's backward pass or the optimizer needs for a moment."""

    moment: Moment
    parameters: int
    optimizer_state: int
    inputs: int
    workspace: int
    gradients: int = 0
    activations: int = 0
    autocast_copies: int = 0
    temporaries: int = 0

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """Bytes by part."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "moment"}


def forward_moments(cell: ModelCell, device: Device, held: PeakBytes) -> list[PeakBytes]:
    """Returns the moments of the forward pass: the logits and, in the last block, the largest of attention and of
    SwiGLU. Autocast makes each copy of a weight when it is needed, and keeps all until the forward pass ends."""
    saved = saved_bytes(cell, device=device)
    logits, inference = logits_bytes(cell), cell.mode == "inference"
    copies = saved.layers * saved.weight_copies + saved.head_copy
    if not inference and not cell.checkpoint_blocks:
        temporaries = max(logits + head_input_bytes(cell), forward_temporary_bytes(cell, device=device))
        kept = retained_activation_bytes(cell, device=device)
        return [replace(held, activations=kept, autocast_copies=copies, temporaries=temporaries)]
    stream = residual_stream_bytes(cell)
    narrow, streams = product_bytes(cell), unsaved_streams(cell) * stream
    to_come = (
        cell.shape.d_model**2 + 3 * cell.shape.d_model * cell.shape.d_ff,
        cell.shape.d_model * cell.shape.d_ff,
    )  # weights not yet multiplied
    before = [copies - saved.head_copy - count * narrow if copies else 0 for count in to_come]
    attention = unsaved_attention_bytes(cell, device=device)
    feed_forward = unsaved_feed_forward_bytes(cell)
    # The head reads the stream and its norm, under autocast in half precision; checkpointed streams are kept as well.
    cast = cell.batch * cell.context * cell.shape.d_model * narrow if copies else 0
    head = 2 * stream + cast if inference else head_input_bytes(cell)
    kept = 0 if inference else retained_activation_bytes(cell, device=device)
    return [
        replace(held, autocast_copies=before[0], activations=0 if inference else streams,
                temporaries=attention + (streams if inference else 0)),
        replace(held, autocast_copies=before[1], activations=0 if inference else streams,
                temporaries=feed_forward + (streams if inference else 0)),
        replace(held, autocast_copies=copies, activations=kept, temporaries=logits + head),
    ]  # fmt: skip


def retained_activation_bytes(cell: ModelCell, *, device: Device = "cuda") -> int:
    """Returns `retained_bytes` without autocast's copies of weights and without the inputs."""
    saved = saved_bytes(cell, device=device)
    if cell.checkpoint_blocks:
        return checkpointed_stream_bytes(cell) + saved.outside
    return saved.layers * (saved.block - saved.weight_copies) + saved.outside


def backward_moments(cell: ModelCell, device: Device, held: PeakBytes, *, ending: int) -> list[PeakBytes]:
    """Returns the moments of backward: that of the loss, that of the last block, which comes first, that of the first
    block, and the end of the step, where the optimizer needs `ending` temporary bytes."""
    saved = saved_bytes(cell, device=device)
    kept, block = retained_activation_bytes(cell, device=device), saved.block - saved.weight_copies
    gradients, table = held.parameters, cell.shape.vocabulary * cell.shape.d_model * weight_bytes(cell)
    norm = cell.shape.d_model * weight_bytes(cell)
    in_block = (gradients - 2 * table - norm) // cell.shape.layers
    # Blocks whose tensors exist when the last block's backward begins, and when the first group's does.
    together, copied = min(cell.checkpoint_blocks or 1, cell.shape.layers), saved.layers * saved.weight_copies
    before_last, streams = cell.shape.layers - 1, 0
    if cell.checkpoint_blocks:
        copied = 0
        before_last = cell.shape.layers - (checkpoint_groups(cell) - 1) * together - 1
        streams = checkpointed_stream_bytes(cell) - residual_stream_bytes(cell)

    def within(moment: Moment, *, blocks: int, streams: int, gradients: int) -> list[PeakBytes]:
        beside = replace(held, moment=moment, gradients=gradients, activations=streams + blocks * block,
                         autocast_copies=blocks * saved.weight_copies)  # fmt: skip
        return _block_moments(cell, device, beside)

    return [
        _loss_moment(cell, device, replace(held, activations=kept, autocast_copies=copied + saved.head_copy)),
        *within("last block", blocks=before_last, streams=streams, gradients=table + norm),
        *within("first block", blocks=together - 1, streams=0, gradients=gradients - table - together * in_block),
        replace(held, moment="end", gradients=gradients, temporaries=logits_bytes(cell) + ending),
    ]  # fmt: skip


def _loss_moment(cell: ModelCell, device: Device, beside: PeakBytes) -> PeakBytes:
    """Returns the moment of cross-entropy's backward pass, beside the parts that the blocks hold. On CUDA under
    autocast the logits and their gradient are kept in their own dtype (measured on an H200); elsewhere the gradient is
    as wide as log-softmax."""
    log_softmax, logits = loss_bytes(cell) // LOSS_TENSORS, logits_bytes(cell)
    kept, temporaries = log_softmax, logits + loss_bytes(cell) - log_softmax
    if device == "cuda" and is_autocast(cell):
        kept, temporaries = log_softmax + logits, log_softmax + logits
    return replace(beside, moment="loss", activations=beside.activations + kept, temporaries=temporaries)


def _block_moments(cell: ModelCell, device: Device, beside: PeakBytes) -> list[PeakBytes]:
    """Returns the moments of a block's backward pass: SwiGLU's, when the gradient of one matrix exists, and an unfused
    softmax's, when those of four matrices and of a norm exist. `beside` has the parts outside of that block."""
    d, width = cell.shape.d_model, weight_bytes(cell)

    def moment(needing: tuple[str, str], *, gradients: int, temporaries: int) -> PeakBytes:
        kept = tensors_retained_at(cell, needing=needing, device=device)
        copies = sum(item.size for item in kept if item.is_weight_copy)
        return replace(
            beside,
            gradients=beside.gradients + gradients,
            activations=beside.activations + sum(item.size for item in kept) - copies,
            autocast_copies=beside.autocast_copies + copies,
            temporaries=logits_bytes(cell) + temporaries,
        )

    found = [
        moment(("feed_forward", "up"), gradients=d * cell.shape.d_ff * width, temporaries=swiglu_backward_bytes(cell))
    ]
    if is_unfused(cell):
        done = (3 * d * cell.shape.d_ff + d * d + d) * width
        temporaries = softmax_backward_bytes(cell, device=device)
        found.append(moment(("attention", "probabilities"), gradients=done, temporaries=temporaries))
    return found


def loss_bytes(cell: ModelCell) -> int:
    """Returns the bytes that cross-entropy holds when backward begins: log-softmax, its gradient and the logits' (N V
    each), in float32 under autocast."""
    number_bytes = FLOAT_BYTES if is_autocast(cell) else product_bytes(cell)
    return LOSS_TENSORS * cell.batch * cell.context * cell.shape.vocabulary * number_bytes


#: AdamW keeps two moments of each parameter, in the parameter's dtype.
ADAMW_MOMENTS = 2
#: The bytes of AdamW's step counter, of which each parameter tensor has one, and the number of parameter tensors.
STEP_BYTES, TENSORS_IN_BLOCK, TENSORS_OUTSIDE = 4, 9, 3


def matrix_parameters(cell: ModelCell) -> int:
    """Returns the number of weights in matrix products: L (4 d^2 + 3 d f) + V d. The embedding is looked up, and the
    norms' gains scale, so neither counts."""
    d = cell.shape.d_model
    return cell.shape.layers * (4 * d * d + 3 * d * cell.shape.d_ff) + cell.shape.vocabulary * d


def parameter_count(cell: ModelCell) -> int:
    """Returns the number of trainable parameters: 2 V d + L (4 d^2 + 3 d f + 2 d) + d."""
    return (
        matrix_parameters(cell)
        + cell.shape.vocabulary * cell.shape.d_model
        + (2 * cell.shape.layers + 1) * cell.shape.d_model
    )


@dataclass(frozen=True, kw_only=True)
class Flops:
    """Matrix-product FLOPs of one forward pass by kind of layer, summed over all layers."""

    projections: int
    attention: int
    feed_forward: int
    head: int

    @property
    def total(self) -> int:
        return self.projections + self.attention + self.feed_forward + self.head


def forward_flops(cell: ModelCell) -> Flops:
    """Returns the FLOPs of one forward pass. A product of (m, k) and (k, n) takes 2 m n k; attention is two such
    products, 4 B H T^2 (d / H) in all.

    The whole square of scores counts, although half of it is masked: `naive` computes all of it, and a rate in FLOP/s
    means the same for every implementation. A fused causal kernel that skips the masked half may therefore exceed its
    peak. Source: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters", appendix."""
    tokens, d = cell.batch * cell.context, cell.shape.d_model
    return Flops(
        projections=cell.shape.layers * 2 * tokens * 4 * d * d,
        attention=cell.shape.layers * 4 * tokens * cell.context * d,
        feed_forward=cell.shape.layers * 2 * tokens * 3 * d * cell.shape.d_ff,
        head=2 * tokens * d * cell.shape.vocabulary,
    )


def recomputed_flops(cell: ModelCell) -> int:
    """Returns the FLOPs that checkpointing adds: every block's forward pass once more, less one down projection for
    each group of blocks.

    PyTorch ends the second forward pass as soon as the last tensor that backward needs exists, which is before the
    group's last product."""
    if not cell.checkpoint_blocks:
        return 0
    forward = forward_flops(cell)
    down_projection = 2 * cell.batch * cell.context * cell.shape.d_model * cell.shape.d_ff
    return forward.total - forward.head - checkpoint_groups(cell) * down_projection


def step_flops(cell: ModelCell) -> int:
    """Returns the FLOPs of one step in the cell's mode. Backward takes twice as many as forward, because each product y
    = x w needs one for dx and one for dw.

    The scores that a fused attention backward computes again are not counted, nor is the optimizer."""
    forward = forward_flops(cell).total
    if cell.mode in ("inference", "forward"):
        return forward
    return 3 * forward + recomputed_flops(cell)


def parameter_bytes(cell: ModelCell) -> int:
    """Returns the bytes of the parameters in their own dtype. Autocast's copies of them count as activations."""
    return parameter_count(cell) * weight_bytes(cell)


def gradient_bytes(cell: ModelCell) -> int:
    """Returns the bytes of the gradients, which have the parameters' dtype."""
    return parameter_bytes(cell)


def optimizer_state_bytes(cell: ModelCell) -> int:
    """Returns the bytes of AdamW's two moments (Loshchilov and Hutter 2019) after its first step; 0 in other modes."""
    return ADAMW_MOMENTS * parameter_bytes(cell) if cell.mode == "train" else 0


def predict_peak(cell: ModelCell, *, device: Device = "cuda", gpu: str = "") -> PeakBytes:
    """Returns the peak of a step that is not the first of its process, which is the greatest of a few moments. `gpu` is
    the device's name, which decides the size of cuBLAS's workspace.

    During backward, activations are freed as gradients appear, block by block, so their sum is greatest at the start or
    at the end. Logits live until the step ends; gradients are freed between steps. Left out are the allocator's
    rounding and fragmentation, scratch of oneDNN and of fused kernels, the CUDA context (hundreds of MB, outside the
    allocator), and all that a compiler saves."""
    held = PeakBytes(
        moment="forward",
        parameters=parameter_bytes(cell),
        optimizer_state=optimizer_state_bytes(cell),
        inputs=2 * cell.batch * cell.context * TOKEN_BYTES + rotary_bytes(cell),
        workspace=_workspace_bytes(cell, device, gpu),
    )
    moments = forward_moments(cell, device, held)
    if cell.mode in ("backward", "train"):
        ending = optimizer_temporary_bytes(cell) if cell.mode == "train" else 0
        moments += backward_moments(cell, device, held, ending=ending)
    return max(moments, key=lambda moment: moment.total)


def _workspace_bytes(cell: ModelCell, device: Device, gpu: str) -> int:
    """Returns the bytes of cuBLAS's workspaces, one for each thread that runs products, of which autograd has a second.
    AdamW's step counters (4 bytes a parameter tensor) are on the CPU unless it is fused."""
    counters = STEP_BYTES * (TENSORS_IN_BLOCK * cell.shape.layers + TENSORS_OUTSIDE) if cell.mode == "train" else 0
    if device != "cuda":
        return counters
    threads = 1 if cell.mode in ("inference", "forward") else 2
    return threads * workspace_bytes(gpu) + (counters if cell.optimizer == "fused" else 0)


def optimizer_temporary_bytes(cell: ModelCell) -> int:
    """Returns the bytes of AdamW's denominator: that of all parameters at once (foreach), none because it stays in
    registers (fused), or that of one parameter with its root, its quotient and the previous parameter's (for-loop)."""
    largest = max(cell.shape.vocabulary, cell.shape.d_ff, cell.shape.d_model) * cell.shape.d_model * weight_bytes(cell)
    return {"foreach": parameter_bytes(cell), "for-loop": 3 * largest, "fused": 0}.get(cell.optimizer, 0)


def best_checkpoint(cell: ModelCell, *, device: Device = "cuda") -> int:
    """Returns how many blocks recomputed together need the least memory in forward and backward, the fewest of equal
    ones. L / k streams and k blocks' tensors are held, so that k is about √(L × stream / block), and at least 1."""
    plain, sizes = replace(cell, mode="backward"), range(1, cell.shape.layers + 1)
    return min(sizes, key=lambda k: predicted_peak_bytes(replace(plain, checkpoint_blocks=k), device=device))


def predicted_peak_bytes(cell: ModelCell, *, device: Device = "cuda", gpu: str = "") -> int:
    """Returns `predict_peak(cell).total`, in bytes."""
    return predict_peak(cell, device=device, gpu=gpu).total
