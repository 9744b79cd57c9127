"""One job in one fresh process: whatever happens in here becomes a message to the sweep.

    Process(target=work, args=(pipe, job))

Messages are tuples: ("doing", phase), then one of ("measured", Measurement), ("described", columns),
("failed", status, message) or ("refused", error). A process that dies says nothing more, and the engine tells from
its exit what happened. The process leads its own group, so that the compilers it starts end with it, and it ends when
the sweep does, however the sweep ended.
"""

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection
from typing import Any

import torch

from runner.engines.job import Job
from runner.errors import Skipped, StepscopeError
from runner.experiments import EXPERIMENTS
from runner.measure import memory
from runner.measure.environment import describe


def work(pipe: Connection, job: Job | str, log: str) -> None:
    """Measures `job`, or describes the machine where `job` names a device. `log` is a file for whatever is printed."""
    _isolate(log)
    try:
        if isinstance(job, str):
            pipe.send(("described", describe(job)))
        else:
            pipe.send(_measure(pipe, job))
    except StepscopeError as error:
        pipe.send(("refused", error))


def _measure(pipe: Connection, job: Job) -> tuple[Any, ...]:
    """The last message of a cell. The one place that catches everything: each way to fail is a status."""
    experiment = next(item for item in EXPERIMENTS if item.name == job.experiment)
    try:
        if job.device == "cpu":
            memory.limit_to_what_is_free()
        return "measured", experiment.measure(job, lambda phase: pipe.send(("doing", phase)))
    except Skipped as reason:
        return "failed", "skipped", str(reason)
    except MemoryError:
        return "failed", "oom", "Python could not allocate memory."
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        return "failed", "oom" if _is_out_of_memory(error) else "error", f"{type(error).__name__}: {error}"


def _is_out_of_memory(error: BaseException) -> bool:
    """Whether the error, or what caused it, says that memory ran out. On a CPU torch raises a plain RuntimeError."""
    words = ("can't allocate memory", "out of memory", "bad_alloc", "Cannot allocate memory")
    own = isinstance(error, torch.OutOfMemoryError | MemoryError) or any(word in str(error) for word in words)
    return own or (error.__cause__ is not None and _is_out_of_memory(error.__cause__))


def _isolate(log: str) -> None:
    """Makes the process its own group, sends its output to `log`, and ends it when the sweep ends."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except FileNotFoundError:  # the sweep was interrupted while this process started, and has tidied up
        sys.exit(1)
    os.dup2(descriptor, sys.stdout.fileno())
    os.dup2(descriptor, sys.stderr.fileno())
    threading.Thread(target=_end_with_the_sweep, daemon=True).start()


def _end_with_the_sweep() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.killpg(0, signal.SIGKILL)
