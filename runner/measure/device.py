"""A device to measure on: synchronizing it and marking moments on its clock.

    device = Device("cuda"); mark = device.mark(); ...; device.synchronize(); device.milliseconds(mark, later_mark)

CUDA and MPS mark moments with events, because their work goes on after the call that issued it has returned. A CPU's
work is done when the call returns, so the host's clock marks the moment. MPS is untested on real hardware.

The description of this machine, for the row of a run and for `python -m runner doctor`, runs in a worker process,
because reading CUDA's properties starts CUDA.
"""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import torch

from runner.allowance import count_cpus, read_text, total_memory
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


#: The vector and matrix instruction sets that are reported.
_FLAGS = (
    "sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "avx512_fp16", "amx_bf16", "amx_int8",
    "amx_fp16", "asimd", "asimdhp", "asimddp", "bf16", "sve", "sve2", "i8mm",
)  # fmt: skip


def describe(device: str) -> dict[str, Any]:
    """Returns the machine's columns of `runs` for this device. Raises UsageError for a device that is missing."""
    name = choose(device)
    kind = name.partition(":")[0]
    columns: dict[str, Any] = {
        "host": platform.node(),
        "os": f"{platform.system()} {platform.release()}",
        "device": kind,
        "device_name": cpu_name(),
        "device_uuid": None,
        "places": 1,
        "device_memory_bytes": total_memory(),
        "torch": str(torch.__version__),  # its own type would import torch wherever it arrives
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "stepscope": stepscope_version(),
        **git_state(),
        "cpu_name": cpu_name(),
        "cpu_cores": count_cpus(),
        "cpu_flags": cpu_flags(),
        "memory_bytes": psutil.virtual_memory().total,
        "compiler": cpp_compiler(),
        "allocator": allocator_settings(kind),
        "threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
    }
    if kind == "cuda":
        properties = torch.cuda.get_device_properties(torch.device(name))
        columns |= {
            "device_name": properties.name,
            "device_uuid": f"GPU-{properties.uuid}",
            "device_memory_bytes": properties.total_memory,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "driver": driver_version(),
        }
    return columns


def cpu_name() -> str:
    """Returns the processor's name; the architecture's where it reports none."""
    if sys.platform == "darwin":
        return _run("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def cpu_flags() -> str | None:
    """Returns the processor's instruction sets of _FLAGS, separated by spaces; None where it reports none."""
    reported = (_cpuinfo("flags") or _cpuinfo("Features") or "").split()
    return " ".join(flag for flag in _FLAGS if flag in reported) or None


def cpp_compiler() -> str | None:
    """Returns the first line of `--version` of the C++ compiler that torch.compile uses on a CPU; None without a
    compiler or Python's headers."""
    names = (os.environ.get("CXX"), "g++", "clang++", "c++")
    compiler = next((path for name in names if name and (path := shutil.which(name))), None)
    if compiler is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        return None
    return (_run(compiler, "--version") or compiler).splitlines()[0]


def allocator_settings(device: str) -> str | None:
    """Returns what the environment sets of the allocator of tensors: PyTorch's own on CUDA, glibc's on a CPU under
    Linux. None where it sets nothing."""
    if device == "cuda":
        return os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF")
    names = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_") if sys.platform == "linux" else ()
    return " ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ) or None


def driver_version() -> str | None:
    """Returns the NVIDIA driver's version, from its management library."""
    import pynvml  # not installed on macOS

    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def stepscope_version() -> str | None:
    """Returns the installed version; None when Stepscope runs from a checkout that was never installed."""
    try:
        return metadata.version("stepscope")
    except metadata.PackageNotFoundError:
        return None


def git_state() -> dict[str, Any]:
    """Returns the commit of this file's checkout and whether it has changes; None where the file is in no checkout."""
    here = Path(__file__)
    # `status` would lock the index to renew it, and a sweep that is killed meanwhile would leave the lock.
    git = ("git", "--no-optional-locks", "-C", str(here.parent))
    if _run(*git, "ls-files", "--error-unmatch", here.name) is None:
        return {"git_commit": None, "git_dirty": None}
    changes = _run(*git, "status", "--porcelain", "--untracked-files=no")
    return {"git_commit": _run(*git, "rev-parse", "HEAD"), "git_dirty": None if changes is None else bool(changes)}


def _cpuinfo(field: str) -> str | None:
    lines = (read_text(Path("/proc/cpuinfo")) or "").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == field), None)


def _run(*command: str) -> str | None:
    """Returns the output of a command; None if it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
