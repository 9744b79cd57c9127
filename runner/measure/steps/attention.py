"""One iteration of single-head attention: the implementation's forward pass, then its backward pass.

step = AttentionStep(cell, device)
step(mark)
step.drop_gradients()       # between iterations
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from runner.errors import Skipped
from runner.measure.machine import precision
from runner.measure.machine.allocations import storage_bytes
from runner.measure.machine.device import Device
from runner.measure.steps.compiling import require_compiler
from runner.models.attention import implementation, require_available
from runner.schema import AttentionCell

SEED = 0


class AttentionStep:
    """The tensors of one cell; calling it runs one iteration and marks the end of each phase. `phase` is the running
    phase, for the row of a cell that fails. `run` is the implementation as the cell's backend runs it."""

    def __init__(self, cell: AttentionCell, device: Device) -> None:
        torch.manual_seed(SEED)
        self.cell, self.phase = cell, "build"
        self.run = functools.partial(_compile(cell), causal=cell.causal)
        shape, dtype = (cell.batch, 1, cell.seq_len, cell.d_head), precision.product_dtype(cell.precision)
        q, k, v = (torch.randn(shape, dtype=dtype, device=device.torch, requires_grad=True) for _ in range(3))
        self.inputs = (q, k, v)
        self.grad = torch.randn(shape, dtype=dtype, device=device.torch)

    def __call__(self, mark: Callable[[], None]) -> None:
        self.phase = "forward"
        output = self.run(*self.inputs)
        mark()
        self.phase = "backward"
        output.backward(self.grad)  # type: ignore[no-untyped-call]
        mark()

    def drop_gradients(self) -> None:
        for tensor in self.inputs:
            tensor.grad = None

    @property
    def held_bytes(self) -> int:
        """Bytes of the inputs and of the output's gradient."""
        return storage_bytes([*self.inputs, self.grad])


def is_compiled(cell: AttentionCell) -> bool:
    """Returns whether torch.compile makes the cell's kernels; it always does for FlexAttention."""
    return cell.backend == "compiled" or cell.implementation == "flex"


def require_runnable(cell: AttentionCell, device: Device) -> None:
    """Raises Skipped where this device cannot run the cell, or where another cell measures the same."""
    require_available(cell.implementation, device.type, dtype=precision.product_dtype(cell.precision))
    if cell.implementation == "flex" and cell.backend == "compiled":
        raise Skipped("flex is always compiled; backend eager measures it.")
    if cell.cache == "cold" and device.type != "cuda":
        raise Skipped(f"Only on CUDA is the cache emptied between iterations; on {device.type} cells are measured hot.")


def _compile(cell: AttentionCell) -> Callable[..., Tensor]:
    """Returns the implementation as the backend runs it; compilation itself happens in the first iteration."""
    attend = implementation(cell.implementation)
    if is_compiled(cell):
        require_compiler()
    if cell.backend == "eager" or cell.implementation == "flex":
        return attend
    compiled: Callable[..., Tensor] = torch.compile(attend)
    return compiled
