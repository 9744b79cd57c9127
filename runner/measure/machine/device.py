"""A device to measure on: synchronizing it and marking moments on its clock.

    device = Device("cuda"); mark = device.mark(); ...; device.synchronize(); device.milliseconds(mark, later_mark)

CUDA and MPS mark moments with events, because their work goes on after the call that issued it has returned. A CPU's
work is done when the call returns, so the host's clock marks the moment. MPS is untested on real hardware.
"""

import time
from dataclasses import dataclass

import torch

from runner.errors import UsageError


@dataclass(frozen=True)
class ClockMark:
    """A moment by the host's clock (ns), and by the device's own where it has one."""

    host_ns: int
    event: torch.cuda.Event | torch.mps.Event | None


class Device:
    """One device. `name` is a torch device string; `torch` always has an index on CUDA."""

    def __init__(self, name: str) -> None:
        self.torch = torch.device(name)
        self.type: str = self.torch.type
        self.clock = {"cuda": "cuda-event", "mps": "mps-event"}.get(self.type, "host")
        if self.type == "cuda":
            if self.torch.index is None:  # half of torch.cuda takes no device without one
                self.torch = torch.device("cuda", torch.cuda.current_device())
            torch.cuda.set_device(self.torch)

    def synchronize(self) -> None:
        """Waits until everything issued so far is done."""
        if self.type == "cuda":
            torch.cuda.synchronize(self.torch)
        elif self.type == "mps":
            torch.mps.synchronize()

    def mark(self) -> ClockMark:
        """Marks this moment in the order of the device's work; takes a microsecond and waits for nothing."""
        event: torch.cuda.Event | torch.mps.Event | None = None
        if self.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        elif self.type == "mps":
            event = torch.mps.Event(enable_timing=True)
        if event is not None:
            event.record()
        return ClockMark(time.perf_counter_ns(), event)

    def milliseconds(self, begin: ClockMark, end: ClockMark) -> float:
        """Returns the time between two marks by the device's clock (ms). Needs a synchronized device."""
        if begin.event is None or end.event is None:
            return (end.host_ns - begin.host_ns) / 1e6
        return float(begin.event.elapsed_time(end.event))  # type: ignore[arg-type]


def choose(device: str) -> str:
    """Returns the torch device string for `auto`, `cuda`, `cuda:1`, `mps` or `cpu`; `auto` is CUDA, else MPS, else CPU.

    Raises UsageError for a device that this machine does not have."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    present = [name for name, is_present in available.items() if is_present]
    if device == "auto":
        return present[0]
    kind, _, index = device.partition(":")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if kind not in present or (index and (not index.isdigit() or int(index) >= count)):
        raise UsageError(
            f"This machine has no device {device!r}.",
            expected=f"one of {', '.join(present)}",
            do="Leave out --device to take the best one, or see `python -m runner doctor`.",
        )
    return device
