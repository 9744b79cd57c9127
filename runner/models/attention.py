"""Attention by name: the same arithmetic, computed in different ways.

    >>> attend = ATTENTION["naive"]
    >>> output_bhsd = attend(q_bhsd, k_bhsd, v_bhsd, causal=True)

Every implementation takes queries, keys and values of shape (batch, heads, sequence, head width) and returns the same
shape and dtype: softmax(q k^T / sqrt(head width)) v, with later positions hidden where `causal` (Vaswani et al. 2017,
"Attention Is All You Need", equation 1). Only `naive` writes the S x S tensors to memory in every case; `sdpa-math`
does too, in kernels of PyTorch's choosing. Causal masks assume as many queries as keys. No dropout, no bias.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from einops import einsum
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from runner.analysis.costs.attention_tensors import flex_block
from runner.errors import UsageError
from runner.models.ranges import named_range


def naive(q_bhqd: Tensor, k_bhkd: Tensor, v_bhkd: Tensor, *, causal: bool) -> Tensor:
    """Step by step, every S x S tensor materialized: scores, scaled, masked, weights."""
    with named_range("attention scores"):
        scores_bhqk = einsum(q_bhqd, k_bhkd, "b h q d, b h k d -> b h q k") / math.sqrt(q_bhqd.shape[-1])
    if causal:
        with named_range("attention mask"):
            visible_qk = torch.ones(scores_bhqk.shape[-2:], dtype=torch.bool, device=scores_bhqk.device).tril()
            scores_bhqk = scores_bhqk.masked_fill(~visible_qk, -math.inf)
    with named_range("attention softmax"):
        weights_bhqk = torch.softmax(scores_bhqk, dim=-1)
    with named_range("attention product"):
        return einsum(weights_bhqk, v_bhkd, "b h q k, b h k d -> b h q d")


def sdpa(q_bhqd: Tensor, k_bhkd: Tensor, v_bhkd: Tensor, *, causal: bool) -> Tensor:
    """PyTorch's scaled_dot_product_attention, which chooses the kernel by device, dtype and shape."""
    return F.scaled_dot_product_attention(q_bhqd, k_bhkd, v_bhkd, is_causal=causal)


def sdpa_math(q_bhqd: Tensor, k_bhkd: Tensor, v_bhkd: Tensor, *, causal: bool) -> Tensor:
    """PyTorch's own unfused version. On CPU it computes half precision in float32."""
    with sdpa_kernel(SDPBackend.MATH):
        return sdpa(q_bhqd, k_bhkd, v_bhkd, causal=causal)


def sdpa_flash(q_bhqd: Tensor, k_bhkd: Tensor, v_bhkd: Tensor, *, causal: bool) -> Tensor:
    """FlashAttention-2 (Dao 2023): tiles of the scores stay on the chip, the backward pass computes them again."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return sdpa(q_bhqd, k_bhkd, v_bhkd, causal=causal)


def sdpa_efficient(q_bhqd: Tensor, k_bhkd: Tensor, v_bhkd: Tensor, *, causal: bool) -> Tensor:
    """xFormers' memory-efficient attention (Rabe and Staats 2021): as flash, and in float32 too."""
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        return sdpa(q_bhqd, k_bhkd, v_bhkd, causal=causal)


def sdpa_cudnn(q_bhqd: Tensor, k_bhkd: Tensor, v_bhkd: Tensor, *, causal: bool) -> Tensor:
    """cuDNN's fused attention."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return sdpa(q_bhqd, k_bhkd, v_bhkd, causal=causal)


def flex(q_bhqd: Tensor, k_bhkd: Tensor, v_bhkd: Tensor, *, causal: bool) -> Tensor:
    """FlexAttention (Dong et al. 2024): a fused kernel compiled for this mask, which skips the blocks that it hides.
    Always compiled: uncompiled it would write the scores out."""
    blocks = causal_blocks(q_bhqd.shape[-2], q_bhqd.device) if causal else None
    return flex_of_blocks(q_bhqd, k_bhkd, v_bhkd, blocks=blocks)


def flex_of_blocks(q_bhqd: Tensor, k_bhkd: Tensor, v_bhkd: Tensor, *, blocks: BlockMask | None) -> Tensor:
    """The same with the mask given; None hides nothing."""
    output: Tensor = _compiled_flex()(q_bhqd, k_bhkd, v_bhkd, block_mask=blocks)
    return output


@lru_cache(maxsize=1)
def _compiled_flex() -> Callable[..., Tensor]:
    compiled: Callable[..., Tensor] = torch.compile(flex_attention)
    return compiled


@lru_cache(maxsize=1)
def causal_blocks(length: int, device: torch.device) -> BlockMask:
    """Which blocks of the scores are seen. PyTorch's create_block_mask finds the same from a mask of S x S booleans,
    which fills the memory long before the kernel does."""
    block = flex_block(length)
    count = -(-length // block)
    seen = torch.ones(count, count, dtype=torch.bool, device=device).tril()
    whole = seen.tril(-1)
    if length % block:
        whole[-1] = False

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return query >= key

    partly, wholly = _in_order(seen & ~whole), _in_order(whole)
    return BlockMask.from_kv_blocks(*partly, *wholly, block, visible, seq_lengths=(length, length))


def _in_order(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of each row there are, and which: those first, in the order of their columns."""
    which = blocks.int().argsort(dim=-1, descending=True, stable=True).int()
    return blocks.sum(dim=-1, dtype=torch.int32)[None, None], which[None, None]


ATTENTION: Mapping[str, Callable[..., Tensor]] = {
    "naive": naive,
    "sdpa": sdpa,
    "sdpa-math": sdpa_math,
    "sdpa-flash": sdpa_flash,
    "sdpa-efficient": sdpa_efficient,
    "sdpa-cudnn": sdpa_cudnn,
    "flex": flex,
}

#: Where each fused kernel exists; the implementations not named here run everywhere.
_DEVICES: Mapping[str, tuple[str, ...]] = {
    "sdpa-flash": ("cpu", "cuda"),
    "sdpa-efficient": ("cuda",),
    "sdpa-cudnn": ("cuda",),
    "flex": ("cuda",),  # PyTorch 2.13 compiles its forward pass for a CPU too, but has no backward pass there
}

#: Kernels that on CUDA exist in half precision only. The CPU's flash kernel takes float32 too.
_HALF_ONLY = ("sdpa-flash", "sdpa-cudnn")


def implementation(name: str) -> Callable[..., Tensor]:
    """The function called `name`. Raises UsageError for an unknown name."""
    if name not in ATTENTION:
        raise UsageError(f"No attention implementation is called {name!r}.", expected=f"one of {', '.join(ATTENTION)}")
    return ATTENTION[name]


def unavailable(name: str, device_type: str, *, dtype: torch.dtype | None = None) -> str | None:
    """Why a device of this type ("cpu", "cuda", "mps") cannot run implementation `name`; None where it can.

    `dtype` is that of the queries: under autocast, the lower one. Without it, only the device is judged. What a
    particular GPU's age forbids (flash needs compute capability 8.0) shows when it is tried. Raises UsageError for an
    unknown name.
    """
    implementation(name)
    devices = _DEVICES.get(name, (device_type,))
    if device_type not in devices:
        return f"PyTorch has no {name} kernel for {device_type}, only for {' and '.join(devices)}."
    if device_type == "cuda" and name in _HALF_ONLY and dtype not in (None, torch.bfloat16, torch.float16):
        return f"On CUDA {name} takes bfloat16 and float16, not {str(dtype).removeprefix('torch.')}."
    return None
