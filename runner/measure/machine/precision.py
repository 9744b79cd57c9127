"""The precision of a step: set before it, and read back from torch afterwards.

    with precision.autocast(cell, device): logits = model(tokens)

fp32 means IEEE matrix products. TF32 is a precision of its own here: published tables often call it float32. bf16 and
fp16 are autocast over fp32 weights; weights in bf16 need no autocast.
"""

from contextlib import AbstractContextManager, nullcontext

import torch

from runner.errors import Skipped
from runner.measure.machine.device import Device
from runner.schema import Precision, StepCell


def apply(precision: Precision, device: Device) -> None:
    """Sets how this process computes float32 matrix products. Raises Skipped where TF32 does not exist."""
    has_tf32 = device.type == "cuda" and torch.cuda.get_device_capability(device.torch) >= (8, 0)
    if precision == "tf32" and not has_tf32:
        raise Skipped("TF32 needs an NVIDIA GPU of compute capability 8.0 or newer.")
    torch.backends.fp32_precision = "tf32" if precision == "tf32" else "ieee"  # type: ignore[attr-defined]


def read_back(device: Device) -> str:
    """Returns how this process computes float32 matrix products now: `ieee` or `tf32`."""
    backend = torch.backends.cuda.matmul if device.type == "cuda" else torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    return "tf32" if backend.fp32_precision == "tf32" else "ieee"


def product_dtype(precision: Precision) -> torch.dtype:
    """Returns the dtype in which matrix products are computed."""
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)


def dtype_name(tensor: torch.Tensor) -> str:
    """Returns the tensor's dtype as `float32`."""
    return str(tensor.dtype).removeprefix("torch.")


def autocast(cell: StepCell, device: Device) -> AbstractContextManager[object]:
    """Returns the autocast context of the cell's forward pass."""
    if cell.precision in ("fp32", "tf32") or cell.weights_dtype == "bf16":
        return nullcontext()
    return torch.autocast(device.type, dtype=product_dtype(cell.precision))
