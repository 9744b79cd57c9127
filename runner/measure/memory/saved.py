"""The tensors that single-head attention saves for its backward pass, recorded in a forward pass of its own.

    rows = saved_tensors(step.run, step.inputs, job=job)    # step: runner.measure.steps.attention.AttentionStep

Autograd's hooks see the tensors, an `Observer` the operations that need them. Limits: compiled code is one operation,
called `compiled`.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from runner.job import Job
from runner.measure.memory.observer import Observer, Saved, address
from runner.measure.steps.attention import is_compiled
from runner.schema import AttentionCell, SavedTensorRow

Inputs = tuple[Tensor, Tensor, Tensor]


def saved_tensors(run: Callable[..., Tensor], inputs: Inputs, *, job: Job) -> list[SavedTensorRow]:
    """Returns one row for each tensor that `run(*inputs)` saves, in order; 0 bytes where an earlier row has the same
    storage. `inputs` are queries, keys and values."""
    assert isinstance(job.cell, AttentionCell)
    output, saved = (_run_compiled if is_compiled(job.cell) else _run_observed)(run, inputs)
    assert output.requires_grad
    given = zip(("queries", "keys", "values"), inputs, strict=True)
    names = {address(output): "output", **{address(tensor): name for name, tensor in given}}
    rows, known = list[SavedTensorRow](), set[int]()
    for position, (operation, item) in enumerate(saved):
        rows.append(
            SavedTensorRow(
                run_id=job.run_id,
                cell_id=job.cell_id,
                position=position,
                operation=operation,
                tensor=names.get(item.address),
                shape=item.shape,
                dtype=item.dtype,
                storage_bytes=0 if item.address in known else item.bytes,
            )
        )
        known.add(item.address)
    return rows


def _run_observed(run: Callable[..., Tensor], inputs: Inputs) -> tuple[Tensor, list[tuple[str, Saved]]]:
    """Returns the output, which keeps the saved tensors alive, and these with the operations that need them."""
    with Observer(nn.Module()) as observer:
        output = run(*inputs)
    return output, [(observer.operation_of(item), item) for item in observer.saved]


def _run_compiled(run: Callable[..., Tensor], inputs: Inputs) -> tuple[Tensor, list[tuple[str, Saved]]]:
    """Does the same for compiled code, which does not run under an observer of operators."""
    saved: list[tuple[str, Saved]] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(("compiled", Saved.of(tensor, module=None)))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = run(*inputs)
    return output, saved
