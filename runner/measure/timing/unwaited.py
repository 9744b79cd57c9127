"""The two times of a step without waiting for it: in a loop, and on the device alone.

    clocks = measure_unwaited(step, device, steps=steps, between=between)

Comes after the measured steps and runs 5 to 50 more, for about half a second, and then one that is traced. What is read
of the measured steps alone (the loss, the peaks, the compiler's counters) must be read before. CUDA only: a CPU's call
returns when its work is done, so that waiting costs it nothing, and MPS cannot be traced. Limits: five steps of more
than a tenth of a second take longer than that.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from runner.measure.machine.device import Device
from runner.measure.steps.step import Step
from runner.measure.timing.clocks import UNKNOWN, Clocks
from runner.measure.timing.device_time import trace_phases
from runner.measure.timing.loop import StepEnd, time_loop
from runner.measure.timing.timing import Sample, Steps


def measure_unwaited(
    step: Step, device: Device, *, steps: Steps, between: Callable[[int], None], ends: StepEnd = "next step"
) -> Clocks:
    """Returns the loop times and the device times of the phases and sums of `steps`; unknown where there is no CUDA."""
    if device.type != "cuda":
        return UNKNOWN
    began = time.perf_counter()
    loop = time_loop(step, device, steps=steps, between=between, ends=ends)
    number = len(steps.samples) + len(loop.samples) + 1
    traced = trace_phases(step, device, phases=len(steps.phases), between=partial(between, number))
    seconds = time.perf_counter() - began
    if traced is None:
        return Clocks(loop_ms=loop.medians(), seconds=seconds)
    alone = Sample(device_ms=traced, host_ms=traced, step_ms=sum(traced))
    device_ms = replace(steps, samples=(alone,), warmup=0).medians()
    return Clocks(loop_ms=loop.medians(), device_ms=device_ms, seconds=seconds)
