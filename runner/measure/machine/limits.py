"""The peak memory of this process, and the limit that keeps it from exhausting the machine.

    reset_peaks(device); ...; peaks(device)  ->  {"peak_allocated_bytes": ..., ...}

On CUDA the allocator counts live tensors and reserved memory; on a CPU the kernel counts the process's resident memory
(Linux only, where the counter can be reset). A counter that does not exist is None, never 0.
"""

import contextlib
import ctypes
import resource
import sys
from pathlib import Path

import torch

from runner.allowance import usable_memory
from runner.measure.machine.device import Device

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
        return _limit_data(limit_bytes)
    if device.startswith("cuda") and limit_bytes is not None:
        card = Device(device).torch
        total = torch.cuda.get_device_properties(card).total_memory
        torch.cuda.set_per_process_memory_fraction(min(limit_bytes / total, 1.0), card)
        return limit_bytes
    return None


def _limit_data(limit_bytes: int | None) -> int | None:
    """Sets RLIMIT_DATA, which counts all private writable memory: getrlimit(2)."""
    used = _status_bytes("VmData")
    if used is None or sys.platform == "darwin":
        return None
    free = usable_memory() if limit_bytes is None else limit_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (used + free, resource.RLIM_INFINITY))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    return free


def free_at_once() -> None:
    """Makes a CPU's allocator return every larger block to the system when it is freed (mallopt(3), glibc only), so
    that live tensors reach a limit and not what the allocator keeps. Slows steps, so nothing is timed after it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if sys.platform == "linux" and mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 2**16)


def _status_bytes(name: str) -> int | None:
    """Returns a size from /proc/self/status; None where there is no such file or line."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)
