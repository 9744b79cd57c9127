"""Counts what one call of an operator does, from the shapes of its arguments: FLOPs, and bytes read and written.

    >>> call = Arguments(operator="aten::mm", shapes=[[16, 64], [64, 192]], dtypes=["float", "float"], values=[])
    >>> flops(call), moved_bytes(call)          # each input read once, each output written once
    (393216, 65536)

Arguments are as PyTorch's profiler records them. FLOPs: a matrix product of (m, k) and (k, n) takes 2 m k n; softmax 5
an element (greatest, difference, exponential, sum, quotient), its backward 4; additions and products one an element;
fused attention by FlashAttention's convention, 4 S² d a head forward, 2.5 times that backward, half of both if causal
(Dao 2023, "FlashAttention-2", section 4.1). The count is None where it is not known, as for an operator that calls
others.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: Bytes of one number by the profiler's name of its type.
_BYTES = {
    "bool": 1, "unsigned char": 1, "signed char": 1, "short": 2, "short int": 2, "int": 4, "long": 8, "long int": 8,
    "c10::Half": 2, "c10::BFloat16": 2, "float": 4, "double": 8,
}  # fmt: skip
_NO_TENSORS = ("", "Scalar", "ScalarList")
#: The position of the first factor of a matrix product among the arguments.
_PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
_SOFTMAX = {"_softmax": 5, "_log_softmax": 5, "_softmax_backward_data": 4, "_log_softmax_backward_data": 4}
_ATTENTION = "_scaled_dot_product_"
#: The position of `is_causal` among the arguments of each fused attention, forward and backward.
CAUSAL = {
    "_scaled_dot_product_flash_attention": (4, 11),
    "_scaled_dot_product_flash_attention_for_cpu": (4, 7),
    "_scaled_dot_product_efficient_attention": (6, 11),
    "_scaled_dot_product_cudnn_attention": (6, 14),
}
_COUNTED = r"add|sub|rsub|mul|div"
_TRUTHS = r"eq|ne|lt|le|gt|ge|logical_(not|and|or)|isfinite|isnan"
_POINTWISE = (
    rf"{_COUNTED}|{_TRUTHS}|neg|pow|square|sqrt|rsqrt|reciprocal|exp|log|sin|cos|abs|where|masked_fill|bitwise_(not|and)|"
    r"(silu|gelu|sigmoid|tanh|threshold)(_backward)?|relu|tril|triu|clamp|lerp|addcmul|addcdiv|maximum|minimum"
)
#: The lists that AdamW's fused step reads (parameters, gradients, both moments), and those that it writes.
_ADAM_READS, _ADAM_WRITES = (0, 1, 2, 3), (0, 2, 3)


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """One call of an operator. An argument that is no tensor has an empty shape; a list of tensors has the list of
    their shapes. `values` are those of plain arguments. `list_bytes` is the size of one number in lists of tensors,
    which the profiler does not record."""

    operator: str
    shapes: Sequence[Any]
    dtypes: Sequence[str]
    values: Sequence[Any]
    list_bytes: int | None = None

    @property
    def name(self) -> str:
        """The operator's name without `aten::` and the `_` of an in-place operator."""
        return self.operator.removeprefix("aten::").removesuffix("_")

    def bytes(self, position: int) -> int:
        """Returns the bytes of one argument, 0 for one that is no tensor. Raises KeyError for an unknown type."""
        shape, dtype = self.shapes[position], self.dtypes[position]
        if dtype == "TensorList":
            if self.list_bytes is None:
                raise KeyError(dtype)
            return sum(_count_elements(part) for part in shape) * self.list_bytes
        return 0 if dtype in _NO_TENSORS else _count_elements(shape) * _BYTES[dtype]

    def is_tensor(self, position: int) -> bool:
        return self.dtypes[position] in _BYTES and bool(self.shapes[position])


