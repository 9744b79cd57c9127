"""Computes from a step's times: throughput, operations a second, and the share of the device's peak.

flops = find_step_flops(job, cell, step.workload)
values |= rate_values(steps, flops, job=job, clocks=clocks)
"""

from dataclasses import dataclass, replace

from runner.analysis.costs import hardware
from runner.analysis.costs import steps as costs
from runner.job import Job
from runner.measure.own.flops import count_cell
from runner.measure.timing.clocks import Clocks
from runner.measure.timing.timing import Steps, interval_share
from runner.models.workload import Workload
from runner.schema import FlopsSource, StepCell


@dataclass(frozen=True, kw_only=True)
class StepFlops:
    """The operations of one step, and those of them that the model needs: without what a checkpoint repeats."""

    step: int
    model: int
    source: FlopsSource


def find_step_flops(job: Job, cell: StepCell, workload: Workload) -> StepFlops | None:
    """Returns the operations of a cell's step: by formula, or of an own model by PyTorch's counter; None where that
    cannot count."""
    if cell.model_key is None:
        flops = costs.step_flops(cell)
        return StepFlops(step=flops, model=flops - costs.recomputed_flops(cell), source="formula")
    model = job.flops or count_cell(replace(cell, checkpoint_blocks=0), None)
    whole = count_cell(cell, workload) if cell.checkpoint_blocks or model is None else model
    if whole is None:
        return None
    return StepFlops(step=whole.of_mode(cell.mode), model=(model or whole).of_mode(cell.mode), source="counter")


def rate_values(steps: Steps, flops: StepFlops | None, *, job: Job, clocks: Clocks) -> dict[str, object]:
    """Returns what follows from the times, by column of the row. Rates are those of a loop, where that was timed."""
    cell = job.cell
    assert isinstance(cell, StepCell)
    seconds = clocks.loop_ms.get("step", steps.summary.median) / 1e3
    peak = hardware.peak_flops(job.device_name, cell.precision)
    return {
        "steps": len(steps.measured),
        "stopped_by": steps.stopped_by,
        "interval_share": interval_share(steps.summary),
        "tokens_per_s": cell.batch * cell.context / seconds if cell.context else None,
        "samples_per_s": cell.batch / seconds,
        "step_flops": flops.step if flops else None,
        "flops_source": flops.source if flops else None,
        "flops_per_s": flops.step / seconds if flops else None,
        "mfu": flops.model / seconds / peak if flops and peak else None,
        "phase_sum_share": steps.phase_sum_share,
        "bound": clocks.bound,
        "device_share": clocks.device_share,
        **steps.usage,
        "warmup_seconds": steps.warmup_seconds,
        "measure_seconds": steps.measure_seconds,
        "unwaited_seconds": clocks.seconds,
    }
