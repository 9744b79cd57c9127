"""The measured language model, complete in one file.

A pre-norm decoder-only Transformer: token embedding; blocks of (RMSNorm, causal multi-head self-attention with rotary
positions, residual; RMSNorm, SwiGLU, residual); a final RMSNorm; an untied output head. No biases, no dropout.
Parameters: 2 V d + L (4 d^2 + 3 d d_ff + 2 d) + d, the embedding's V d included.

    >>> model = Transformer(cell, device="cuda")        # cell: runner.schema.StepCell
    >>> logits_btv = model(tokens_bt)                   # int64 (batch, time) -> (batch, time, vocabulary)

Axes in tensor names: b batch, t time, d model width, h head, e head width, v vocabulary.
The cell gives the shape, the attention implementation, the dtype of the weights and the checkpointing; autocast and
torch.compile (of the whole model or of each of `model.blocks`) are up to the caller, and change nothing in this code.
Limits: no key/value cache, no padding mask. Casting a built model with `.to(dtype)` would round the rotary tables: set
the dtype in the cell instead.
"""

import math

import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from einops import rearrange
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from runner.errors import UsageError
from runner.models.attention import implementation
from runner.models.ranges import named_range
from runner.schema import ModelCell
from runner.schema.sizes import check_shape

ROPE_BASE = 10_000.0
NORM_EPSILON = 1e-5
CUTOFF = 3.0  # initial weights are truncated at this many standard deviations
WEIGHTS_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class RMSNorm(nn.Module):
    """x / rms(x), times a learned gain (Zhang and Sennrich 2019), computed in float32 and returned in x's dtype."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.empty(width))

    def forward(self, x_btd: Tensor) -> Tensor:
        with named_range("normalisation"):
            wide_btd = x_btd.float()
            inverse_rms_bt1 = torch.rsqrt(wide_btd.square().mean(dim=-1, keepdim=True) + NORM_EPSILON)
            return (wide_btd * inverse_rms_bt1 * self.gain).to(x_btd.dtype)


def rotary_tables(*, context: int, head_width: int) -> Tensor:
    """Returns the cosine and the sine of each channel's angle, float32 of shape (2, context, head_width); the sine is
    negative for the first channel of a pair.

    Pair i is rotated by position / base^(2 i / head_width) (Su et al. 2021, "RoFormer", section 3.2.2). Computed in
    float64 on the CPU, because a float32 product of position and frequency is off by more than an entry's last digits.
    """
    exponents_p = torch.arange(0, head_width, 2, dtype=torch.float64, device="cpu") / head_width
    positions_t = torch.arange(context, dtype=torch.float64, device="cpu")
    angles_tp = torch.outer(positions_t, ROPE_BASE**-exponents_p)
    signs_e = torch.tensor([-1.0, 1.0], dtype=torch.float64, device="cpu").repeat(head_width // 2)
    angles_te = angles_tp.repeat_interleave(2, dim=-1)
    return torch.stack((angles_te.cos(), angles_te.sin() * signs_e)).float()


def apply_rope(x_bhte: Tensor, cosine_te: Tensor, sine_te: Tensor) -> Tensor:
    """Rotates adjacent channels (x[2i], x[2i+1]) by its angle, in float32; returns x's dtype, laid out by head."""
    with named_range("rope"):
        pairs_bhtp2 = rearrange(x_bhte, "b h t (p two) -> b h t p two", two=2)
        swapped_bhte = rearrange(pairs_bhtp2.flip(-1), "b h t p two -> b h t (p two)")
        return (x_bhte * cosine_te + swapped_bhte * sine_te).to(x_bhte.dtype).contiguous()


