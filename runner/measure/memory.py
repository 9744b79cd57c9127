"""How much memory did the process take at its peak, and how is it kept from taking the machine down?

    reset_peaks(device); ...; peaks(device)  ->  {"peak_allocated_bytes": ..., ...}

On CUDA the allocator counts live tensors and what it has reserved; on a CPU the kernel counts the process's resident
memory (Linux only: the counter can be reset there). A counter that does not exist is None, never 0.
"""

import contextlib
import resource
import sys
from pathlib import Path

import psutil
import torch

from runner.measure.device import Device

_STATUS = Path("/proc/self/status")


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


def limit_to_what_is_free() -> int | None:
    """Lets this process allocate no more than the machine has free now, and offers it first to the kernel's
    out-of-memory killer, so that running out is an error in this process and not the end of another one.

    Returns the bytes it may still take; None where the system has no such limit (macOS)."""
    used = _status_bytes("VmData")
    if used is None or sys.platform == "darwin":
        return None
    free = int(psutil.virtual_memory().available * 0.95)
    resource.setrlimit(resource.RLIMIT_DATA, (used + free, resource.RLIM_INFINITY))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    return free


def _status_bytes(name: str) -> int | None:
    """A size from /proc/self/status; None where there is no such file or line."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith(f"{name}:")), None)
    return int(found.split()[1]) * 1024 if found else None
