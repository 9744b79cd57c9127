"""How many bytes of activations a step holds, from its shape alone: what backward needs, and what comes and goes.

    >>> saved_bytes(cell).total             # cell: runner.schema.StepCell
    >>> saved_activation_bytes(cell)        # with the cell's checkpointing

Letters: B batch, T context, d model width, f feed-forward width, L layers, H heads, V vocabulary, N = B T tokens.
Bytes are those of runner/models/transformer.py run eagerly, operator by operator; a compiled model fuses, and keeps
less. Sources: the derivative formulas of PyTorch's operators, and Korthikanti et al. 2022, "Reducing Activation
Recomputation in Large Transformer Models", section 4, for the way of counting.
"""

import math
from dataclasses import dataclass
from typing import Literal

from runner.schema import ModelCell

Device = Literal["cuda", "cpu", "mps"]

TOKEN_BYTES = 8
FLOAT_BYTES = 4


def is_autocast(cell: ModelCell) -> bool:
    """Whether autocast copies weights and inputs to a dtype of half the width before each product."""
    return cell.precision in ("bf16", "fp16") and cell.weights_dtype == "fp32"


def is_unfused(cell: ModelCell) -> bool:
    """Whether attention writes its B H T^2 scores to memory."""
    return cell.attention in ("naive", "sdpa-math")


def weight_bytes(cell: ModelCell) -> int:
    """Bytes of one number of a parameter, its gradient, its moments, and of the residual stream."""
    return 2 if cell.weights_dtype == "bf16" else 4


def product_bytes(cell: ModelCell) -> int:
    """Bytes of one number that goes into or comes out of a matrix product."""
    return 2 if is_autocast(cell) else weight_bytes(cell)


def residual_stream_bytes(cell: ModelCell) -> int:
    """One activation of the residual stream, N d numbers. Float32 under autocast too: the embedding is not cast."""
    return cell.batch * cell.context * cell.d_model * weight_bytes(cell)


def softmax_bytes(cell: ModelCell, *, device: Device = "cuda") -> int:
    """Bytes of one attention weight as softmax returns it. CUDA's autocast computes softmax in float32, CPU's does not;
    `sdpa-math` computes everything in float32."""
    wide = cell.attention == "sdpa-math" or (is_autocast(cell) and device == "cuda")
    return FLOAT_BYTES if wide else product_bytes(cell)


def scores_bytes(cell: ModelCell, *, number_bytes: int) -> int:
    """One tensor of attention scores of one layer: B H T^2 numbers."""
    return cell.batch * cell.heads * cell.context**2 * number_bytes


@dataclass(frozen=True, kw_only=True)
class SavedBytes:
    """What a forward pass keeps for the backward pass, parameters excluded; block parts are of one block."""

    norms: int
    attention: int
    feed_forward: int
    weight_copies: int
    outside: int
    layers: int

    @property
    def block(self) -> int:
        return self.norms + self.attention + self.feed_forward + self.weight_copies

    @property
    def total(self) -> int:
        return self.layers * self.block + self.outside


