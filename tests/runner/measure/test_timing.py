"""The times that a cell reports are those of its phases: tested with steps of known length."""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from runner.measure.device import Device
from runner.measure.model_step import Step
from runner.measure.timing import Sample, StepLimits, Steps, measure
from runner.schema import PHASES, Phase, new_id

CPU = Device("cpu")
THREE: tuple[Phase, ...] = ("forward", "loss", "backward")
SLEEPS_MS = {"forward": 12.0, "loss": 4.0, "backward": 24.0}
#: A busy machine wakes a sleeping process late, never early.
LATE_MS = 200.0


def sleeping(log: list[str] | None = None, *, first_ms: float = 0.0) -> Step:
    """Returns a step of three phases of known length; the first step sleeps `first_ms` longer, in its forward phase."""
    extra = [first_ms]

    def step(mark: Callable[[], None]) -> None:
        for phase in THREE:
            time.sleep((SLEEPS_MS[phase] + (extra.pop() if extra else 0.0)) / 1e3)
            mark()
        if log is not None:
            log.append("step")

    return step


def limits(*, warmup: int = 0, least: int = 3, most: int = 3, seconds: float = 60.0) -> StepLimits:
    return StepLimits(warmup=warmup, min_steps=least, max_steps=most, seconds=seconds)


def steps_of(samples: Sequence[Sample], *, warmup: int = 0, phases: tuple[Phase, ...] = THREE) -> Steps:
    return Steps(phases=phases, samples=tuple(samples), warmup=warmup, stopped_by="max_steps", clock="host",
                 warmup_seconds=0.0, measure_seconds=0.0)  # fmt: skip


def sample(*phases_ms: float, step_ms: float) -> Sample:
    return Sample(device_ms=phases_ms, host_ms=tuple(value + 1 for value in phases_ms), step_ms=step_ms)


def test_each_phase_takes_as_long_as_it_slept() -> None:
    steps = measure(sleeping(), CPU, phases=THREE, limits=limits(least=5, most=5))
    for place, phase in enumerate(THREE):
        for taken in steps.samples:
            assert SLEEPS_MS[phase] <= taken.device_ms[place] < SLEEPS_MS[phase] + LATE_MS
    for taken in steps.samples:
        assert 40.0 <= sum(taken.device_ms) <= taken.step_ms, "the phases are within the step"
        assert taken.step_ms - sum(taken.device_ms) < LATE_MS
        assert taken.host_ms == taken.device_ms, "a CPU has only one clock"
    assert 0.2 < steps.phase_sum_share <= 1.0
    assert steps.clock == "host"
    assert sum(taken.step_ms for taken in steps.samples) <= steps.measure_seconds * 1e3


def test_warm_up_steps_are_kept_but_not_counted() -> None:
    steps = measure(sleeping(first_ms=400.0), CPU, phases=THREE, limits=limits(warmup=2))
    assert (len(steps.samples), len(steps.measured), steps.warmup) == (5, 3, 2)
    assert steps.samples[0].step_ms >= 440.0
    assert steps.warmup_seconds >= 0.48
    run_id, cell_id = new_id(), new_id()
    rows = steps.rows(run_id, cell_id)
    assert {(row.step, row.is_warmup) for row in rows} == {(0, True), (1, True), (2, False), (3, False), (4, False)}
    assert len(rows) == 5 * 5, "three phases, forward_backward and step"
    assert {row.run_id for row in rows} | {row.cell_id for row in rows} == {run_id, cell_id}
    step = next(row for row in steps.timings(run_id, cell_id) if row.phase == "step")
    assert step.n == 3
    assert step.mean_ms == pytest.approx(statistics.fmean(taken.step_ms for taken in steps.samples[2:]))


def test_timings_and_samples_computed_by_hand() -> None:
    cold, one = sample(90.0, 9.0, 900.0, step_ms=999.0), sample(1.0, 2.0, 3.0, step_ms=8.0)
    two, three = sample(2.0, 2.0, 4.0, step_ms=10.0), sample(6.0, 2.0, 2.0, step_ms=12.5)
    steps = steps_of([cold, one, two, three], warmup=1)
    assert steps.phase_sum_share == pytest.approx(0.8), "the median of 6/8, 8/10 and 10/12.5"
    timings = {row.phase: row for row in steps.timings(new_id(), new_id())}
    assert list(timings) == ["forward", "loss", "backward", "forward_backward", "step"]
    assert (timings["forward"].median_ms, timings["forward"].mean_ms) == (2.0, 3.0)
    assert timings["forward"].std_ms == pytest.approx(7**0.5), "the sample standard deviation of 1, 2 and 6"
    assert timings["forward"].host_median_ms == 3.0
    assert timings["loss"].std_ms == 0.0
    # The median of 6, 8 and 10, not 2 + 2 + 3, because medians do not add.
    assert timings["forward_backward"].median_ms == 8.0
    assert (timings["step"].median_ms, timings["step"].clock) == (10.0, "host")
    assert timings["step"].low_ms is timings["step"].high_ms is None, "three samples have no interval"
    rows = steps.rows(new_id(), new_id())
    assert [row.duration_ms for row in rows if row.phase == "forward_backward"] == [999.0, 6.0, 8.0, 10.0]
    assert [row.duration_ms for row in rows if row.phase == "step"] == [999.0, 8.0, 10.0, 12.5]


