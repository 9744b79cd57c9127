"""What the device needs for a step if it never waits for the host: from one traced step, its phases told by markers.

    trace_phases(step, device, phases=2, between=lambda: None)        ->  (0.41, 0.95)    # ms, or None

Only the device is traced (by CUPTI through PyTorch's profiler, without the host's operators), and only for one step. A
kernel that does nothing is launched at the step's beginning and at the end of each phase; those kernels, found by their
name, divide the others into phases. The device time of a phase is the time in which any of its kernels, copies and
memsets ran, and a gap for each kernel. Limits: later launches are slower, so that this comes after whatever is timed in
milliseconds; work on another stream counts for the phase in which it starts; kernels that run beside each other have
their gaps counted all the same. Nothing is known under nsys, which owns CUPTI, nor where CUPTI is missing or not
allowed.
"""

from collections.abc import Callable, Sequence

import torch
from torch.profiler import ProfilerActivity, profile, supported_activities

from runner.measure.machine.device import Device
from runner.measure.machine.device_work import DeviceWork, device_work, union_ns
from runner.measure.steps.step import Step
from runner.models.ranges import is_under_nsys

#: What a replayed CUDA graph leaves between two kernels. On an NVIDIA H200 (torch 2.11, CUDA 13.0) the median replay of
#: a step exceeded the union of its traced kernels by 0.35, 0.30, 0.34, 0.29 and 0.26 µs per kernel (small and large
#: models, bf16 and fp32, training and inference). The union alone is 1 to 6 % below the replay; with this gap it is
#: within 2 %.
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
    return tuple(_device_ms(part) for part in parts[:-1])


def _device_ms(work: Sequence[DeviceWork]) -> float:
    kernels = sum(not item.kernel.startswith(COPIES) for item in work)
    return union_ns(work) / 1e6 + kernels * GAP_US / 1e3