class SelfAttention(nn.Module):
    """Causal multi-head self-attention with rotary positions."""

    def __init__(self, d_model: int, *, heads: int, attention: str) -> None:
        super().__init__()
        self.heads = heads
        self.attend = implementation(attention)
        self.query = nn.Linear(d_model, d_model, bias=False)
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.value = nn.Linear(d_model, d_model, bias=False)
        self.output = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x_btd: Tensor, rope_2te: Tensor) -> Tensor:
        with named_range("attention projections"):
            q_bhte = rearrange(self.query(x_btd), "b t (h e) -> b h t e", h=self.heads)
            k_bhte = rearrange(self.key(x_btd), "b t (h e) -> b h t e", h=self.heads)
            v_bhte = rearrange(self.value(x_btd), "b t (h e) -> b h t e", h=self.heads)
        with named_range("attention"):
            mixed_bhte = self.attend(apply_rope(q_bhte, *rope_2te), apply_rope(k_bhte, *rope_2te), v_bhte, causal=True)
        with named_range("attention projections"):
            output_btd: Tensor = self.output(rearrange(mixed_bhte, "b h t e -> b t (h e)"))
        return output_btd


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)) (Shazeer 2020, "GLU Variants Improve Transformer")."""

    def __init__(self, d_model: int, *, d_ff: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x_btd: Tensor) -> Tensor:
        with named_range("feed-forward"):
            output_btd: Tensor = self.down(F.silu(self.gate(x_btd)) * self.up(x_btd))
        return output_btd


class Block(nn.Module):
    """One layer: attention, then the feed-forward network, each of the normalized stream and added to it."""

    def __init__(self, cell: ModelCell) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(cell.shape.d_model)
        self.attention = SelfAttention(cell.shape.d_model, heads=cell.shape.heads, attention=cell.attention)
        self.feed_forward_norm = RMSNorm(cell.shape.d_model)
        self.feed_forward = SwiGLU(cell.shape.d_model, d_ff=cell.shape.d_ff)

    def forward(self, x_btd: Tensor, rope_2te: Tensor) -> Tensor:
        attended_btd = x_btd + self.attention(self.attention_norm(x_btd), rope_2te)
        fed_btd: Tensor = attended_btd + self.feed_forward(self.feed_forward_norm(attended_btd))
        return fed_btd


class Transformer(nn.Module):
    """The model of a cell, with initial weights, on `device` (torch's default device where none is given).

    It is built on the meta device first, so that every weight is allocated once, in its final place and dtype. Raises
    UsageError for a shape that cannot be built."""

    rope_2te: Tensor

    def __init__(self, cell: ModelCell, *, device: torch.device | str | None = None) -> None:
        check_shape(cell)
        super().__init__()
        device = torch.device(device) if device is not None else torch.get_default_device()
        self.checkpoint_blocks = cell.checkpoint_blocks
        with torch.device("meta"):
            self.embedding = nn.Embedding(cell.shape.vocabulary, cell.shape.d_model)
            self.blocks = nn.ModuleList(Block(cell) for _ in range(cell.shape.layers))
            self.final_norm = RMSNorm(cell.shape.d_model)
            self.head = nn.Linear(cell.shape.d_model, cell.shape.vocabulary, bias=False)
        self.to(WEIGHTS_DTYPES[cell.weights_dtype]).to_empty(device=device)
        rope_2te = rotary_tables(context=cell.context, head_width=cell.shape.d_model // cell.shape.heads)
        self.register_buffer("rope_2te", rope_2te.to(device), persistent=False)
        self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """Draws truncated normal weights: variance 2 / (inputs + outputs), of the embedding 1. Gains are 1."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                fill_truncated_normal(module.weight, std=math.sqrt(2 / (module.in_features + module.out_features)))
            elif isinstance(module, nn.Embedding):
                fill_truncated_normal(module.weight, std=1.0)
            elif isinstance(module, RMSNorm):
                module.gain.fill_(1.0)

    def forward(self, tokens_bt: Tensor) -> Tensor:
        time = tokens_bt.shape[1]
        if time > self.rope_2te.shape[1]:
            raise UsageError(
                f"Got {time} tokens a sequence.",
                expected=f"at most {self.rope_2te.shape[1]}, the context this model was built for",
                do="Build it with a longer context.",
            )
        rope_2te = self.rope_2te[:, :time]
        with named_range("embedding"):
            x_btd = self.embedding(tokens_bt)
        together = self.checkpoint_blocks or len(self.blocks)
        for first in range(0, len(self.blocks), together):
            x_btd = self.run_blocks(x_btd, rope_2te, self.blocks[first : first + together])
        with named_range("output head"):
            logits_btv: Tensor = self.head(self.final_norm(x_btd))
        return logits_btv

    def run_blocks(self, x_btd: Tensor, rope_2te: Tensor, blocks: nn.ModuleList) -> Tensor:
        """Returns the stream after `blocks`. With checkpointing, autograd saves only their input and reruns them."""

        def run(x_btd: Tensor) -> Tensor:
            for block in blocks:
                x_btd = block(x_btd, rope_2te)
            return x_btd

        if not (self.checkpoint_blocks and torch.is_grad_enabled()):
            return run(x_btd)
        # Without dropout, there is no random state to restore for the second run.
        after_btd: Tensor = checkpoint(run, x_btd, use_reentrant=False, preserve_rng_state=False)
        return after_btd


def fill_truncated_normal(weight: Tensor, *, std: float) -> None:
    """Draws in float32, because bfloat16 has too few uniform numbers for the tails, and stores in weight's dtype."""
    wide = weight if weight.dtype == torch.float32 else torch.empty_like(weight, dtype=torch.float32)
    nn.init.trunc_normal_(wide, std=std, a=-CUTOFF * std, b=CUTOFF * std)
    if wide is not weight:
        weight.copy_(wide)
