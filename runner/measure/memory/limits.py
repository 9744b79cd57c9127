"""How much memory did the process take at its peak, and how is it kept from taking the machine down?

    reset_peaks(device); ...; peaks(device)  ->  {"peak_allocated_bytes": ..., ...}

On CUDA the allocator counts live tensors and what it has reserved; on a CPU the kernel counts the process's resident
memory (Linux only: the counter can be reset there). A counter that does not exist is None, never 0.
"""

import contextlib
import ctypes
import resource
import sys
from pathlib import Path

import psutil
import torch

from runner.measure.machine.device import Device

_STATUS = Path("/proc/self/status")
_M_MMAP_THRESHOLD = -3  # from malloc.h


def reset_peaks(device: Device) -> None:
    """Forgets every peak so far, so that none is carried over from whatever ran before."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device.torch)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM: proc(5)


def peaks(device: Device) -> dict[str, int | None]:
    """Peaks since `reset_peaks`, in bytes, by column of the row."""
    cuda = device.type == "cuda"
    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(device.torch) if cuda else None,
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(device.torch) if cuda else None,
        "peak_resident_bytes": _status_bytes("VmHWM"),
    }


def limit(device: str, limit_bytes: int | None) -> int | None:
    """Lets this process take no more than `limit_bytes` of the device's memory from now on. On a CPU without a limit:
    no more than the machine has free now; and the process offers itself first to the kernel's out-of-memory killer.
    So running out is an error in this process and not the end of another one.

    Returns the bytes it may still take; None where there is no limit (CUDA unless asked for, macOS)."""
    if device == "cpu":
        return _limit_data(limit_bytes)
    if device.startswith("cuda") and limit_bytes is not None:
        card = Device(device).torch
        total = torch.cuda.get_device_properties(card).total_memory
        torch.cuda.set_per_process_memory_fraction(min(limit_bytes / total, 1.0), card)
        return limit_bytes
    return None


def _limit_data(limit_bytes: int | None) -> int | None:
    """The same on a CPU, where RLIMIT_DATA counts all private writable memory: getrlimit(2)."""
    used = _status_bytes("VmData")
    if used is None or sys.platform == "darwin":
        return None
    free = free_bytes() if limit_bytes is None else limit_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (used + free, resource.RLIM_INFINITY))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    return free


def give_back_at_once() -> None:
    """Makes a CPU's allocator return every larger block to the system when it is freed (mallopt(3), glibc only), so
    that a limit is reached by tensors that are alive and not by what the allocator keeps. Slows steps: not for timing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if sys.platform == "linux" and mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 2**16)


def free_bytes() -> int:
    """What the machine has free now, less a twentieth to go on with."""
    return int(psutil.virtual_memory().available * 0.95)


def _status_bytes(name: str) -> int | None:
    """A size from /proc/self/status; None where there is no such file or line."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith(f"{name}:")), None)
    return int(found.split()[1]) * 1024 if found else None
