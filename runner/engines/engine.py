"""What a sweep asks of where it measures. An engine is a file of this folder with `open_places`; nothing else knows it.

    with open_engine("ray", on=("H200",)) as places:
        machine = places[0].describe("auto")

A place runs one cell at a time. The engine `local` has this machine, or each of its GPUs that is named; `ray`
each GPU of a cluster.

Every worker finds the same environment. Two settings of OpenMP are made before torch is imported, unless the
environment has its own. One core is left to the runner, its sampler and the system (`OMP_NUM_THREADS`), because a step
waits for the slowest of its threads: on two cores with other work, medians of equal steps in fresh processes had a
standard deviation of 4 to 7% with one thread, 14 to 23% with two that sleep when idle, and 12 to 64% with two that
spin. Idle threads sleep (`OMP_WAIT_POLICY=PASSIVE`): beside one busy process, steps of 124 ms took 447 ms with spinning
threads and 203 ms with sleeping ones.

On Linux glibc keeps freed memory in the process (`MALLOC_MMAP_THRESHOLD_`, `MALLOC_TRIM_THRESHOLD_`), as jemalloc and
tcmalloc do, unless the environment has settings of its own. By default it returns a block of some MiB to the system and
takes fresh pages in the next step: in the demo of two sweeps each, 41 of 104 cells had a wide interval or drifted
without these settings and 26 with them, and steps of toy-64 in bf16 took 13.4 and 11.9 ms without and 8.4 and 9.7 with.

Nothing else that was tried made equal steps differ less: a core of their own, threads bound to cores, no sampler,
addresses and hash seeds that are new in each process or fixed in all, huge pages, one arena. Medians had a standard
deviation of 1 to 3% on a quiet CPU (12 to 16 processes each). Where the host bounds steps of an H200, it was 16 to 27%
in training and 22 to 31% in inference under these settings, 17% and 12% under none of them (six or seven processes
each, so that each figure is itself known to a third).
"""

import pkgutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import psutil

from runner.allowance import count_cpus
from runner.errors import StepscopeError, UsageError
from runner.experiments import KINDS, TRIAL
from runner.job import CeilingJob, Ceilings, Job, Outcome, OwnModelJob
from runner.schema.own import OwnModel


def count_cores() -> int:
    """Returns how many cores this process may use; two hardware threads of one core count once."""
    allowed = count_cpus()
    return min(allowed, psutil.cpu_count(logical=False) or allowed)


#: The environment of every worker, set before torch is imported.
ENVIRONMENT = {
    "OMP_NUM_THREADS": str(max(1, count_cores() - 1)),
    "OMP_WAIT_POLICY": "PASSIVE",
    "MALLOC_MMAP_THRESHOLD_": str(2**25),  # the most that every version of glibc takes
    "MALLOC_TRIM_THRESHOLD_": str(2**30),
    "KINETO_LOG_LEVEL": "99",
    # torch.cuda.is_available() asks the driver's library instead of CUDA, so that a fork server that has imported the
    # compiler, which asks, still has children that can use CUDA.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "PYTHONUNBUFFERED": "1",
    # A worker is killed once it has answered, so the compiler's locks are always cleaned up after it.
    "PYTHONWARNINGS": "ignore::UserWarning:multiprocessing.resource_tracker",
}

#: What of it the user's own environment may set otherwise.
ADJUSTABLE = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")

#: What the fork server imports.
PRELOADED = [
    "runner.engines.worker",
    *sorted({measure.partition(":")[0] for measure in (*(kind.measure for kind in KINDS), TRIAL)}),
]

#: What it imports, too, for a sweep that compiles: once instead of in each compiled cell, where it takes 3 s.
COMPILER = "torch._inductor.compile_fx"

#: Every engine: the file of this folder that has its name. The first is the default.
ENGINES = ("local", "ray")


class Engine(Protocol):
    """A place that measures one job after the other, each in a fresh process."""

    def describe(self, device: str) -> dict[str, Any]: ...
    def describe_model(self, job: OwnModelJob, *, timeout_s: float) -> OwnModel: ...
    def ceilings(self, job: CeilingJob) -> Ceilings: ...
    def measure(self, job: Job, *, timeout_s: float, beat: Callable[[str], None] = ...) -> Outcome: ...
    def end(self) -> None: ...


class PlaceLost(StepscopeError):
    """The place is gone, such as with its machine; what it was measuring may be measured elsewhere."""


def open_engine(name: str, *, on: Sequence[str], compiles: bool = False) -> AbstractContextManager[Sequence[Engine]]:
    """Returns the places of an engine, as a context that ends them; `on` names the types of device to use, and
    `compiles` says whether cells will be compiled. Raises UsageError for an engine that there is not, or that has no
    such device."""
    if name not in ENGINES:
        raise UsageError(f"--engine got {name!r}.", expected=f"one of {', '.join(ENGINES)}")
    open_places: Callable[..., AbstractContextManager[Sequence[Engine]]]
    open_places = pkgutil.resolve_name(f"runner.engines.{name}:open_places")
    return open_places(on, compiles=compiles)
