"""What a step takes in a loop: steps that follow each other without waiting, as a training loop runs them.

    loop = time_loop(step, device, steps=steps, between=between)
    loop.medians()["step"]                                            # ms

A step that is waited for begins with an idle device, and its time holds what the host needs to start the first work and
to notice the end of the last. In a loop the host runs ahead, as far as it can. The device marks the beginning of each
step and the end of each phase, and the marks are read when the loop is over. A phase takes from mark to mark; the
step takes from its beginning to that of the next. So what happens between steps, such as dropping gradients, counts as
it does in training. Where that is work for the device and no part of a loop (emptying its cache), the step ends with
its last phase. Limits: 5 to 50 steps, so that the median of a restless machine is known less well than that of the
steps waited for; a step that itself waits for the device, as the gradient scaler of fp16 does, waits here too.
"""

import gc
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from runner.measure.machine.device import ClockMark, Device
from runner.measure.steps.step import Step
from runner.measure.timing.timing import Sample, Steps

#: A loop takes about this long (s), within these numbers of steps.
SECONDS = 0.5
MIN_STEPS, MAX_STEPS = 5, 50
#: The first steps, in which the host gets ahead of the device; they do not count.
SETTLING = 2

StepEnd = Literal["next step", "last phase"]


def time_loop(
    step: Step, device: Device, *, steps: Steps, between: Callable[[int], None], ends: StepEnd = "next step"
) -> Steps:
    """Runs the measured `steps` on in a loop and returns the steps of that loop, the settling ones as warm-up.

    `between(number)` runs before each step and once more at the end, and counts on from the number of `steps`."""
    number, count = len(steps.samples), loop_length(steps.summary.median)
    marks: list[ClockMark] = []

    def mark() -> None:
        marks.append(device.mark())

    gc.collect()
    gc.disable()
    try:
        device.synchronize()
        for place in range(count):
            between(number + place)
            mark()
            step(mark)
        between(number + count)
        mark()
        device.synchronize()
    finally:
        gc.enable()
    width = len(steps.phases) + 1
    assert len(marks) == count * width + 1, f"{len(marks)} marks for {count} steps of {width - 1} phases"
    return replace(steps, samples=tuple(_samples(marks, device, width=width, ends=ends)), warmup=SETTLING)


def loop_length(step_ms: float) -> int:
    """Returns the number of steps of a loop, for steps that are expected to take `step_ms`."""
    return min(max(math.ceil(SECONDS * 1e3 / step_ms), MIN_STEPS), MAX_STEPS)


def _samples(marks: Sequence[ClockMark], device: Device, *, width: int, ends: StepEnd) -> Iterator[Sample]:
    """Yields the steps, each of `width` marks; the last mark is the beginning of a step that did not run."""
    for first in range(0, len(marks) - 1, width):
        inside = marks[first : first + width]
        pairs = list(itertools.pairwise(inside))
        end = inside[-1] if ends == "last phase" else marks[first + width]
        yield Sample(
            device_ms=tuple(device.milliseconds(begin, end) for begin, end in pairs),
            host_ms=tuple((end.host_ns - begin.host_ns) / 1e6 for begin, end in pairs),
            step_ms=device.milliseconds(inside[0], end),
        )
