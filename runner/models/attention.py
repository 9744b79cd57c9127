"""Implementations of attention by name: the same arithmetic, computed in different ways.

    >>> attend = ATTENTION["naive"]
    >>> output_bhsd = attend(q_bhsd, k_bhsd, v_bhsd, causal=True)

Every implementation takes queries, keys and values of shape (batch, heads, sequence, head width) and returns the same
shape and dtype: softmax(q k^T / sqrt(head width)) v, with later positions masked where `causal` (Vaswani et al. 2017,
"Attention Is All You Need", equation 1). `naive` and `sdpa-math` write the S x S tensors to memory; `sdpa` may, where
PyTorch chooses so. Causal masks assume as many queries as keys. No dropout, no bias.
"""

import importlib.util
import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from einops import einsum
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from runner.analysis.costs.attention import flex_block
from runner.errors import Skipped, UsageError
from runner.models.ranges import named_range
from runner.models.source import load_part
from runner.schema.own import is_own_part


def naive(q_bhqd: Tensor, k_bhkd: Tensor, v_bhkd: Tensor, *, causal: bool) -> Tensor:
    """Computes attention step by step and materializes every S x S tensor: scores, masked scores, weights."""
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
    """Runs PyTorch's scaled_dot_product_attention, which chooses the kernel by device, dtype and shape."""
    return F.scaled_dot_product_attention(q_bhqd, k_bhkd, v_bhkd, is_causal=causal)


def sdpa_by(kernel: SDPBackend) -> Callable[..., Tensor]:
    def run(q_bhqd: Tensor, k_bhkd: Tensor, v_bhkd: Tensor, *, causal: bool) -> Tensor:
        with sdpa_kernel(kernel):
            return sdpa(q_bhqd, k_bhkd, v_bhkd, causal=causal)

    return run


def newer_flash(version: str) -> Callable[..., Tensor]:
    """Returns PyTorch's flash attention by a newer kernel, for which PyTorch needs a package of `PACKAGES`."""

    def run(q_bhqd: Tensor, k_bhkd: Tensor, v_bhkd: Tensor, *, causal: bool) -> Tensor:
        from torch.nn.attention import activate_flash_attention_impl

        activate_flash_attention_impl(version)
        return ATTENTION["sdpa-flash"](q_bhqd, k_bhkd, v_bhkd, causal=causal)

    return run


def flex(q_bhqd: Tensor, k_bhkd: Tensor, v_bhkd: Tensor, *, causal: bool) -> Tensor:
    """Runs FlexAttention (Dong et al. 2024): a fused kernel compiled for this mask, which skips masked blocks. It is
    always compiled, because uncompiled it would write the scores to memory."""
    blocks = causal_blocks(q_bhqd.shape[-2], q_bhqd.device) if causal else None
    return flex_of_blocks(q_bhqd, k_bhkd, v_bhkd, blocks=blocks)


def flex_of_blocks(q_bhqd: Tensor, k_bhkd: Tensor, v_bhkd: Tensor, *, blocks: BlockMask | None) -> Tensor:
    """Runs FlexAttention with a given mask; None masks nothing."""
    output: Tensor = _compiled_flex()(q_bhqd, k_bhkd, v_bhkd, block_mask=blocks)
    return output


@lru_cache(maxsize=1)
def _compiled_flex() -> Callable[..., Tensor]:
    compiled: Callable[..., Tensor] = torch.compile(flex_attention)
    return compiled


