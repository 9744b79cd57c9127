"""One job in one fresh process, whose every end becomes a message to the sweep.

    Process(target=work, args=(pipe, prints, device)); pipe.send(job)

Messages are tuples: ("doing", phase), then one of ("measured", Measurement), ("answered", what another job asks for),
("failed", status, message, values) or ("refused", error). A process that dies sends nothing more; its exit code tells
the engine why. The process leads its own group, so that the compilers it starts end with it, and it ends when the sweep
does, however the sweep ended.
"""

import contextlib
import gc
import multiprocessing
import os
import pkgutil
import signal
import sys
import threading
import traceback
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from runner.errors import BadModel, Skipped, StepscopeError, UsageError
from runner.experiments import TRIAL, kind_of
from runner.job import CeilingJob, Failed, FitJob, Job, OwnModelJob
from runner.measure import limits
from runner.measure.ceilings import measure_ceilings
from runner.measure.device import choose, describe
from runner.measure.fit import count_step
from runner.measure.limits import is_out_of_memory
from runner.measure.own import describe_own


def work(pipe: Connection, prints: Connection, device: str) -> None:
    """Does the one job that the pipe brings: measures it, or describes the machine where it is the name of a device.
    All output goes to `prints`. Until the job comes, gets ready for `device`, if that is or means a CUDA device."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(prints.fileno(), sys.stdout.fileno())
    os.dup2(prints.fileno(), sys.stderr.fileno())
    prints.close()
    threading.Thread(target=_end_with_the_sweep, daemon=True).start()
    gc.freeze()  # what was imported before is not walked by every collection: 0.1 s each, two or three in a cell
    with contextlib.suppress(RuntimeError, UsageError):  # the job says so, if the device cannot be used
        if device and (name := choose(device)).startswith("cuda"):
            torch.cuda.synchronize(name)  # starts a CUDA context, without memory of the allocator's
    try:
        job: Job | CeilingJob | OwnModelJob | FitJob | str = pipe.recv()
    except EOFError:
        return
    try:
        if isinstance(job, Job):
            pipe.send(_measure(pipe, job))
        elif isinstance(job, str):
            pipe.send(("answered", describe(job)))
        elif isinstance(job, FitJob):
            pipe.send(("answered", count_step(job)))
        else:
            limits.limit(job.device, None)
            pipe.send(("answered", measure_ceilings(job) if isinstance(job, CeilingJob) else describe_own(job)))
    except StepscopeError as error:
        pipe.send(("refused", error))


def _measure(pipe: Connection, job: Job) -> tuple[Any, ...]:
    """Returns the last message of a cell. The one place that catches everything: each failure becomes a status."""
    try:
        measure = pkgutil.resolve_name(TRIAL if job.experiment == "frontier" else kind_of(job.cell).measure)
        job = replace(job, limit_bytes=limits.limit(job.device, job.limit_bytes))
        return "measured", measure(job, lambda phase: pipe.send(("doing", phase)))
    except Skipped as reason:
        return "failed", "skipped", str(reason), {}
    except Failed as error:
        return "failed", error.status, str(error), error.values
    except MemoryError:
        return "failed", "oom", "Python could not allocate memory.", {}
    except BadModel as error:
        return "failed", "error", str(error), {}
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        return "failed", "oom" if is_out_of_memory(error) else "error", f"{type(error).__name__}: {error}", {}


def _end_with_the_sweep() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.killpg(0, signal.SIGKILL)
