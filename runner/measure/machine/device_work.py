"""What ran on the device, as PyTorch's profiler reports it.

work = device_work(profiler)
union_ns(work)      # the time in which something ran
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch.profiler import profile


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