def saved_bytes(cell: ModelCell, *, device: Device = "cuda") -> SavedBytes:
    """What autograd saves when nothing is checkpointed; each piece of memory once. `total` agrees with
    torch.autograd.graph.saved_tensors_hooks to the byte on CPU, in fp32 and bf16, naive, sdpa-math and fused.

    - a norm, always in float32: its input, the normalized input (N d each) and 1 / rms (N);
    - attention: its input, the input of its output projection, queries, keys and values (N d each); then `naive` the
      weights (B H T^2) and the mask (T^2 bytes), a fused kernel its output (N d) and the log-sum-exp (B H T) instead;
    - SwiGLU: its input (N d), gate, silu(gate), up and their product (N f each);
    - outside the blocks: tokens, rotary tables, final norm, the head's input.

    Autocast adds a half-width copy of every matrix, and copies an input once for each product that reads it. On CUDA
    it computes softmax in float32 and casts the weights down again, so both are kept; on CPU softmax stays in half
    precision. `sdpa-math` computes half precision in float32 throughout.
    """
    tokens, wide, narrow = cell.batch * cell.context, FLOAT_BYTES, product_bytes(cell)
    stream = tokens * cell.d_model
    norm = 2 * stream * wide + tokens * wide
    copies = is_autocast(cell)
    rotary_tables = 2 * cell.context * (cell.d_model // cell.heads // 2) * wide
    return SavedBytes(
        norms=2 * norm,
        attention=((3 if copies else 1) + 1) * stream * narrow + _saved_inside_attention(cell, device),
        feed_forward=(2 if copies else 1) * stream * narrow + 4 * tokens * cell.d_ff * narrow,
        weight_copies=(4 * cell.d_model**2 + 3 * cell.d_model * cell.d_ff) * narrow if copies else 0,
        outside=tokens * TOKEN_BYTES
        + rotary_tables
        + norm
        + stream * narrow
        + (cell.vocabulary * cell.d_model * narrow if copies else 0),
        layers=cell.layers,
    )


def _saved_inside_attention(cell: ModelCell, device: Device) -> int:
    """Queries, keys, values and what the implementation keeps between its two products."""
    stream, narrow = cell.batch * cell.context * cell.d_model, product_bytes(cell)
    softmax = softmax_bytes(cell, device=device)
    if cell.attention == "sdpa-math":
        return 3 * stream * softmax + scores_bytes(cell, number_bytes=softmax)
    if cell.attention == "naive":
        cast_down = narrow if softmax != narrow else 0
        return 3 * stream * narrow + scores_bytes(cell, number_bytes=softmax + cast_down) + cell.context**2
    return 4 * stream * narrow + cell.batch * cell.heads * cell.context * FLOAT_BYTES


def checkpoint_groups(cell: ModelCell) -> int:
    """Into how many groups checkpointing divides the blocks; the last may be smaller. Needs checkpoint_blocks > 0."""
    return math.ceil(cell.layers / cell.checkpoint_blocks)


def checkpointed_stream_bytes(cell: ModelCell) -> int:
    """The stream at the start of each group of checkpointed blocks. Needs checkpoint_blocks > 0."""
    return checkpoint_groups(cell) * residual_stream_bytes(cell)


def kept_bytes(cell: ModelCell, *, device: Device = "cuda") -> int:
    """What the end of the forward pass holds for backward: all that autograd saves or, with checkpointing, the stream
    at the start of each group of blocks, what lies outside the blocks, and autocast's copies of all weights."""
    saved = saved_bytes(cell, device=device)
    if not cell.checkpoint_blocks:
        return saved.total
    return checkpointed_stream_bytes(cell) + saved.outside + saved.layers * saved.weight_copies


def forward_temporary_bytes(cell: ModelCell, *, device: Device = "cuda") -> int:
    """The most that the last block adds to what is saved in the end: for `naive` the masked scores, while softmax reads
    them; SwiGLU's activations are not there yet. A checkpointed block saves nothing while forward runs, so there it is
    all that inference holds."""
    if cell.checkpoint_blocks:
        return inference_temporary_bytes(cell, device=device)
    scores = scores_bytes(cell, number_bytes=softmax_bytes(cell, device=device)) if is_unfused(cell) else 0
    return max(scores - saved_bytes(cell, device=device).feed_forward, 0)


def inference_temporary_bytes(cell: ModelCell, *, device: Device = "cuda") -> int:
    """The most that one block holds when nothing is saved. In attention: the embedding's output, the stream, its
    normalized copy, q, k, v, the turned q and k, the output, for `naive` a contiguous v, scores, weights and the mask.
    In SwiGLU: the stream before and after attention and three inner activations."""
    stream, narrow = cell.batch * cell.context * cell.d_model, product_bytes(cell)
    attention = 3 * residual_stream_bytes(cell) + 6 * stream * narrow
    if is_unfused(cell):
        softmax = softmax_bytes(cell, device=device)
        cast = softmax if softmax != narrow else 0
        attention += stream * narrow + scores_bytes(cell, number_bytes=narrow + softmax + cast) + cell.context**2
    feed_forward = 4 * residual_stream_bytes(cell) + 3 * cell.batch * cell.context * cell.d_ff * narrow
    return max(attention, feed_forward)


def backward_temporary_bytes(cell: ModelCell, *, device: Device = "cuda") -> int:
    """The most that one block's backward adds to what that block saved: the gradients of SwiGLU's three inner
    activations or, once these are gone, for `naive` the gradients of softmax's output and input."""
    feed_forward = 3 * cell.batch * cell.context * cell.d_ff * product_bytes(cell)
    scores = 2 * scores_bytes(cell, number_bytes=softmax_bytes(cell, device=device)) if is_unfused(cell) else 0
    return max(feed_forward, scores - saved_bytes(cell, device=device).feed_forward)
