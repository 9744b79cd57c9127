"""Steps that are not waited for: a loop is timed from step to step, and markers divide traced work into phases.

Tested by hand, and with steps of known length on a CPU, which uses the host's clock for its marks.
tests/runner/measure/test_unwaited_gpu.py tests on a GPU that these times are the device's.
"""

import gc
import mmap
import statistics
import sys
import time
from collections.abc import Callable

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from runner.measure import device_time
from runner.measure.device import ClockMark, Device
from runner.measure.device_time import DeviceWork, device_work, measure_unwaited, phase_times, trace_phases
from runner.measure.timing import SETTLING, UNKNOWN, Clocks, StepEnd, StepLimits, Steps, loop_length, measure, time_loop
from runner.schema import Phase, new_id
from tests.runner.measure.test_timing import LATE_MS

CPU = Device("cpu")
TWO: tuple[Phase, ...] = ("forward", "backward")


def sleeping(mark: Callable[[], None]) -> None:
    """Runs a step whose forward takes 4 ms and whose backward takes 8."""
    for seconds in (0.004, 0.008):
        time.sleep(seconds)
        mark()


def measured(step: Callable[[Callable[[], None]], None] = sleeping, *, warmup: int = 0) -> Steps:
    return measure(step, CPU, phases=TWO, limits=StepLimits(warmup=warmup, min_steps=3, max_steps=3, seconds=60.0))


def test_a_loop_is_half_a_second_of_five_to_fifty_steps() -> None:
    assert [loop_length(ms) for ms in (0.1, 10.0, 12.0, 40.0, 100.0, 60_000.0)] == [400, 100, 84, 25, 10, 5]


@pytest.mark.parametrize(("ends", "least_ms"), [("next step", 18.0), ("last phase", 12.0)])
def test_a_step_of_a_loop_lasts_until_the_next_begins(ends: StepEnd, least_ms: float) -> None:
    """The work between steps takes 6 ms, which count to the step or to nothing."""
    steps, numbers, collecting = measured(warmup=1), list[int](), list[bool]()

    def between(number: int) -> None:
        numbers.append(number)
        collecting.append(gc.isenabled())
        time.sleep(0.006)

    loop = time_loop(sleeping, CPU, steps=steps, between=between, ends=ends)
    count = loop_length(steps.summary.median)
    assert numbers == list(range(4, 4 + count + 1)), "numbered after one warm-up and three measured steps"
    assert not any(collecting)
    assert gc.isenabled()
    assert (len(loop.samples), loop.warmup, len(loop.measured)) == (count, SETTLING, count - 2)
    medians = loop.medians()
    assert list(medians) == ["forward", "backward", "forward_backward", "step"]
    slept: dict[Phase, float] = {"forward": 4.0, "backward": 8.0, "forward_backward": 12.0, "step": least_ms}
    for phase, ms in slept.items():
        assert ms <= medians[phase] < ms + LATE_MS
    for taken in loop.samples:
        apart = taken.step_ms - sum(taken.device_ms)
        assert apart >= 6.0 if ends == "next step" else apart == pytest.approx(0.0, abs=1e-6)
    expected = statistics.median(sum(taken.device_ms) for taken in loop.samples[2:])
    assert medians["forward_backward"] == pytest.approx(expected), "summed step by step, without the first two"


def test_a_cpu_has_neither_loop_nor_device_time() -> None:
    def never(number: int) -> None:
        raise AssertionError

    steps = measured()
    assert measure_unwaited(sleeping, CPU, steps=steps, between=never) is UNKNOWN
    assert trace_phases(sleeping, CPU, phases=2, between=lambda: None) is None
    assert (UNKNOWN.bound, UNKNOWN.device_share) == (None, None)
    assert {(row.loop_ms, row.device_ms) for row in steps.timings(new_id(), new_id())} == {(None, None)}


