"""What machine is this? Read from the machine, for the row of a run and for `python -m runner doctor`.

    describe("auto")  ->  the columns of `runs` that name the machine

Runs in a worker process: it asks torch, and asking CUDA starts CUDA.
"""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import torch

from runner.measure.machine.device import choose

_FLAGS = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "avx512f",
    "avx512_bf16",
    "avx512_vnni",
    "avx512_fp16",
    "amx_bf16",
    "amx_int8",
    "amx_fp16",
    "asimd",
    "asimdhp",
    "asimddp",
    "bf16",
    "sve",
    "sve2",
    "i8mm",
)


def describe(asked: str) -> dict[str, Any]:
    """The machine's columns of `runs`, for the device that was asked for. Raises UsageError if it is not there."""
    name = choose(asked)
    kind = name.partition(":")[0]
    memory = psutil.virtual_memory().total
    columns: dict[str, Any] = {
        "host": platform.node(),
        "os": f"{platform.system()} {platform.release()}",
        "device": kind,
        "device_name": cpu_name(),
        "device_memory_bytes": memory,
        "torch": str(torch.__version__),  # its own type would import torch wherever it arrives
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "stepscope": stepscope_version(),
        **git_state(),
        "cpu_name": cpu_name(),
        "cpu_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu_flags": cpu_flags(),
        "memory_bytes": memory,
        "compiler": cpp_compiler(),
        "allocator": os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF"),
        "threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
    }
    if kind == "cuda":
        properties = torch.cuda.get_device_properties(torch.device(name))
        columns |= {
            "device_name": properties.name,
            "device_memory_bytes": properties.total_memory,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "driver": driver_version(),
        }
    return columns


def cpu_name() -> str:
    """The processor's own name; the architecture's where it tells none."""
    if sys.platform == "darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def cpu_flags() -> str | None:
    """The vector and matrix instruction sets the processor reports, space separated; None where it reports none."""
    reported = (_cpuinfo("flags") or _cpuinfo("Features") or "").split()
    return " ".join(flag for flag in _FLAGS if flag in reported) or None


def cpp_compiler() -> str | None:
    """The C++ compiler that torch.compile would use on a CPU, first line of its `--version`; None if it cannot work:
    there is no compiler, or Python's headers are missing."""
    found = next(
        (path for name in (os.environ.get("CXX"), "g++", "clang++", "c++") if name and (path := shutil.which(name))),
        None,
    )
    if found is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        return None
    return (_output(found, "--version") or found).splitlines()[0]


def driver_version() -> str | None:
    """The NVIDIA driver's version, from its management library."""
    import pynvml  # not installed on macOS

    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def stepscope_version() -> str | None:
    """The installed version; None when Stepscope runs from a checkout that was never installed."""
    try:
        return metadata.version("stepscope")
    except metadata.PackageNotFoundError:
        return None


def git_state() -> dict[str, Any]:
    """Commit of the checkout that this file is part of and whether it was changed; None where it is part of none."""
    here = Path(__file__)
    git = ("git", "-C", str(here.parent))
    if _output(*git, "ls-files", "--error-unmatch", here.name) is None:
        return {"git_commit": None, "git_dirty": None}
    changes = _output(*git, "status", "--porcelain", "--untracked-files=no")
    return {"git_commit": _output(*git, "rev-parse", "HEAD"), "git_dirty": None if changes is None else bool(changes)}


def _cpuinfo(field: str) -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == field), None)


def _output(*command: str) -> str | None:
    """What a command prints; None if it cannot be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
