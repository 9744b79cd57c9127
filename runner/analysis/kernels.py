"""Classifies a kernel by its name, as PyTorch's profiler and nsys write it, or an operator by its own; and the ranges
inside attention by theirs: softmax, mask, and the two matrix products.

    >>> kernel_class("ampere_sgemm_128x64_tn")
    'matmul'
    >>> kernel_class("aten::mul_", phase="optimizer")
    'optimizer'
    >>> role_of("attention softmax")
    'softmax'

A name says only what the kernel was written for: a kernel that a compiler made of several operations counts as the
heaviest of them. Limits: names follow PyTorch 2.9 to 2.13 with cuBLAS, cuDNN, CUTLASS and Triton; unknown names are
`other`.

`softmax_flops` counts for every attention weight, in forward the comparison for the maximum, the subtraction, the
exponential, the addition to the sum and the division, one each; backward, P ∘ (dP - sum(P ∘ dP)), a product and an
addition for the sum, a subtraction and a product. Masked weights count too: the written-out implementation computes
them. Limits: an exponential costs more than an addition; what a kernel really executes is not counted here.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from runner.results.cells import KernelTrace
from runner.schema import KernelClass, ProfileCell

_FORWARD, _BACKWARD = 5, 4


def softmax_flops(cell: ProfileCell, *, phase: str) -> int:
    """Returns the FLOPs of all softmaxes of a model's attention in one phase of a step, 0 in phases without any.
    Checkpointed blocks compute their forward pass again during backward."""
    weights = cell.shape.layers * cell.batch * cell.shape.heads * cell.context**2
    again = _FORWARD if cell.checkpoint_blocks else 0
    return weights * {"forward": _FORWARD, "backward": _BACKWARD + again}.get(phase, 0)


#: Classes whose names go with any kind of kernel, hand-written, fused by a compiler, or an operator.
_NAMED: tuple[tuple[KernelClass, str], ...] = (
    ("communication", r"nccl|rccl|nvshmem|gloo:|c10d::|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"),
    ("attention", r"flash_?(fwd|bwd|attn)|fmha|sdpa|attention|compute_dot_do_o|convert_dq"),
    ("optimizer", r"multi_tensor_apply|adam|_foreach_"),
    ("softmax", r"softmax"),
    ("normalisation", r"(layer|rms|group|batch)_?norm|gammabeta|rowwisemoments"),
    (
        "matmul",
        r"gemm|gemv|nvjet|splitk|cublas|xmma|cutlass|triton_tem|(?<![a-z])(mm|bmm|addmm|matmul|linear)(?![a-z])",
    ),
)
#: A class and what the names of its CUDA kernels contain, in lower case. The first that matches counts: the arguments
#: of templates are part of the name, so the narrow patterns come before the broad ones.
_KERNELS: tuple[tuple[KernelClass, str], ...] = (
    ("other", r"^(torch::)?autograd::|backward\d*$"),  # nodes of the graph, on a CPU: not the work itself
    ("copy or cast", r"^\[?(cuda )?mem(cpy|set)"),
    *_NAMED,
    ("matmul", r"(?<![a-z])dot_kernel"),
    ("copy or cast", r"copy_kernel|fillfunctor|catarray|copy_device|transpose"),
    ("reduction", r"reduce|nll_loss"),
    ("elementwise", r"elementwise|tri[ul]_tril|dropout"),
)
#: Kernels that torch.compile makes: `triton_<kind>_fused_<operations>_<number>`, `cpp_fused_<operations>_<number>`.
_FUSED = re.compile(r"(?P<kind>triton_(?:poi|red|per|for|mix|split_scan)|cpp)_fused_(?P<operations>\w*?)_?\d*$")
_CASTS = r"_to_copy|clone|copy_?|convert_element_type|transpose|permute|_?unsafe_view|view|t"

#: Whole names of operators, without `aten::` and the `_` of those that work in place.
_OPERATORS: tuple[tuple[KernelClass, str], ...] = (
    ("matmul", r"mm|bmm|addmm|baddbmm|addbmm|addmv|mv|dot|matmul|linear|einsum"),
    ("softmax", r"_?(log_)?softmax(_backward_data)?"),
    ("copy or cast", r"copy|_to_copy|to|clone|contiguous|zero|fill|zeros|zeros_like|ones|ones_like|full|cat|stack"),
    ("reduction", r"sum|mean|max|min|amax|amin|any|all|argmax|prod|norm|linalg_vector_norm|logsumexp|var|cumsum"),
    ("reduction", r"nll_loss(_nd|_forward|_backward)?"),
    ("elementwise", r"add|sub|rsub|mul|div|neg|pow|square|sqrt|rsqrt|reciprocal|exp|log|sin|cos|abs|sign|lerp|addcmul"),
    (
        "elementwise",
        r"addcdiv|clamp|maximum|minimum|where|masked_fill|tril|triu|bitwise_(not|and|or)|eq|ne|lt|le|gt|ge",
    ),
    ("elementwise", r"logical_(not|and|or)|isfinite|isnan|native_dropout|floor|round"),
    ("elementwise", r"(tanh|sigmoid|silu|gelu|relu|threshold|native_dropout)(_backward)?"),
)


@lru_cache(maxsize=4096)
def kernel_class(name: str, *, phase: str = "") -> KernelClass:
    """Returns the class of a CUDA kernel by its (demangled) name, or of an operator such as `aten::mm`.

    In the phase `optimizer`, elementwise work and reductions are the optimizer's, whichever implementation it is."""
    known: KernelClass | None = None
    if name.startswith("aten::"):
        operator = name.removeprefix("aten::")
        plain = operator.removesuffix("_")
        whole = (found for found, pattern in _OPERATORS if re.fullmatch(pattern, plain))
        known = next(whole, None) or _match(_NAMED, operator) or "other"
    elif fused := _FUSED.search(name):
        known = _fused_class(fused["kind"], fused["operations"])
    else:
        known = _match(_KERNELS, name.lower()) or "other"
    return "optimizer" if phase == "optimizer" and known in ("elementwise", "reduction") else known


