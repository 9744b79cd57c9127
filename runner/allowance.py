"""What this process may use of its machine: cores by its affinity, and what the limits of its container leave.

    count_cpus()       ->  2                # of a machine with 64, in a container with a quota of two CPUs' time
    free_memory()      ->  3_758_096_384    # bytes

A container's limits are those of Linux's control groups, versions 1 and 2 (cgroups(7)): of this process's group and of
those around it, as far as the container shows them. Where there are none, the machine's own numbers hold.

A GPU's own counters are those of its driver (NVML).
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

_ROOT, _MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_V1_TIMES = ("cpu.cfs_quota_us", "cpu.cfs_period_us")


def count_cpus() -> int:
    """Returns on how many CPUs this process may run at the same time, of which its quota must pay the whole time."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def cpu_quota() -> float | None:
    """Returns how many CPUs' time this process may use before it is stopped; None without such a limit."""
    found = []
    for group in _find_groups("cpu"):
        text = read_text(group / "cpu.max") or " ".join(read_text(group / name) or "" for name in _V1_TIMES)
        quota, _, period = text.partition(" ")
        if quota.isdigit() and period.isdigit():  # not max, and not -1
            found.append(int(quota) / int(period))
    return min(found, default=None)


def total_memory() -> int:
    """Returns the bytes of the machine's memory, or those that this process's container may have of it."""
    return min([psutil.virtual_memory().total, *(limit for _, limit in _find_memory_limits())])


def free_memory() -> int:
    """Returns the bytes that this process may still take: file pages that the kernel would give up count as free."""
    left = []
    for group, limit in _find_memory_limits():
        used = _read_number(group, "memory.current", "memory.usage_in_bytes") or 0
        lines = (read_text(group / "memory.stat") or "").splitlines()
        counts = dict(line.split(" ", 1) for line in lines if " " in line)
        pages = int(counts.get("total_inactive_file", counts.get("inactive_file", 0)))
        left.append(max(limit - max(used - pages, 0), 0))
    return min([psutil.virtual_memory().available, *left])


def usable_memory() -> int:
    """Returns 95 % of the free bytes: what a worker may take by default."""
    return int(free_memory() * 0.95)


def _find_memory_limits() -> list[tuple[Path, int]]:
    """Returns the groups with a limit of memory, and the limits (bytes)."""
    limits = [(group, _read_number(group, "memory.max", "memory.limit_in_bytes")) for group in _find_groups("memory")]
    return [(group, limit) for group, limit in limits if limit is not None]


def _find_groups(controller: str) -> Iterator[Path]:
    """Yields the folder of this process's group for a controller, and those of the groups around it. A container may
    show its own group as the root, under which the group's path does not exist."""
    for line in (read_text(_MEMBERSHIP) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root = _ROOT if (_ROOT / "cgroup.controllers").exists() else _ROOT / "unified"
        elif controller in controllers.split(","):
            root = _ROOT / controller
        else:
            continue
        group = root / path.strip("/")
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root) and folder.exists())


def _read_number(group: Path, *names: str) -> int | None:
    """Returns the whole number in the first of these files that exists; None if it holds a word, such as max."""
    text = next((text for name in names if (text := read_text(group / name)) is not None), "")
    return int(text) if text.isdigit() else None


def read_text(path: Path) -> str | None:
    """Returns the text of one of the system's files; None where it has none."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def gpu_handle(device: str) -> Any:
    """Returns NVML's handle of a CUDA device; None for any other device, or where the library cannot be used."""
    kind, _, index = device.partition(":")
    if kind != "cuda":
        return None
    import pynvml

    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    name = visible[int(index or 0)] if visible else (index or "0")
    try:
        pynvml.nvmlInit()
        if name.isdigit():
            return pynvml.nvmlDeviceGetHandleByIndex(int(name))
        return pynvml.nvmlDeviceGetHandleByUUID(name)
    except pynvml.NVMLError:
        return None


def read_counter(handle: Any, name: str, *arguments: int) -> Any:
    """Returns what a function of NVML says of a GPU; None without one, and where it has no such counter."""
    if handle is None:
        return None
    import pynvml

    try:
        return getattr(pynvml, name)(handle, *arguments)
    except pynvml.NVMLError:
        return None
