"""Compiles a cell ahead of its turn, by running its first step in a process that is not timed.

    first_ms, is_cold = run_first_step(job)

What the compiler made stays in its cache for the process that times the cell. What it chose by timing kernels does
not, because other cells are compiled at the same time: Triton's choices among configurations are made again by the
process that is alone with the device.
"""

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from runner.job import CompileJob
from runner.measure.machine import precision
from runner.measure.machine.device import Device
from runner.measure.steps.attention import AttentionStep, require_runnable
from runner.measure.steps.compiling import cache_in
from runner.measure.steps.model import ModelStep, require_attention
from runner.measure.steps.step import Step
from runner.measure.timing.compilation import count_hits
from runner.measure.timing.timing import time_step
from runner.models.ranges import listen_to_ranges, nsys_listener
from runner.schema import PHASES, AttentionCell, Cell, ProfileCell, StepCell


def run_first_step(job: CompileJob) -> tuple[float, bool]:
    """Returns the time of the cell's first step (ms), and whether nothing of it was in the compiler's cache. Raises
    Skipped where this machine cannot run the cell; errors of torch go through."""
    device, cell = Device(job.job.device), job.job.cell
    began = time.time()
    with cache_in(job.folder) if job.folder else nullcontext():
        step, phases, prepare = _build(cell, device)
        with listen_to_ranges(nsys_listener(device.type)):
            prepare()
            first = time_step(step, device, phases=phases).step_ms
        _forget_choices(since=began)
    return first, not count_hits()


def _build(cell: Cell, device: Device) -> tuple[Step, int, Callable[[], None]]:
    """Returns the step, the number of its phases, and what comes before it."""
    assert isinstance(cell, StepCell | ProfileCell | AttentionCell)
    if isinstance(cell, AttentionCell):
        require_runnable(cell, device)
        precision.apply(cell.precision, device)
        return AttentionStep(cell, device), 2, lambda: None
    require_attention(cell, device)
    precision.apply(cell.precision, device)
    step = ModelStep(cell.step() if isinstance(cell, ProfileCell) else cell, device)
    return step, len(PHASES[cell.mode]), step.between


def _forget_choices(*, since: float) -> None:
    """Removes from the compiler's cache the choices that were written there since then (s since 1970)."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    for choice in Path(cache_dir()).rglob("*.best_config"):
        if choice.stat().st_mtime >= since:
            choice.unlink(missing_ok=True)
