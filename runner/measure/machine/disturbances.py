"""Finds what on this machine may make equal processes differ in time, and what to do about each.

    for found in find_disturbances(read_load(1.0), measure_pace(4.0)):
        print(found.seen, found.advice)

Reads what Linux says of itself under /proc and /sys; elsewhere only the load and the pace are known. The pace is the
CPU time of equal work, which leaves out all waiting: where it varies, the clock changes or a neighbor that the system
does not show shares the core.
"""

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from runner.allowance import cpu_quota

#: Others that take more of the machine's CPU time than this disturb a measurement.
BUSY = 0.05
#: A host that takes more of a virtual machine's CPU time than this disturbs it.
STOLEN = 0.01
#: Equal work that takes this many times as much CPU time at some moments is slowed from outside.
SLOWED = 1.25
#: The work whose pace is measured: this many additions, about 10 ms.
_ADDITIONS = 250_000
_CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, kw_only=True)
class Load:
    """The shares of the machine's CPU time that processes used, and that the host of a virtual machine took."""

    busy: float
    stolen: float


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """One thing that was looked at. `advice` is what to do about it, empty where nothing is wrong."""

    seen: str
    advice: str = ""


def read_load(seconds: float) -> Load:
    """Returns the load of the machine over so many seconds, while this process waits."""
    times = psutil.cpu_times_percent(interval=seconds)
    idle = times.idle + getattr(times, "iowait", 0.0)
    return Load(busy=max(0.0, 100 - idle) / 100, stolen=getattr(times, "steal", 0.0) / 100)


def measure_pace(seconds: float) -> list[float]:
    """Returns the CPU time of equal work again and again for so many seconds, one thread (ms)."""
    found, ends = [], time.monotonic() + seconds
    while time.monotonic() < ends:
        began = time.thread_time()
        sum(range(_ADDITIONS))
        found.append((time.thread_time() - began) * 1e3)
    return found


def find_disturbances(load: Load, pace: Sequence[float]) -> list[Disturbance]:
    """Returns what was looked at: the load while nothing was measured, the pace, the governor, and who shares the
    cores."""
    return [_judge_load(load), _judge_pace(pace), _judge_governor(read_governors()), *_judge_cores(load)]


def _judge_load(load: Load) -> Disturbance:
    seen = f"Others took {load.busy:.0%} of the CPU while nothing was measured."
    if load.busy <= BUSY:
        return Disturbance(seen=seen)
    return Disturbance(seen=seen, advice="Close what else is running (`top` names it), or measure when it has ended.")


def _judge_pace(pace: Sequence[float]) -> Disturbance:
    """Compares the 5th and the 95th percentile."""
    marks = statistics.quantiles(pace, n=20)
    least, most = (f"{mark:.3g} ms" for mark in (marks[0], marks[-1]))
    if marks[-1] < SLOWED * marks[0]:
        return Disturbance(seen=f"Equal work takes equal CPU time on one core: {least} to {most}.")
    seen = f"Equal work takes {least} of CPU time on one core at some moments and {most} at others."
    advice = (
        "Its clock changes, or something outside of this system shares the core: fix the clock, use an instance with "
        "cores of its own, or measure more rounds."
    )
    return Disturbance(seen=seen, advice=advice)


def read_governors() -> set[str]:
    """Returns the governors of the CPU's frequency that are in use; none where the system shows none."""
    found = set()
    for path in _CPUS.glob("cpu[0-9]*/cpufreq/scaling_governor"):
        text = _read(path)
        if text:
            found.add(text)
    return found


def _judge_governor(governors: set[str]) -> Disturbance:
    if not governors:
        seen = "The frequency governor of the CPU is not visible, as in most virtual machines and containers."
        return Disturbance(seen=seen)
    seen = f"The frequency governor of the CPU is {', '.join(sorted(governors))}."
    if governors == {"performance"}:
        return Disturbance(seen=seen)
    advice = "Clocks follow the load: `sudo cpupower frequency-set -g performance` keeps them up."
    return Disturbance(seen=seen, advice=advice)


def _judge_cores(load: Load) -> list[Disturbance]:
    """Returns whether two threads share a core, whether the process has all cores, and whether other guests use them
    too."""
    found, cores = [], os.cpu_count() or 1
    if _read(_CPUS / "smt/active") == "1":
        advice = f"Keep to one thread a core: `OMP_NUM_THREADS={psutil.cpu_count(logical=False) or cores // 2}`."
        found.append(Disturbance(seen="Two hardware threads share each core (SMT).", advice=advice))
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    if allowed < cores:
        seen = f"This process may use {allowed} of the machine's {cores} CPUs; others may use them too."
        found.append(Disturbance(seen=seen, advice="Reserve them, such as with a cpuset of their own."))
    if (quota := cpu_quota()) is not None:
        seen = f"The container may use {quota:g} CPUs' time and is stopped once that is used up."
        found.append(Disturbance(seen=seen, advice="Give it whole CPUs (a cpuset) in place of a quota."))
    if load.stolen > STOLEN:
        seen = f"The host took {load.stolen:.0%} of the CPU from this virtual machine for others."
        found.append(Disturbance(seen=seen, advice="Use an instance with dedicated cores."))
    elif " hypervisor" in (_read(Path("/proc/cpuinfo")) or ""):
        seen = "This is a virtual machine: its cores may be shared with others, of which nothing is seen here."
        found.append(Disturbance(seen=seen, advice="Use an instance with dedicated cores where the noise is too high."))
    return found or [Disturbance(seen="The cores are this machine's own, and no two threads share one.")]


def _read(path: Path) -> str | None:
    """Returns the text of a file without the space around it; None where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return None
