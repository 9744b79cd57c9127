"""Precision of a step: set, and read back from what torch says afterwards.

    with precision.autocast(cell, device): logits = model(tokens)

fp32 means IEEE matrix products. TF32, which torch calls a way of computing float32, is a precision of its own here:
"float32" that was TF32 is the commonest mistake of published tables. bf16 and fp16 are autocast over fp32 weights;
weights held in bf16 need no autocast.
"""

from contextlib import AbstractContextManager, nullcontext

import torch

from runner.errors import Skipped
from runner.measure.machine.device import Device
from runner.schema import Precision, StepCell


def apply(precision: Precision, device: Device) -> None:
    """Sets how float32 matrix products are computed in this process. Raises Skipped where TF32 does not exist."""
    has_tf32 = device.type == "cuda" and torch.cuda.get_device_capability(device.torch) >= (8, 0)
    if precision == "tf32" and not has_tf32:
        raise Skipped("TF32 needs an NVIDIA GPU of compute capability 8.0 or newer.")
    torch.backends.fp32_precision = "tf32" if precision == "tf32" else "ieee"  # type: ignore[attr-defined]


def read_back(device: Device) -> str:
    """How float32 matrix products are computed in this process now: `ieee` or `tf32`."""
    backend = torch.backends.cuda.matmul if device.type == "cuda" else torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    return "tf32" if backend.fp32_precision == "tf32" else "ieee"


def product_dtype(precision: Precision) -> torch.dtype:
    """The dtype in which matrix products are computed."""
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)


def autocast(cell: StepCell, device: Device) -> AbstractContextManager[object]:
    """The autocast context that the cell's forward pass runs in."""
    if cell.precision in ("fp32", "tf32") or cell.weights_dtype == "bf16":
        return nullcontext()
    return torch.autocast(device.type, dtype=product_dtype(cell.precision))