def _count_elements(shape: Sequence[Any]) -> int:
    """Returns the number of elements of a tensor of this shape."""
    return math.prod(int(size) for size in shape)


def flops(call: Arguments) -> int | None:
    """Returns the FLOPs of one call, None where they are not known."""
    name = call.name
    if name in _PRODUCTS:
        first, second = call.shapes[_PRODUCTS[name] :][:2]
        return 2 * _count_elements(first) * int(second[-1])
    if name in _SOFTMAX:
        return _SOFTMAX[name] * _count_elements(call.shapes[0])
    if name.startswith(_ATTENTION):
        is_backward = name.endswith("_backward")
        places = CAUSAL.get(name.removesuffix("_backward"))
        is_causal = call.values[places[is_backward]] if places else None
        if not isinstance(is_causal, bool):
            return None
        query, key = call.shapes[is_backward : is_backward + 2]
        forward = 4 * _count_elements(query) * int(key[-2]) // (2 if is_causal else 1)
        return forward * 5 // 2 if is_backward else forward
    if re.fullmatch(_COUNTED, name) and call.dtypes[0] in _BYTES:
        return _count_elements(_broadcast(call))
    return None


def moved_bytes(call: Arguments) -> int | None:
    """Returns the bytes of one call's inputs and outputs, each counted once: without what a cache saves or a kernel
    reads twice. None where they are not known."""
    try:
        return _count_moved(call)
    except (KeyError, IndexError):  # a type, or a form of the operator, that is not known here
        return None


def _count_moved(call: Arguments) -> int | None:
    name = call.name
    if name in _PRODUCTS:
        place = _PRODUCTS[name]
        first, second = call.shapes[place : place + 2]
        output = _count_elements(first[:-1]) * int(second[-1]) * _BYTES[call.dtypes[place]]
        return sum(call.bytes(position) for position in range(place + 2)) + output
    if name in _SOFTMAX:
        written = _count_elements(call.shapes[0]) * 4 if call.values[2] is True else call.bytes(0)
        return call.bytes(0) + (call.bytes(1) if "backward" in name else 0) + written
    if name.startswith(_ATTENTION):
        first = int(name.endswith("_backward"))
        query, key, value = (call.bytes(first + place) for place in range(3))
        return 4 * query + 2 * (key + value) if first else 2 * query + key + value
    if name in ("fill", "zero"):
        return call.bytes(0)
    if name == "copy":
        return call.bytes(0) + call.bytes(1)
    if name in ("sum", "mean") and call.is_tensor(0):
        shape, number = call.shapes[0], _BYTES[call.dtypes[0]]
        dims = call.values[1] if len(call.values) > 1 and isinstance(call.values[1], list) else None
        gone = math.prod(int(shape[dim]) for dim in dims) if dims else _count_elements(shape)
        return call.bytes(0) + (_count_elements(shape) // max(gone, 1) * number)
    if name.startswith("_foreach_"):
        return sum(call.bytes(place) for place in range(len(call.shapes))) + call.bytes(0)
    if name in ("_fused_adamw", "_fused_adam"):
        return sum(call.bytes(place) for place in _ADAM_READS + _ADAM_WRITES)
    if not re.fullmatch(_POINTWISE, name):
        return None
    read = sum(call.bytes(place) for place in range(len(call.shapes)))
    sizes = [_BYTES[call.dtypes[place]] for place in range(len(call.shapes)) if call.is_tensor(place)]
    number = 1 if re.fullmatch(_TRUTHS, call.name) else max(sizes, default=_BYTES[call.dtypes[0]])
    return read + _count_elements(_broadcast(call)) * number


def _broadcast(call: Arguments) -> list[int]:
    """Returns the shape of the result of an elementwise operation."""
    shapes = [call.shapes[place] for place in range(len(call.shapes)) if call.is_tensor(place)]
    width = max((len(shape) for shape in shapes), default=0)
    return [max(shape[axis] for shape in shapes if len(shape) >= -axis) for axis in range(-width, 0)]
