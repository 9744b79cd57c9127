"""The peak memory of this process, and the limit that keeps it from exhausting the machine.

    reset_peaks(device); ...; peaks(device)  ->  {"peak_allocated_bytes": ..., ...}

On CUDA the allocator counts live tensors and reserved memory; on a CPU the kernel counts the process's resident memory
(Linux only, where the counter can be reset). A counter that does not exist is None, never 0.

Beside it, what the operating system did for this process so far, and for others: pages handed out, times that it was
off its core, memory in use, the share of the CPU that other processes took. Page faults are minor and major ones,
context switches voluntary and involuntary ones, of all threads together (getrusage(2), RUSAGE_SELF). Limits: children
are not counted.

Where no allocator counts, `LiveTensors` counts tensors as operators return them: less exact than a recording
(`runner.measure.timeline`), but it knows what was alive when an operator failed. It slows steps, so nothing is timed
meanwhile.
"""

import contextlib
import ctypes
import re
import resource
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from runner.allowance import read_text, usable_memory
from runner.measure.device import Device

_M_MMAP_THRESHOLD = -3  # from malloc.h


def reset_peaks(device: Device) -> None:
    """Resets every peak, so that none is carried over from earlier work."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device.torch)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM: proc(5)


def peaks(device: Device) -> dict[str, int | None]:
    """Returns the peaks since `reset_peaks` (bytes), by column of the row."""
    cuda = device.type == "cuda"
    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(device.torch) if cuda else None,
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(device.torch) if cuda else None,
        "peak_resident_bytes": _status_bytes("VmHWM"),
    }


def limit(device: str, limit_bytes: int | None) -> int | None:
    """Limits this process to `limit_bytes` of the device's memory from now on; on a CPU, by default, to what is free.

    On a CPU the process also becomes the first that the kernel's out-of-memory killer ends, so that running out is an
    error in this process and not the end of another. Returns the bytes that it may still take; None where there is no
    limit (macOS; CUDA by default)."""
    if device == "cpu":
        used = _status_bytes("VmData")
        if used is None or sys.platform == "darwin":
            return None
        free = usable_memory() if limit_bytes is None else limit_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (used + free, resource.RLIM_INFINITY))
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
        return free
    if device.startswith("cuda") and limit_bytes is not None:
        card = Device(device).torch
        total = torch.cuda.get_device_properties(card).total_memory
        torch.cuda.set_per_process_memory_fraction(min(limit_bytes / total, 1.0), card)
        return limit_bytes
    return None


def free_at_once() -> None:
    """Makes a CPU's allocator return every larger block to the system when it is freed (mallopt(3), glibc only), so
    that live tensors reach a limit and not what the allocator keeps. Slows steps, so nothing is timed after it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if sys.platform == "linux" and mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 2**16)


def _status_bytes(name: str) -> int | None:
    """Returns a size from /proc/self/status; None where there is no such file or line."""
    lines = (read_text(Path("/proc/self/status")) or "").splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)


def read_usage() -> Mapping[str, int]:
    """Returns the counts since this process began, by column of the row."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {"page_faults": usage.ru_minflt + usage.ru_majflt, "context_switches": usage.ru_nvcsw + usage.ru_nivcsw}


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
    return {name: (count - before[name]) / steps for name, count in after.items()}


class OtherProcesses:
    """The share of the machine's CPU time that other processes have used since this object was made."""

    def __init__(self) -> None:
        self.began, self.busy, self.own = time.perf_counter(), _busy_seconds(), _own_seconds()

    def share(self) -> float:
        available = (time.perf_counter() - self.began) * (psutil.cpu_count() or 1)
        others = (_busy_seconds() - self.busy) - (_own_seconds() - self.own)
        return min(max(others / available, 0.0), 1.0)


def _busy_seconds() -> float:
    """Returns the CPU seconds that the machine has spent on anything, including time taken by its host."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle)


def _own_seconds() -> float:
    """Returns the CPU seconds of this process and of the children that it has waited for (the compiler's)."""
    return float(sum(psutil.Process().cpu_times()[:4]))


_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = r"([\d.]+) (bytes|[KMGT]iB)"
#: The messages of CUDA's allocator (`c10/cuda/CUDACachingAllocator.cpp`) and the CPU's
#: (`c10/core/impl/alloc_cpu.cpp`) when memory runs out, by column of the row.
_REFUSALS = {
    "asked_bytes": rf"[Tt]ried to allocate {_SIZE}",
    "in_use_bytes": rf"{_SIZE} is allocated by PyTorch",
    "device_bytes": rf"total capacity of {_SIZE}",
}


class LiveTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what is alive when an operator starts, so also when one fails. `held` bytes were allocated before."""

    def __init__(self, held: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = self.in_use_bytes = held
        self._storages: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_storage(tensor).cdata for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, Tensor)}
        self._storages = {key: item for key, item in self._storages.items() if not item[0].expired()}  # type: ignore[no-untyped-call]
        self.in_use_bytes = self.held + sum(size for _, size in self._storages.values())
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and (ref := _storage(tensor)).cdata not in given:
                self._storages[ref.cdata] = (ref, tensor.untyped_storage().nbytes())
        return result


def _storage(tensor: Tensor) -> StorageWeakRef:
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Returns the bytes of the tensors' storages, each counted once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether memory ran out, by the error or its cause. On a CPU torch raises a plain RuntimeError."""
    words = ("can't allocate memory", "out of memory", "bad_alloc", "Cannot allocate memory")
    own = isinstance(error, torch.OutOfMemoryError | MemoryError) or any(word in str(error) for word in words)
    return own or (error.__cause__ is not None and is_out_of_memory(error.__cause__))


def parse_refusal(message: str) -> dict[str, int]:
    """Returns the bytes that an allocator's message names, by column of the row: requested, in use, on the device. CUDA
    rounds them to two decimals of a unit."""
    matches = {name: re.search(pattern, message) for name, pattern in _REFUSALS.items()}
    return {name: round(float(match[1]) * _UNITS[match[2]]) for name, match in matches.items() if match}