def test_on_a_cpu_each_phase_has_its_undisturbed_time() -> None:
    """The 10th percentile of 1 to 11 is 2; that of their sums with a loss of 2 and a backward pass of 3 is 7."""
    steps = steps_of([sample(float(ms), 2.0, 3.0, step_ms=20.0 + ms) for ms in range(11, 0, -1)])
    timings = steps.timings(new_id(), new_id())
    assert (timings[-1].low_ms, timings[-1].high_ms) == (22.0, 30.0), "of eleven: 1 - 2 (1 + 11) / 2**11 = 98.8%"
    found = {row.phase: row.undisturbed_ms for row in timings}
    assert found == {"forward": 2.0, "loss": 2.0, "backward": 3.0, "forward_backward": 7.0, "step": 22.0}
    on_gpu = replace(steps, clock="cuda-event").timings(new_id(), new_id())
    few = replace(steps, samples=steps.samples[:5]).timings(new_id(), new_id())
    assert {row.undisturbed_ms for row in (*on_gpu, *few)} == {None}


def test_a_training_step_keeps_the_optimizer_out_of_forward_backward() -> None:
    steps = steps_of([sample(1.0, 2.0, 4.0, 8.0, step_ms=16.0)], phases=PHASES["train"])
    assert steps.series("forward_backward") == [(7.0, 10.0)]
    assert steps.series("optimizer") == [(8.0, 9.0)]
    assert steps.reported() == ("forward", "loss", "backward", "optimizer", "forward_backward", "step")
    assert steps_of([sample(1.0, step_ms=1.0)], phases=("forward",)).reported() == ("forward", "step")


def test_work_between_steps_is_not_timed() -> None:
    log: list[str] = []

    def between(number: int) -> None:
        log.append(f"between {number}")
        time.sleep(0.3 if number <= 1 else 0.0)

    steps = measure(sleeping(log), CPU, phases=THREE, limits=limits(warmup=1, least=2, most=2), between=between)
    assert log == ["between 0", "step", "between 1", "step", "between 2", "step"]
    assert all(taken.step_ms < 40.0 + LATE_MS for taken in steps.samples)
    # Before the first measured step it counts as warm-up: 0.3 s twice and one step.
    assert steps.warmup_seconds >= 0.64
    assert steps.measure_seconds < steps.warmup_seconds


def quick(mark: Callable[[], None]) -> None:
    time.sleep(0.002)
    mark()


def test_stops_at_the_maximum_of_steps_or_when_time_is_up_but_not_before_the_minimum() -> None:
    for most, seconds, by in ((4, 60.0, "max_steps"), (10_000, 0.0, "max_seconds")):
        steps = measure(quick, CPU, phases=("forward",), limits=limits(least=4, most=most, seconds=seconds))
        assert (len(steps.measured), steps.stopped_by) == (4, by)
    times = [0.002, 0.012] * 10_000

    def alternating(mark: Callable[[], None]) -> None:
        """Takes 2 and 12 ms in turn, so that its median has no narrow interval."""
        time.sleep(times.pop())
        mark()

    restless = measure(alternating, CPU, phases=("forward",), limits=limits(least=2, most=10_000, seconds=0.2))
    assert restless.stopped_by == "max_seconds"
    assert restless.measure_seconds >= 0.2
    assert restless.measure_seconds - restless.samples[-1].step_ms / 1e3 < 0.2 + LATE_MS / 1e3, "no further step"


def test_stops_when_the_interval_is_narrow() -> None:
    """Steps are as exact as spinning makes them; a busy machine may need some more of them."""

    def exact(mark: Callable[[], None]) -> None:
        end = time.perf_counter() + 0.001
        while time.perf_counter() < end:
            pass
        mark()

    steps = measure(exact, CPU, phases=("forward",), limits=limits(least=6, most=10_000, seconds=60.0))
    summary = steps.summary
    assert steps.stopped_by == "interval"
    assert len(steps.measured) >= 6
    assert summary.low is not None
    assert summary.high is not None
    assert summary.high - summary.low <= 0.03 * summary.median


def test_warm_up_time_does_not_count_towards_the_limit() -> None:
    steps = measure(sleeping(first_ms=300), CPU, phases=THREE, limits=limits(warmup=1, least=1, most=99, seconds=0.25))
    assert len(steps.measured) > 1 or steps.measured[0].step_ms > 250.0


@pytest.mark.parametrize("phases", [("forward",), ("forward", "loss"), PHASES["train"]])
def test_a_step_that_marks_wrong_phases_is_an_internal_error(phases: tuple[Phase, ...]) -> None:
    with pytest.raises(AssertionError, match=f"4 marks for {len(phases)} phases"):
        measure(sleeping(), CPU, phases=phases, limits=limits())
    assert gc.isenabled(), "also when a step fails"


def test_garbage_is_not_collected_while_steps_are_timed() -> None:
    seen: list[bool] = []

    def step(mark: Callable[[], None]) -> None:
        seen.append(gc.isenabled())
        mark()

    measure(step, CPU, phases=("forward",), limits=limits())
    assert seen == [False] * 3
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("warmup", "expected"),
    [
        (3, ["warm-up", "step", "measure", "step", "step", "step"]),
        (2, ["warm-up", "step", "measure", "step", "step"]),
        (1, ["measure", "step", "step"]),
        (0, ["measure", "step"]),
    ],
)
def test_progress_is_not_reported_just_before_the_first_measured_step(warmup: int, expected: list[str]) -> None:
    log: list[str] = []

    def step(mark: Callable[[], None]) -> None:
        log.append("step")
        mark()

    measure(step, CPU, phases=("forward",), limits=limits(warmup=warmup, least=1, most=1), report=log.append)
    assert log == expected
