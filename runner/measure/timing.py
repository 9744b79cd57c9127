"""The times of the phases of one step, measured within the real step and never by subtracting loops.

    limits = StepLimits(warmup=5, min_steps=10, max_steps=200, seconds=10)
    steps = measure(step, device, phases=("forward", "loss", "backward"), limits=limits)
    steps.timings(run_id, cell_id)

`step(mark)` does the work and calls `mark()` at the end of each phase. The device is synchronized before and after it,
and the host's time of the synchronized step is kept beside the phases, which must add up to it. Every sample is kept,
warm-up included. Python's garbage collector is off meanwhile. Limits: a phase of a few microseconds is not resolved on
CUDA, whose events tick at about 0.5 µs.

The times of a step without waiting for it, and whether the device or the host sets the pace. Both are known on CUDA
only. Limits: a share close to the limit falls to either side by chance; the row keeps the share.

What a step takes in a loop: steps that follow each other without waiting, as a training loop runs them. A step that is
waited for begins with an idle device, and its time holds what the host needs to start the first work and to notice the
end of the last. In a loop the host runs ahead, as far as it can. The device marks the beginning of each step and the
end of each phase, and the marks are read when the loop is over. A phase takes from mark to mark; the step takes from
its beginning to that of the next. So what happens between steps, such as dropping gradients, counts as it does in
training. Where that is work for the device and no part of a loop (emptying its cache), the step ends with its last
phase. Limits: 5 to 400 steps, so that the median of a restless machine is known less well than that of the steps waited
for; a step that itself waits for the device, as the gradient scaler of fp16 does, waits here too.
"""

import gc
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self
from uuid import UUID

import torch

from runner.allowance import gpu_handle, read_counter
from runner.analysis import statistics
from runner.measure.device import ClockMark, Device
from runner.measure.limits import read_usage, usage_per_step
from runner.measure.model_step import Step
from runner.models.ranges import is_under_nsys, named_range
from runner.results.times import find_bound
from runner.schema import AttentionCell, Bound, Phase, SampleRow, StepCell, StoppedBy, TimingRow


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """The median of each phase and sum of a step in a loop, and what the device needs for it (ms). Empty where
    unknown. `joules` is the energy of a step in the loop, by the GPU's own counter, and `seconds` how long finding them
    took."""

    loop_ms: Mapping[Phase, float] = field(default_factory=dict)
    device_ms: Mapping[Phase, float] = field(default_factory=dict)
    joules: float | None = None
    seconds: float | None = None

    @property
    def device_share(self) -> float | None:
        """Device time over loop time of the whole step; None where one of them is unknown."""
        if "step" not in self.loop_ms or "step" not in self.device_ms:
            return None
        return self.device_ms["step"] / self.loop_ms["step"]

    @property
    def bound(self) -> Bound | None:
        """What sets the time of a step in a loop."""
        return find_bound(self.loop_ms.get("step"), self.device_ms.get("step"))


#: The clocks of a step that was only waited for.
UNKNOWN = Clocks()

#: Measuring goes on until the 95% interval of the median step is at most this share of the median.
INTERVAL_SHARE = 0.03


