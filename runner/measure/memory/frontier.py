"""One trial of a frontier: runs a step within the worker's memory limit and returns its peak.

    python -m runner frontier --limit 2GiB

For attention it is one iteration; for a model the second step, because the first has no optimizer state yet. A step
that does not fit raises the allocator's error, which the worker turns into `oom`.

On CUDA fused attention is issued and not computed: over ten million tokens it would compute for a quarter of an hour,
in memory that grows with the tokens alone. The iteration is recorded as a CUDA graph, which allocates what the
iteration allocates when it runs (a `gpu` test compares the two), and is never replayed. FlexAttention must be compiled
at this length, which is impossible while a graph is recorded, so it runs with a mask that hides every block. Attention
that writes the scores to memory is computed, in seconds: recorded, one of four frontiers on an H200 was one step of 64
tokens smaller than what had run.
"""

import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from runner.analysis.costs.attention_tensors import FLEX_BLOCK, is_unfused
from runner.job import Job, Measurement
from runner.measure.machine import limits, precision
from runner.measure.machine.allocations import CountedAllocations, storage_bytes
from runner.measure.machine.device import Device
from runner.measure.steps.attention import AttentionStep, require_runnable
from runner.measure.steps.model import ModelStep
from runner.models.attention import causal_blocks, flex_of_blocks
from runner.schema import AttentionCell, StepCell


def measure_trial(job: Job, report: Callable[[str], None]) -> Measurement:
    """Runs the job's cell once; the only value is `peak_allocated_bytes`. Raises Skipped where it cannot run."""
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, AttentionCell | StepCell)
    precision.apply(cell.precision, device)
    if device.type == "cpu":
        limits.free_at_once()
    report("build")
    step: AttentionStep | ModelStep
    if isinstance(cell, AttentionCell):
        require_runnable(cell, device)
        step = AttentionStep(cell, device)
        held = step.held_bytes
    else:
        step = ModelStep(cell, device)
        report("first step")
        step(lambda: None)
        step.between()
        held = storage_bytes(_state(step))
    try:
        peak = _measure_peak(step, device, held=held, report=report)
    except BaseException:
        report(step.phase)
        raise
    return Measurement(values={"peak_allocated_bytes": peak}, details={})


def _measure_peak(
    step: AttentionStep | ModelStep, device: Device, *, held: int, report: Callable[[str], None]
) -> int | None:
    """Returns the peak of live bytes in one step, including the `held` bytes before it."""
    if device.type == "cpu":
        report("step")
        with CountedAllocations(held) as counted:
            step(lambda: None)
        return counted.peak_bytes
    run: Callable[[], None] = functools.partial(step, lambda: None)
    if device.type == "cuda" and isinstance(step, AttentionStep):
        if step.cell.implementation == "flex":
            mask_everything(step, device)
            run()  # compiling takes memory of its own
            step.drop_gradients()
        elif not is_unfused(step.cell):
            run = functools.partial(record, step)
    limits.reset_peaks(device)
    report("step")
    run()
    device.synchronize()
    return limits.peaks(device)["peak_allocated_bytes"]


def record(step: AttentionStep) -> None:
    """Records an iteration as a CUDA graph. Libraries may load their kernels meanwhile, which only `relaxed` allows."""
    with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="relaxed"):
        step(lambda: None)


def mask_everything(step: AttentionStep, device: Device) -> None:
    """Gives FlexAttention a mask of the cell's size that hides every block."""
    length = step.cell.seq_len
    if step.cell.causal:
        blocks = causal_blocks(length, device.torch)
        causal_blocks.cache_clear()  # the next caller needs the real mask
    else:  # one block of everything, as PyTorch makes without a mask
        one, which = (torch.zeros(size, dtype=torch.int32, device=device.torch) for size in ((1, 1, 1), (1, 1, 1, 1)))
        block = -(-length // FLEX_BLOCK) * FLEX_BLOCK
        blocks = BlockMask.from_kv_blocks(one, which, BLOCK_SIZE=block, seq_lengths=(length, length))
    for count in (blocks.kv_num_blocks, blocks.full_kv_num_blocks, blocks.q_num_blocks, blocks.full_q_num_blocks):
        if count is not None:
            count.zero_()
    step.run = functools.partial(flex_of_blocks, blocks=blocks)


def _state(step: ModelStep) -> Iterator[Tensor]:
    """Yields the tensors that exist before a model's step: parameters, tables, data, optimizer state."""
    yield from step.model.parameters()
    yield from step.model.buffers()
    yield from step.workload.inputs
    if step.optimizer is not None:
        for state in step.optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, torch.Tensor))