@lru_cache(maxsize=1)
def causal_blocks(length: int, device: torch.device) -> BlockMask:
    """Returns the causal block mask for `length` positions. PyTorch's create_block_mask makes the same from a mask of
    S x S booleans, which runs out of memory long before the kernel does."""
    block = flex_block(length)
    count = -(-length // block)
    visible = torch.ones(count, count, dtype=torch.bool, device=device).tril()
    full = visible.tril(-1)
    if length % block:
        full[-1] = False

    def is_visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return query >= key

    partial, full_blocks = _list_blocks(visible & ~full), _list_blocks(full)
    return BlockMask.from_kv_blocks(*partial, *full_blocks, block, is_visible, seq_lengths=(length, length))


def _list_blocks(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the number of true blocks in each row, and each row's columns with those of true blocks first."""
    columns = blocks.int().argsort(dim=-1, descending=True, stable=True).int()
    return blocks.sum(dim=-1, dtype=torch.int32)[None, None], columns[None, None]


#: PyTorch's kernels by the names of the implementations that are one of them.
BACKENDS: Mapping[str, SDPBackend] = {
    # PyTorch's own unfused version, which computes half precision in float32 on a CPU.
    "sdpa-math": SDPBackend.MATH,
    # FlashAttention-2 (Dao 2023): tiles of the scores stay on the chip, and backward computes them again.
    "sdpa-flash": SDPBackend.FLASH_ATTENTION,
    # xFormers' memory-efficient attention (Rabe and Staats 2021): like flash, and in float32 too.
    "sdpa-efficient": SDPBackend.EFFICIENT_ATTENTION,
    "sdpa-cudnn": SDPBackend.CUDNN_ATTENTION,
}
ATTENTION: Mapping[str, Callable[..., Tensor]] = {
    "naive": naive,
    "sdpa": sdpa,
    **{name: sdpa_by(kernel) for name, kernel in BACKENDS.items()},
    # FlashAttention-3 (Shah et al. 2024) and 4, for newer GPUs.
    "sdpa-flash3": newer_flash("FA3"),
    "sdpa-flash4": newer_flash("FA4"),
    "flex": flex,  # PyTorch 2.13 compiles its forward pass for a CPU too, but has no backward pass there
}

#: The devices of each fused kernel; the other implementations run everywhere.
_DEVICES: Mapping[str, tuple[str, ...]] = {"sdpa-flash": ("cpu", "cuda")} | dict.fromkeys(
    ("sdpa-efficient", "sdpa-flash3", "sdpa-flash4", "sdpa-cudnn", "flex"), ("cuda",)
)

#: Kernels that CUDA has in half precision only. The CPU's flash kernel takes float32 too.
_HALF_ONLY = ("sdpa-flash", "sdpa-flash3", "sdpa-flash4", "sdpa-cudnn")
#: The packages that bring a kernel, which PyTorch then runs.
PACKAGES = {"sdpa-flash3": "flash_attn_interface", "sdpa-flash4": "flash_attn.cute"}


def implementation(name: str) -> Callable[..., Tensor]:
    """Returns the function called `name`, or the user's own. Raises UsageError for an unknown name."""
    if is_own_part(name):
        return load_part(name)
    if name not in ATTENTION:
        raise UsageError(f"No attention implementation is called {name!r}.", expected=f"one of {', '.join(ATTENTION)}")
    return ATTENTION[name]


def unavailable(name: str, device_type: str, *, dtype: torch.dtype | None = None) -> str | None:
    """Returns why a device of this type ("cpu", "cuda", "mps") cannot run implementation `name`; None where it can.

    `dtype` is that of the queries: under autocast the lower one. Without it only the device is checked. What an older
    GPU cannot run (flash needs compute capability 8.0) fails when tried."""
    devices = _DEVICES.get(name, (device_type,))
    if device_type not in devices:
        return f"PyTorch has no {name} kernel for {device_type}, only for {' and '.join(devices)}."
    if name in PACKAGES and not _is_installed(PACKAGES[name]):
        return f"{name} needs the package {PACKAGES[name]}, which is not installed."
    if device_type == "cuda" and name in _HALF_ONLY and dtype not in (None, torch.bfloat16, torch.float16):
        return f"On CUDA {name} takes bfloat16 and float16, not {str(dtype).removeprefix('torch.')}."
    return None


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the package that it is a part of
        return False


def require_available(name: str, device_type: str, *, dtype: torch.dtype) -> None:
    """Raises Skipped where a device of this type cannot run implementation `name` with queries of `dtype`."""
    reason = unavailable(name, device_type, dtype=dtype)
    if reason:
        raise Skipped(reason)