@dataclass(frozen=True, kw_only=True)
class StepLimits:
    """`warmup` steps come first, then at least `min_steps` measured ones, then more until the interval of the median is
    narrow enough, `max_steps` are reached, or `seconds` are over. With `min_slow_steps`, the time may end it after that
    many already."""

    warmup: int
    min_steps: int
    max_steps: int
    seconds: float
    min_slow_steps: int | None = None

    @classmethod
    def of(cls, cell: StepCell | AttentionCell, *, min_slow_steps: int | None = None) -> Self:
        limits = {"warmup": cell.warmup_steps, "min_steps": cell.min_steps, "max_steps": cell.max_steps}
        return cls(**limits, seconds=cell.max_seconds, min_slow_steps=min_slow_steps)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One step: each phase's time by the device's clock and by the host's, and the host's time of the whole (ms)."""

    device_ms: tuple[float, ...]
    host_ms: tuple[float, ...]
    step_ms: float


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Every step of a cell, in order; the first `warmup` of them are not part of any statistic. `usage` is what the
    system did in a measured step on average, by column of the row."""

    phases: tuple[Phase, ...]
    samples: tuple[Sample, ...]
    warmup: int
    stopped_by: StoppedBy
    clock: str
    warmup_seconds: float
    measure_seconds: float
    usage: Mapping[str, float] = field(default_factory=dict)

    @property
    def measured(self) -> tuple[Sample, ...]:
        return self.samples[self.warmup :]

    @property
    def summary(self) -> statistics.Summary:
        """The statistics of the measured steps by the host's clock around the synchronized step (ms)."""
        return statistics.summarize([sample.step_ms for sample in self.measured])

    @property
    def phase_sum_share(self) -> float:
        """Median over steps of (sum of the phases) / (host clock around the synchronized step)."""
        return statistics.summarize([sum(sample.device_ms) / sample.step_ms for sample in self.measured]).median

    def values(self, clocks: Clocks) -> dict[str, object]:
        """Returns how the steps were measured and what set their pace, by column of the row."""
        return {
            "steps": len(self.measured),
            "stopped_by": self.stopped_by,
            "warmup_seconds": self.warmup_seconds,
            "measure_seconds": self.measure_seconds,
            "unwaited_seconds": clocks.seconds,
            "bound": clocks.bound,
            "device_share": clocks.device_share,
            **self.usage,
        }

    def series(self, phase: Phase) -> list[tuple[float, float]]:
        """Returns the time and the host time (ms) of a phase, or of a sum of phases, in every step. Those of `step` are
        the host's around the synchronized step, as a training loop would see it."""
        if phase == "step":
            return [(sample.step_ms, sample.step_ms) for sample in self.samples]
        names = ("forward", "loss", "backward") if phase == "forward_backward" else (phase,)
        places = [self.phases.index(name) for name in names if name in self.phases]
        return [
            (sum(sample.device_ms[place] for place in places), sum(sample.host_ms[place] for place in places))
            for sample in self.samples
        ]

    def reported(self) -> tuple[Phase, ...]:
        """Returns the phases and the sums that have rows."""
        sums: tuple[Phase, ...] = ("forward_backward", "step") if "backward" in self.phases else ("step",)
        return self.phases + sums

    def medians(self) -> dict[Phase, float]:
        """Returns the median (ms) of each phase and sum over the measured steps."""
        return {
            phase: statistics.summarize([duration for duration, _ in self.series(phase)[self.warmup :]]).median
            for phase in self.reported()
        }

    def timings(self, run_id: UUID, cell_id: UUID, *, clocks: Clocks = UNKNOWN) -> list[TimingRow]:
        """Returns a row for each phase and sum, with the times that `clocks` has of it."""
        rows = []
        for phase in self.reported():
            series = self.series(phase)[self.warmup :]
            durations = [duration for duration, _ in series]
            summary = statistics.summarize(durations)
            rows.append(
                TimingRow(
                    run_id=run_id,
                    cell_id=cell_id,
                    phase=phase,
                    n=summary.n,
                    median_ms=summary.median,
                    mean_ms=summary.mean,
                    std_ms=summary.std,
                    low_ms=summary.low,
                    high_ms=summary.high,
                    host_median_ms=statistics.summarize([host for _, host in series]).median,
                    clock="host" if phase == "step" else self.clock,
                    loop_ms=clocks.loop_ms.get(phase),
                    device_ms=clocks.device_ms.get(phase),
                    undisturbed_ms=statistics.lower_decile(durations) if self.clock == "host" else None,
                )
            )
        return rows

    def rows(self, run_id: UUID, cell_id: UUID) -> list[SampleRow]:
        ids: dict[str, Any] = {"run_id": run_id, "cell_id": cell_id}
        return [
            SampleRow(**ids, phase=phase, step=at, is_warmup=at < self.warmup, duration_ms=duration, host_ms=host)
            for phase in self.reported()
            for at, (duration, host) in enumerate(self.series(phase))
        ]


def measure(
    step: Step,
    device: Device,
    *,
    phases: tuple[Phase, ...],
    limits: StepLimits,
    between: Callable[[int], None] = lambda number: None,
    report: Callable[[str], None] = lambda doing: None,
) -> Steps:
    """Runs `step` until its limits are reached. `between(number)` runs before each step, outside every clock.

    `report` is told "warm-up" before the first step and "measure" before the second; where there is no second step of
    warm-up, "measure" before the first. Whoever listens wakes up on this machine and slows the next steps (1.3 times on
    two cores), so that nothing is reported later."""
    samples: list[Sample] = []
    stopped_by: StoppedBy | None = None
    doing = ("warm-up", "measure") if limits.warmup > 1 else ("measure",)
    gc.collect()
    gc.disable()
    try:
        began = steady = time.perf_counter()
        used = read_usage()
        while stopped_by is None:
            if len(samples) < len(doing):
                report(doing[len(samples)])
            between(len(samples))
            if len(samples) == limits.warmup:
                _capture(device, "start")
                used = read_usage()
                steady = time.perf_counter()
            samples.append(time_step(step, device, phases=len(phases)))
            measured = [sample.step_ms for sample in samples[limits.warmup :]]
            stopped_by = _stop_reason(measured, limits=limits, seconds=time.perf_counter() - steady)
        ended = time.perf_counter()
        usage = usage_per_step(used, read_usage(), steps=len(samples) - limits.warmup)
    finally:
        gc.enable()
        _capture(device, "stop")
    return Steps(
        phases=phases,
        samples=tuple(samples),
        warmup=limits.warmup,
        stopped_by=stopped_by,
        clock=device.clock,
        warmup_seconds=steady - began,
        measure_seconds=ended - steady,
        usage=usage,
    )


