"""What the operating system did for this process so far, and for others: pages handed out, times that it was off its
core, memory in use, the share of the CPU that other processes took.

    before = read_usage(); ...; usage_per_step(before, read_usage(), steps=10)

Page faults are minor and major ones, context switches voluntary and involuntary ones, of all threads together
(getrusage(2), RUSAGE_SELF). Limits: children are not counted, and Windows has no such call.
"""

import os
import sys
import time
from collections.abc import Mapping

import psutil
import torch

if sys.platform != "win32":
    import resource


def read_usage() -> Mapping[str, int]:
    """Returns the counts since this process began, by column of the row; nothing on Windows."""
    if sys.platform == "win32":
        return {}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "page_faults": usage.ru_minflt + usage.ru_majflt,
        "context_switches": usage.ru_nvcsw + usage.ru_nivcsw,
    }


def read_memory(device: torch.device) -> int:
    """Returns the bytes in use: of live tensors on CUDA, of the process elsewhere."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else int(psutil.Process().memory_info().rss)


#: The measured steps before which memory is read; what grows at first, such as a heap, says nothing about a step.
GROWTH_STEPS = frozenset(2**power for power in range(11))


def growth_per_step(held: Mapping[int, int]) -> int | None:
    """Returns by how many bytes a step of the second half grew what is in use, from readings by number of step, of
    which the last is the end. None for fewer than four steps."""
    last = max(held)
    middle = max((number for number in held if number <= last // 2), default=0)
    return round((held[last] - held[middle]) / (last - middle)) if middle > 1 else None


def usage_per_step(before: Mapping[str, int], after: Mapping[str, int], *, steps: int) -> dict[str, float]:
    """Returns how much each count grew, per step."""
    return {name: (count - before[name]) / steps for name, count in after.items()}


class OtherProcesses:
    """The share of the machine's CPU time that other processes have used since this object was made."""

    def __init__(self) -> None:
        self.began, self.busy, self.own = time.perf_counter(), _busy_seconds(), _own_seconds()

    def share(self) -> float:
        available = (time.perf_counter() - self.began) * (psutil.cpu_count() or 1)
        others = (_busy_seconds() - self.busy) - (_own_seconds() - self.own)
        return min(max(others / available, 0.0), 1.0)


def cpu_values(others: OtherProcesses) -> dict[str, object]:
    """Returns the columns that explain differences between CPU rows of the same cell."""
    return {
        "threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "other_cpu_share": others.share(),
    }


def _busy_seconds() -> float:
    """Returns the CPU seconds that the machine has spent on anything, including time taken by its host."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle)


def _own_seconds() -> float:
    """Returns the CPU seconds of this process and of the children that it has waited for (the compiler's)."""
    return float(sum(psutil.Process().cpu_times()[:4]))
