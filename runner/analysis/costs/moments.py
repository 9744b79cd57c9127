"""Lists the moments at which a step's memory can peak, each with its parts, from the model's shape.

    >>> max(forward_moments(cell, "cpu", held), key=lambda moment: moment.total).temporaries

`held` has the parts that exist throughout the step; `runner.analysis.costs.steps.predict_peak` fills it in and takes
the greatest moment. Letters are those of `runner.analysis.costs.activations`, which counts what a block keeps and what
it holds for a moment.
"""

from dataclasses import dataclass, fields, replace
from typing import Literal

from runner.analysis.costs.activations import (
    FLOAT_BYTES,
    Device,
    checkpoint_groups,
    checkpointed_stream_bytes,
    forward_temporary_bytes,
    head_input_bytes,
    is_autocast,
    is_unfused,
    logits_bytes,
    product_bytes,
    residual_stream_bytes,
    saved_bytes,
    softmax_backward_bytes,
    swiglu_backward_bytes,
    tensors_retained_at,
    unsaved_attention_bytes,
    unsaved_feed_forward_bytes,
    unsaved_streams,
    weight_bytes,
)
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
        moment(("feed_forward", "up"), gradients=d * cell.shape.d_ff * width, temporaries=swiglu_backward_bytes(cell)),
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
