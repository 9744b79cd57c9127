"""How long do the phases of one step take? Timed inside the real step, never by subtracting loops.

    limits = Limits(warmup=5, least=10, most=200, seconds=10)
    steps = measure(step, device, phases=("forward", "loss", "backward"), limits=limits)
    steps.timings(run_id, cell_id)

`step(mark)` does the work and calls `mark()` at the end of each phase. Around it the device is synchronized, and the
host's clock around the synchronized step is kept beside the phases, which must add up to it. Every sample is kept,
warm-up included. Python's garbage collector is off while steps are timed. Limits: a phase shorter than a few
microseconds is not resolved on CUDA (events tick at about 0.5 µs).
"""

import gc
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import torch

from runner.analysis import statistics
from runner.measure.machine.device import ClockMark, Device
from runner.models.ranges import is_under_nsys, named_range
from runner.schema import Phase, SampleRow, StoppedBy, TimingRow

#: Measuring goes on until the 95% interval of the median step is at most this share of the median.
INTERVAL_SHARE = 0.03

Step = Callable[[Callable[[], None]], None]


@dataclass(frozen=True, kw_only=True)
class StepLimits:
    """`warmup` steps first, then at least `least` measured ones; then until the interval of the median is narrow
    enough, `most` steps have been measured, or `seconds` have gone by. With `fewest`, `seconds` may end it after that
    many already."""

    warmup: int
    least: int
    most: int
    seconds: float
    fewest: int | None = None


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One step: each phase's time by the device's clock and by the host's, and the host's clock around it all (ms)."""

    device_ms: tuple[float, ...]
    host_ms: tuple[float, ...]
    step_ms: float


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Every step of a cell, in order; the first `warmup` of them are not part of any statistic."""

    phases: tuple[Phase, ...]
    samples: tuple[Sample, ...]
    warmup: int
    stopped_by: StoppedBy
    clock: str
    warmup_seconds: float
    measure_seconds: float

    @property
    def measured(self) -> tuple[Sample, ...]:
        return self.samples[self.warmup :]

    @property
    def summary(self) -> statistics.Summary:
        """The measured steps by the host's clock around the synchronized step (ms)."""
        return statistics.summarize([sample.step_ms for sample in self.measured])

    @property
    def phase_sum_share(self) -> float:
        """Median over steps of (sum of the phases) / (host clock around the synchronized step)."""
        return statistics.summarize([sum(sample.device_ms) / sample.step_ms for sample in self.measured]).median

    def series(self, phase: Phase) -> list[tuple[float, float]]:
        """(time, host time) in ms of a phase, or of a sum of phases, in every step. The time of `step` is the host's
        clock around the synchronized step: what a training loop would see."""
        if phase == "step":
            return [(sample.step_ms, sample.step_ms) for sample in self.samples]
        names = ("forward", "loss", "backward") if phase == "forward_backward" else (phase,)
        places = [self.phases.index(name) for name in names if name in self.phases]
        return [
            (sum(sample.device_ms[place] for place in places), sum(sample.host_ms[place] for place in places))
            for sample in self.samples
        ]

    def reported(self) -> tuple[Phase, ...]:
        """The phases and the sums that rows are made for."""
        sums: tuple[Phase, ...] = ("forward_backward", "step") if "backward" in self.phases else ("step",)
        return self.phases + sums

    def timings(self, run_id: UUID, cell_id: UUID) -> list[TimingRow]:
        rows = []
        for phase in self.reported():
            series = self.series(phase)[self.warmup :]
            summary = statistics.summarize([duration for duration, _ in series])
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
                )
            )
        return rows

    def rows(self, run_id: UUID, cell_id: UUID) -> list[SampleRow]:
        return [
            SampleRow(
                run_id=run_id,
                cell_id=cell_id,
                phase=phase,
                step=number,
                is_warmup=number < self.warmup,
                duration_ms=duration,
                host_ms=host,
            )
            for phase in self.reported()
            for number, (duration, host) in enumerate(self.series(phase))
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
    """Runs `step` until `limits` say stop. `between(number)` runs before each step, outside every clock.

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
        while stopped_by is None:
            if len(samples) < len(doing):
                report(doing[len(samples)])
            between(len(samples))
            if len(samples) == limits.warmup:
                _capture(device, "start")
                steady = time.perf_counter()
            samples.append(time_step(step, device, phases=len(phases)))
            measured = [sample.step_ms for sample in samples[limits.warmup :]]
            stopped_by = _stop(measured, limits=limits, seconds=time.perf_counter() - steady)
        ended = time.perf_counter()
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
    )


def interval_share(summary: statistics.Summary) -> float | None:
    """Width of the median's 95% interval as a share of the median; None for too few samples to have one."""
    if summary.low is None or summary.high is None:
        return None
    return (summary.high - summary.low) / summary.median


def time_step(step: Step, device: Device, *, phases: int) -> Sample:
    """One step between two synchronizations."""
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
    pairs = list(itertools.pairwise(marks))
    return Sample(
        device_ms=tuple(device.milliseconds(begin, end) for begin, end in pairs),
        host_ms=tuple((end.host_ns - begin.host_ns) / 1e6 for begin, end in pairs),
        step_ms=(ended - began) / 1e6,
    )


def _capture(device: Device, what: Literal["start", "stop"]) -> None:
    """The range that `nsys profile --capture-range=cudaProfilerApi` records: the measured steps. It has to end before
    the process does, which is killed once its result is there."""
    if device.type == "cuda" and is_under_nsys():
        {"start": torch.cuda.profiler.start, "stop": torch.cuda.profiler.stop}[what]()  # type: ignore[no-untyped-call]


def _stop(measured_ms: Sequence[float], *, limits: StepLimits, seconds: float) -> StoppedBy | None:
    if limits.fewest is not None and len(measured_ms) >= limits.fewest and seconds >= limits.seconds:
        return "max_seconds"
    if len(measured_ms) < limits.least:
        return None
    if len(measured_ms) >= limits.most:
        return "max_steps"
    if seconds >= limits.seconds:
        return "max_seconds"
    share = interval_share(statistics.summarize(measured_ms))
    return "interval" if share is not None and share <= INTERVAL_SHARE else None
