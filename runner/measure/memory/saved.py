"""What single-head attention keeps for its backward pass: every tensor, in a forward pass of its own.

    rows = saved_tensors(step.run, step.inputs, job=job)    # step: runner.measure.timing.attention.AttentionStep

Tensors are seen by autograd's hooks, the operations that need them by an `Observer`. Limits: what a compiler made of
the operations is one operation, called `compiled`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from runner.job import Job
from runner.measure.memory.observer import Observer, address
from runner.schema import AttentionCell, SavedTensorRow


@dataclass(frozen=True)
class _SavedTensor:
    """A tensor that autograd kept, and the operation that needs it."""

    operation: str
    shape: tuple[int, ...]
    dtype: str
    address: int
    bytes: int


Inputs = tuple[Tensor, Tensor, Tensor]


def saved_tensors(run: Callable[..., Tensor], inputs: Inputs, *, job: Job) -> list[SavedTensorRow]:
    """One row a tensor that `run(*inputs)` keeps, in the order of keeping; 0 bytes where an earlier row holds its
    storage. `inputs` are queries, keys and values."""
    assert isinstance(job.cell, AttentionCell)
    is_compiled = job.cell.backend == "compiled" or job.cell.implementation == "flex"
    output, kept = (_compiled if is_compiled else _observed)(run, inputs)
    assert output.requires_grad
    given = zip(("queries", "keys", "values"), inputs, strict=True)
    names = {address(output): "output", **{address(tensor): name for name, tensor in given}}
    rows, known = list[SavedTensorRow](), set[int]()
    for position, item in enumerate(kept):
        rows.append(
            SavedTensorRow(
                run_id=job.run_id,
                cell_id=job.cell_id,
                position=position,
                operation=item.operation,
                tensor=names.get(item.address),
                shape="×".join(map(str, item.shape)) or "1",
                dtype=item.dtype,
                storage_bytes=0 if item.address in known else item.bytes,
            )
        )
        known.add(item.address)
    return rows


def _observed(run: Callable[..., Tensor], inputs: Inputs) -> tuple[Tensor, list[_SavedTensor]]:
    """The output, which keeps all of it alive, and what was kept, operator by operator."""
    observer = Observer(nn.Module())
    with observer:
        output = run(*inputs)
    return output, [
        _SavedTensor(observer.operation_of(item), item.shape, item.dtype, item.address, item.bytes)
        for item in observer.saved
    ]


def _compiled(run: Callable[..., Tensor], inputs: Inputs) -> tuple[Tensor, list[_SavedTensor]]:
    """The same of compiled code, which an observer of operators would keep from running."""
    kept: list[_SavedTensor] = []

    def keep(tensor: Tensor) -> Tensor:
        dtype, size = str(tensor.dtype).removeprefix("torch."), tensor.untyped_storage().nbytes()
        kept.append(_SavedTensor("compiled", tuple(tensor.shape), dtype, address(tensor), size))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, _as_it_is):
        output = run(*inputs)
    return output, kept


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor
