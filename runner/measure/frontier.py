"""Does this size fit? One real step at the limit that the worker was given, and its peak.

    python -m runner frontier --limit 2GiB

For attention one iteration; for a model the second step, because the first has no optimizer state yet. What does not
fit raises whatever the allocator raises, which the worker turns into `oom`.

On CUDA memory is taken when a kernel is issued, not when it runs: once the whole step is issued it has all that it will
ever take, and the allocator knows the peak. What is still running after `AWAITED_S` (a fused kernel over ten million
tokens computes for a quarter of an hour, in memory that grows with the tokens alone) is not waited for; it ends with
the process. A CPU takes memory as it computes, so that every trial there runs to its end.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from runner.engines.job import Job, Measurement
from runner.measure import memory, precision
from runner.measure.allocations import CountedAllocations, storage_bytes
from runner.measure.attention import AttentionStep, check
from runner.measure.device import Device
from runner.measure.step import ModelStep
from runner.schema import AttentionCell, StepCell

#: How long a trial on CUDA is watched for what its kernels might still report, such as an address out of bounds.
AWAITED_S = 5.0


def measure_trial(job: Job, report: Callable[[str], None]) -> Measurement:
    """Runs the job's cell once; the only value is `peak_allocated_bytes`. Raises Skipped where it cannot be run."""
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, AttentionCell | StepCell)
    precision.apply(cell.precision, device)
    if device.type == "cpu":
        memory.give_back_at_once()
    report("build")
    if isinstance(cell, AttentionCell):
        check(cell, device)
        attention = AttentionStep(cell, device)
        return _counted(attention, device, held=attention.held_bytes, report=report)
    model = ModelStep(cell, device)
    report("first step")
    model(lambda: None)
    model.between()
    return _counted(model, device, held=storage_bytes(_held(model)), report=report)


def _counted(
    step: AttentionStep | ModelStep, device: Device, *, held: int, report: Callable[[str], None]
) -> Measurement:
    memory.reset_peaks(device)
    report("step")
    try:
        if device.type == "cpu":
            with CountedAllocations(held) as counted:
                step(lambda: None)
            peak: int | None = counted.peak_bytes
        else:
            step(lambda: None)
            device.wait(AWAITED_S)
            peak = memory.peaks(device)["peak_allocated_bytes"]
    except BaseException:
        report(step.phase)
        raise
    return Measurement(values={"peak_allocated_bytes": peak}, details={})


def _held(step: ModelStep) -> Iterator[Tensor]:
    """What a model's step finds when it begins: parameters, tables, optimizer state, data."""
    yield from step.model.parameters()
    yield from step.model.buffers()
    yield from (step.inputs, step.targets)
    if step.optimizer is not None:
        for state in step.optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, torch.Tensor))