class SleepingDevice(Device):
    """A CPU that acts as a CUDA device, with the host's clock for its events."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.type = "cuda"

    def mark(self) -> ClockMark:
        return ClockMark(time.perf_counter_ns(), None)

    def synchronize(self) -> None:
        """Does nothing, because no work continues after its call."""


@pytest.mark.parametrize("traced", [(3.0, 5.0), None])
def test_the_traced_step_follows_the_loop(monkeypatch: pytest.MonkeyPatch, traced: tuple[float, float] | None) -> None:
    numbers = list[int]()

    def trace(step: object, device: Device, *, phases: int, between: Callable[[], None]) -> tuple[float, float] | None:
        assert phases == 2
        numbers.append(-1)
        between()
        return traced

    monkeypatch.setattr(device_time, "trace_phases", trace)
    steps = measured()
    clocks = measure_unwaited(sleeping, SleepingDevice(), steps=steps, between=numbers.append)
    count = loop_length(steps.summary.median)
    assert numbers == [*range(3, 3 + count + 1), -1, 3 + count + 1], "each step has its own number"
    assert 12.0 <= clocks.loop_ms["step"] < 12.0 + LATE_MS
    expected = {"forward": 3.0, "backward": 5.0, "forward_backward": 8.0, "step": 8.0}
    assert clocks.device_ms == (expected if traced else {})
    assert clocks.bound == ("host" if traced else None)


def test_the_times_reach_the_row_of_their_phase() -> None:
    clocks = Clocks(loop_ms={"forward": 1.0, "step": 4.0}, device_ms={"forward": 0.5})
    found = {row.phase: (row.loop_ms, row.device_ms) for row in measured().timings(new_id(), new_id(), clocks=clocks)}
    nothing = (None, None)
    assert found == {"forward": (1.0, 0.5), "backward": nothing, "forward_backward": nothing, "step": (4.0, None)}


@pytest.mark.parametrize(
    ("device_ms", "share", "bound"), [(9.5, 0.95, "device"), (9.4, 0.94, "host"), (10.1, 1.01, "device")]
)
def test_what_bounds_a_step(device_ms: float, share: float, bound: str) -> None:
    clocks = Clocks(loop_ms={"step": 10.0}, device_ms={"step": device_ms})
    assert clocks.device_share == pytest.approx(share)
    assert clocks.bound == bound
    for partly in (Clocks(loop_ms={"step": 10.0}), Clocks(device_ms={"step": device_ms})):
        assert (partly.device_share, partly.bound) == (None, None)


def work(kernel: str, start_us: float, end_us: float) -> DeviceWork:
    start_ns, end_ns = round(start_us * 1e3), round(end_us * 1e3)
    return DeviceWork(kernel, start_ns, end_ns, end_ns - start_ns, None)


def marker(start_us: float) -> DeviceWork:
    return work(f"{device_time.MARKER}(long)", start_us, start_us + 2)


TRACED = [
    work("flush", 0, 5),  # before the step
    marker(10),
    work("gemm", 20, 30),
    work("reduce", 25, 40),  # at the same time as the product: 20 µs for both
    marker(50),
    work("Memcpy DtoD (Device -> Device)", 60, 63),
    work("gemm", 70, 80),
    work("Memset (Device)", 90, 91),
    work("add", 1000, 1001),  # takes 1 µs, however late the host launched it
    marker(1010),
    work("zero", 1020, 1030),  # after the step
]


def test_markers_divide_work_into_phases() -> None:
    """By hand: two kernels that ran for 20 µs; two kernels, a copy and a memset that ran for 10, 1, 3 and 1 µs."""
    assert device_time.GAP_US == 0.33
    expected = (0.020_66, 0.015_66)
    assert phase_times(TRACED, phases=2) == pytest.approx(expected)
    assert phase_times(TRACED[::-1], phases=2) == pytest.approx(expected), "in any order"


def test_the_hosts_work_is_not_the_devices() -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiler, record_function("a range"):
        torch.ones(8) + 1
    assert device_work(profiler) == []


@pytest.mark.parametrize("phases", [1, 3])
def test_a_wrong_number_of_markers_gives_no_device_time(phases: int) -> None:
    assert phase_times(TRACED, phases=phases) is None
    assert phase_times([], phases=phases) is None
    assert phase_times([work("add", 0, 1)], phases=phases) is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows counts neither")
def test_new_pages_and_sleeps_are_counted_only_in_measured_steps() -> None:
    pages = [9000, 100, 200, 300]

    def touching(mark: Callable[[], None]) -> None:
        """Writes to as many new pages, and sleeps once in each phase."""
        with mmap.mmap(-1, pages[0] * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            for page in range(pages.pop(0)):
                memory[page * mmap.PAGESIZE] = 1
        sleeping(mark)

    steps = measured(touching, warmup=1)
    assert 200 <= steps.usage["page_faults"] < 2000, "the average, without the 9000 of the warm-up"
    assert steps.usage["context_switches"] >= 2