def _fused_class(kind: str, operations: str) -> KernelClass:
    """Returns the class of a kernel made by torch.compile, whose operations are joined with `_`, which their own names
    may contain. A reduction with `rsqrt` is an RMS norm, which has no name of its own once it is decomposed."""
    if kind == "triton_for":
        return "optimizer"
    named = _match(_NAMED, operations)
    if named:
        return named
    if kind != "triton_poi" and "rsqrt" in operations and re.search("mean|var|sum", operations):
        return "normalisation"
    if re.fullmatch(rf"({_CASTS})(_({_CASTS}))*", operations):
        return "copy or cast"
    reduces = kind == "cpp" and re.search(r"(^|_)(sum|mean|amax|var)(_|$)", operations)
    return "elementwise" if kind == "triton_poi" or (kind == "cpp" and not reduces) else "reduction"


def _match(patterns: tuple[tuple[KernelClass, str], ...], text: str) -> KernelClass | None:
    return next((found for found, pattern in patterns if re.search(pattern, text)), None)


#: The role of a range inside attention, by its name; the first pattern that matches.
ROLES: Mapping[str, re.Pattern[str]] = {
    "softmax": re.compile(r"soft ?max", re.IGNORECASE),
    "mask": re.compile(r"mask", re.IGNORECASE),
    "scores": re.compile(r"score|\bqk", re.IGNORECASE),
    "product with values": re.compile(r"attention product|final mat_?mul|weighted (sum|values)|\bpv\b", re.IGNORECASE),
}
MATMULS = ("scores", "product with values")


@lru_cache(maxsize=4096)
def role_of(scope: str) -> str | None:
    return next((role for role, pattern in ROLES.items() if pattern.search(scope)), None)


def attention_ranges(trace: KernelTrace, *, phase: str) -> list[tuple[str, float, int | None]]:
    """Returns every range inside attention that ran in a phase, in the order of computation: its role, its time (ms)
    and its FLOPs, where known; nothing where none ran."""
    inside_attention = []
    for role in ("scores", "mask", "softmax", "product with values"):
        inside = [part for part in trace.ranges if part.phase == phase and role_of(part.scope) == role]
        if not inside:
            continue
        counted = [part.flops for part in inside if part.flops is not None]
        flops = sum(counted) if counted else None
        if role == "softmax" and trace.cell.model_key is None:
            flops = softmax_flops(trace.cell, phase=phase)
        inside_attention.append((role, sum(part.device_ms for part in inside), flops))
    return inside_attention
