"""The operations of a step by PyTorch's own counter, without running it where that is possible.

    counted = count_cell(cell, step.workload); counted.of_mode("train")

The model is built once more on the meta device, where tensors have shapes and no numbers, so that counting costs no
memory. A model that looks at its numbers, as a mixture of experts does, cannot run there. The counter knows matrix
products, convolutions and fused attention (torch.utils.flop_counter); like our formulas it counts a multiply and an add
as two, and the square of scores whole.
"""

import contextlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode as _Counter

from runner.models.own import own_workload
from runner.models.workload import Workload
from runner.schema import StepCell
from runner.schema.own import PassFlops


def grouped_product_flops(a: Sequence[int], b: Sequence[int], *others: object, **named: object) -> int:
    """Returns the operations of products of rows in groups, each with a matrix of its own: (rows, k) by (groups, k, n),
    and the gradients of both. Every row is in one group, so the groups' sizes do not matter."""
    *groups, rows, inner = a
    count = groups[0] if groups and len(b) == 3 else 1
    return 2 * count * rows * inner * b[-1]


#: What mixtures of experts multiply with and the counter does not know.
_MORE = {torch.ops.aten._grouped_mm: grouped_product_flops} if hasattr(torch.ops.aten, "_grouped_mm") else {}


def count_passes(workload: Workload) -> PassFlops:
    """Counts one forward pass with its loss, and its backward pass where anything can be differentiated. The gradients
    are dropped afterwards."""
    # The meta device and a CPU have fused attention that the counter does not know, and has none of it to count.
    fused = workload.inputs[0].is_cuda
    with (
        nullcontext() if fused else sdpa_kernel(SDPBackend.MATH),
        _Counter(display=False, custom_mapping=_MORE) as counter,
    ):
        output = workload.run()
        forward = counter.get_total_flops()
        loss = workload.loss(output)
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        total = counter.get_total_flops()
    workload.model.zero_grad()
    return PassFlops(forward=forward, backward=total - forward)


def count_cell(cell: StepCell, built: Workload | None) -> PassFlops | None:
    """Counts the passes of an own model's cell, checkpointing included: on the meta device or, where that fails, with
    the workload that was `built` and measured. None where neither works."""
    plain = replace(cell, attention="sdpa") if cell.attention.startswith("sdpa") else cell
    with contextlib.suppress(Exception):
        return count_passes(own_workload(plain, device=torch.device("meta")))
    if built is not None:
        with contextlib.suppress(Exception), torch.compiler.set_stance("force_eager"):
            return count_passes(built)
    return None


def reason_of(error: BaseException) -> str:
    """Returns the first line of why something cannot be counted without data."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]