def interval_share(summary: statistics.Summary) -> float | None:
    """Returns the width of the median's 95% interval as a share of the median; None for too few samples."""
    if summary.low is None or summary.high is None:
        return None
    return (summary.high - summary.low) / summary.median


def time_step(step: Step, device: Device, *, phases: int) -> Sample:
    """Times one step between two synchronizations."""
    marks: list[ClockMark] = []

    def mark() -> None:
        marks.append(device.mark())

    with named_range("step"):
        device.synchronize()
        began = time.perf_counter_ns()
        mark()
        step(mark)
        device.synchronize()
        ended = time.perf_counter_ns()
    assert len(marks) == phases + 1, f"{len(marks)} marks for {phases} phases"
    return _make_sample(marks, device, step_ms=(ended - began) / 1e6)


def _make_sample(marks: Sequence[ClockMark], device: Device, *, step_ms: float) -> Sample:
    pairs = list(itertools.pairwise(marks))
    return Sample(
        device_ms=tuple(device.milliseconds(begin, end) for begin, end in pairs),
        host_ms=tuple((end.host_ns - begin.host_ns) / 1e6 for begin, end in pairs),
        step_ms=step_ms,
    )


def _capture(device: Device, what: Literal["start", "stop"]) -> None:
    """Starts or stops the range that `nsys profile --capture-range=cudaProfilerApi` records: the measured steps. It
    must stop before the process is killed, which is once its result is there."""
    if device.type == "cuda" and is_under_nsys():
        {"start": torch.cuda.profiler.start, "stop": torch.cuda.profiler.stop}[what]()  # type: ignore[no-untyped-call]


def _stop_reason(measured_ms: Sequence[float], *, limits: StepLimits, seconds: float) -> StoppedBy | None:
    count, is_over = len(measured_ms), seconds >= limits.seconds
    if is_over and limits.min_slow_steps is not None and count >= limits.min_slow_steps:
        return "max_seconds"
    if count < limits.min_steps:
        return None
    if count >= limits.max_steps:
        return "max_steps"
    if is_over:
        return "max_seconds"
    share = interval_share(statistics.summarize(measured_ms))
    return "interval" if share is not None and share <= INTERVAL_SHARE else None


#: A loop takes about this long (s), within these numbers of steps.
SECONDS = 1.0
MIN_STEPS, MAX_STEPS = 5, 400
#: NVML's counter of energy (mJ), which an H200 brings up to date some ten times a second.
ENERGY = "nvmlDeviceGetTotalEnergyConsumption"
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

    handle = gpu_handle(str(device.torch))
    gc.collect()
    gc.disable()
    try:
        device.synchronize()
        before = read_counter(handle, ENERGY)
        for place in range(count):
            between(number + place)
            mark()
            step(mark)
        between(number + count)
        mark()
        device.synchronize()
        after = read_counter(handle, ENERGY)
    finally:
        gc.enable()
    usage = {"step_joules": (after - before) / 1000 / count} if before and after else {}
    width = len(steps.phases) + 1
    assert len(marks) == count * width + 1, f"{len(marks)} marks for {count} steps of {width - 1} phases"
    last = width - 1 if ends == "last phase" else width  # the mark that ends a step
    samples = tuple(
        _make_sample(marks[at : at + width], device, step_ms=device.milliseconds(marks[at], marks[at + last]))
        for at in range(0, count * width, width)
    )
    return replace(steps, samples=samples, warmup=SETTLING, usage=usage)


def loop_length(step_ms: float) -> int:
    """Returns the number of steps of a loop, for steps that are expected to take `step_ms`."""
    return min(max(math.ceil(SECONDS * 1e3 / step_ms), MIN_STEPS), MAX_STEPS)
