"""The two times of a step without waiting for it: in a loop, and on the device alone.

Comes after the measured steps and runs 5 to 50 more, for about half a second, and then one that is traced. What is read
of the measured steps alone (the loss, the peaks, the compiler's counters) must be read before. CUDA only: a CPU's call
returns when its work is done, so that waiting costs it nothing, and MPS cannot be traced. Limits: five steps of more
than a tenth of a second take longer than that.

What the device needs for a step if it never waits for the host: from one traced step, its phases told by markers. Only
the device is traced (by CUPTI through PyTorch's profiler, without the host's operators), and only for one step. A
kernel that does nothing is launched at the step's beginning and at the end of each phase; those kernels, found by their
name, divide the others into phases. The device time of a phase is the time in which any of its kernels, copies and
memsets ran, and a gap for each kernel. Limits: later launches are slower, so that this comes after whatever is timed in
milliseconds; work on another stream counts for the phase in which it starts; kernels that run beside each other have
their gaps counted all the same. Nothing is known under nsys, which owns CUPTI, nor where CUPTI is missing or not
allowed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, supported_activities

from runner.measure.device import Device
from runner.measure.model_step import Step
from runner.measure.timing import UNKNOWN, Clocks, Sample, StepEnd, Steps, time_loop
from runner.models.ranges import is_under_nsys


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Something that took the device's time. `caller` is the position of the operator that launched it (None if
    unknown), or on a CPU its own."""

    kernel: str
    start_ns: int
    end_ns: int
    device_ns: int
    caller: int | None


def device_work(profiler: profile) -> list[DeviceWork]:
    """Returns what ran on the device, of a profiler that watched nothing else, so that its callers are unknown."""
    events = [event for event in kineto_events(profiler) if not (is_on_host(event) or event.is_user_annotation())]
    spans = [(event.name(), event.start_ns(), event.end_ns()) for event in events]
    return [DeviceWork(name, start_ns, end_ns, end_ns - start_ns, None) for name, start_ns, end_ns in spans]


def union_ns(work: Sequence[DeviceWork]) -> int:
    """Returns the time in which something ran; overlapping work counts once."""
    total = reached = 0
    for item in sorted(work, key=lambda item: item.start_ns):
        total += max(item.end_ns - max(item.start_ns, reached), 0)
        reached = max(reached, item.end_ns)
    return total


def kineto_events(profiler: profile) -> list[Any]:
    """Returns the profiler's raw events, which are there at once; its own objects take seconds to build."""
    assert profiler.profiler is not None
    results = profiler.profiler.kineto_results
    assert results is not None
    return list(results.events())


def is_on_host(event: Any) -> bool:
    return bool(event.device_type().name == "CPU")


#: What a replayed CUDA graph leaves between two kernels. On an NVIDIA H200 (torch 2.11, CUDA 13.0) the median replay of
#: a step exceeded the union of its traced kernels by 0.35, 0.30, 0.34, 0.29 and 0.26 µs per kernel (small and large
#: models, bf16 and fp32, training and inference). The union alone is 1 to 6 % below; with this gap it is within 2 %.
GAP_US = 0.33
#: How the name of the kernel that `torch.cuda._sleep` launches begins (aten/src/ATen/cuda/Sleep.cu).
MARKER = "at::cuda::(anonymous namespace)::spin_kernel"
#: How the profiler's names begin for work that is no kernel.
COPIES = ("Memcpy", "Memset")


def trace_phases(step: Step, device: Device, *, phases: int, between: Callable[[], None]) -> tuple[float, ...] | None:
    """Runs one step and returns the device time of each phase (ms); None where it cannot be known."""
    if device.type != "cuda" or is_under_nsys() or ProfilerActivity.CUDA not in supported_activities():  # type: ignore[no-untyped-call]
        return None
    try:
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
            between()
            _launch_marker()
            step(_launch_marker)
            device.synchronize()
    except RuntimeError:
        return None
    return phase_times(device_work(profiler), phases=phases)


def _launch_marker() -> None:
    torch.cuda._sleep(1)  # type: ignore[no-untyped-call]


def phase_times(work: Sequence[DeviceWork], *, phases: int) -> tuple[float, ...] | None:
    """Returns the device time (ms) of each phase, divided by markers; None unless there is one at each end."""
    parts: list[list[DeviceWork]] = []
    for item in sorted(work, key=lambda item: item.start_ns):
        if item.kernel.startswith(MARKER):
            parts.append([])
        elif parts:
            parts[-1].append(item)
    if len(parts) != phases + 1:
        return None
    kernels = [sum(not item.kernel.startswith(COPIES) for item in part) for part in parts[:-1]]
    return tuple(union_ns(part) / 1e6 + count * GAP_US / 1e3 for part, count in zip(parts, kernels, strict=False))


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
    seconds, joules = time.perf_counter() - began, loop.usage.get("step_joules")
    alone = () if traced is None else (Sample(device_ms=traced, host_ms=traced, step_ms=sum(traced)),)
    device_ms = replace(steps, samples=alone, warmup=0).medians() if alone else {}
    return Clocks(loop_ms=loop.medians(), device_ms=device_ms, joules=joules, seconds=seconds)
