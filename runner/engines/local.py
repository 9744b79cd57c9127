"""Runs each job in a fresh process of this machine and says how it ended.

    engine = LocalEngine(); outcome = engine.measure(job, timeout_s=600)

On Linux the processes come from a fork server that has imported torch and never ran an operator or touched CUDA: 0.1 s
each instead of 1.4 s, with the same step times. macOS starts each from nothing (`spawn`), because forking is not safe
there. `OMP_WAIT_POLICY=PASSIVE` is set before torch is imported: spinning OpenMP threads beside one busy process turned
steps of 124 ms into 447 ms, passive ones took 203 ms.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from runner.engines.telemetry import Telemetry, gpu_handle
from runner.errors import StepscopeError
from runner.experiments import KINDS, TRIAL
from runner.job import CeilingJob, Ceilings, Job, Measurement, Outcome

#: How often the caller of a long job is told that it is still running.
BEAT_SECONDS = 1.0

#: How long the ceilings of a machine may take; they plan for 1 s on a CPU and 3 s on CUDA.
CEILINGS_SECONDS = 60.0

#: What every worker is started with; it has to be there before torch is imported.
ENVIRONMENT = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "KINETO_LOG_LEVEL": "99",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # compile in the worker itself: no pool of processes that outlives it
    "PYTHONUNBUFFERED": "1",
    # A worker is killed once it has answered; that the compiler's locks are tidied up after it is no news.
    "PYTHONWARNINGS": "ignore::UserWarning:multiprocessing.resource_tracker",
}


class LocalEngine:
    """Fresh processes on this machine, one at a time."""

    def __init__(self) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self.context: ForkServerContext | SpawnContext
        if sys.platform == "linux":
            self.context = multiprocessing.get_context("forkserver")
            measuring = {measure.partition(":")[0] for measure in (*(kind.measure for kind in KINDS), TRIAL)}
            self.context.set_forkserver_preload(["runner.engines.worker", *sorted(measuring)])
        else:
            self.context = multiprocessing.get_context("spawn")

    def describe(self, device: str) -> dict[str, Any]:
        """The machine's columns of `runs`. Raises what the worker refused with: UsageError for a missing device."""
        message, _, text = self._talk(device, timeout_s=300.0, beat=lambda doing: None)
        if message is None or message[0] != "described":
            raise StepscopeError(
                f"The machine could not be described: {text or 'the process died'}.",
                do="Run `python -c 'import torch; print(torch.zeros(1))'` to see whether torch works.",
            )
        columns: dict[str, Any] = message[1]
        return columns

    def ceilings(self, job: CeilingJob) -> Ceilings:
        """What this machine can do at most. Whatever goes wrong is only a ceiling that is missing."""
        message, _, text = self._talk(job, timeout_s=CEILINGS_SECONDS, beat=lambda doing: None)
        if message is not None and message[0] == "ceilings":
            found: Ceilings = message[1]
            return found
        how = f"no result within {CEILINGS_SECONDS:g} s" if message is None else str(message[1])
        return Ceilings(rows=(), missing={"all": f"{how}{f': {text}' if text else ''}"})

    def measure(self, job: Job, *, timeout_s: float, beat: Callable[[str], None] = lambda doing: None) -> Outcome:
        """Measures one cell. `beat` is called with the phase whenever it changes and every few seconds."""
        killed_before = _kernel_kills()
        telemetry = Telemetry(run_id=job.run_id, cell_id=job.cell_id, handle=gpu_handle(job.device))

        def sampled_beat(doing: str) -> None:
            telemetry.sample()
            beat(doing)

        message, doing, text = self._talk(job, timeout_s=timeout_s, beat=sampled_beat)
        if message is None:
            return Outcome(
                status="timeout",
                failed_phase=doing,
                message=f"Stopped after {timeout_s:g} s, the limit for a cell (--timeout).",
            )
        if message[0] == "measured":
            return Outcome(status="ok", measurement=_with(message[1], telemetry))
        if message[0] == "failed":
            phase = None if message[1] == "skipped" else doing
            known = Measurement(values=message[3], details={})
            return Outcome(status=message[1], failed_phase=phase, message=message[2], measurement=known)
        if _kernel_kills() > killed_before:
            return Outcome(
                status="oom", failed_phase=doing, message="The kernel's out-of-memory killer ended the process."
            )
        return Outcome(status="crashed", failed_phase=doing, message=f"{message[1]}{f': {text}' if text else '.'}")

    def _start_server(self) -> None:
        """Starts the fork server, if it does not run, such that a Ctrl-C is no news to it: it imports torch before it
        ignores one, and would write a traceback over ours."""
        if not isinstance(self.context, ForkServerContext):
            return
        resource_tracker.ensure_running()  # unblocks the signal when it has started, so it comes first
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def _talk(
        self, job: Job | CeilingJob | str, *, timeout_s: float, beat: Callable[[str], None]
    ) -> tuple[tuple[Any, ...] | None, str, str]:
        """(last message, what it was doing, the end of what it printed); no message if it ran out of time."""
        with tempfile.TemporaryDirectory(prefix="stepscope-") as folder:
            log = Path(folder, "output")
            ours, theirs = self.context.Pipe()
            process = self.context.Process(target=_work, args=(theirs, job, str(log)), daemon=False)
            self._start_server()
            process.start()
            try:
                theirs.close()
                message, doing = _listen(ours, process, ends=time.monotonic() + timeout_s, beat=beat)
            finally:
                _end(process)
                ours.close()
            return message, doing, _last_line(log)


def _with(measurement: Measurement, telemetry: Telemetry) -> Measurement:
    """The measurement and what the GPU was seen doing meanwhile."""
    if not telemetry.rows:
        return measurement
    return replace(measurement, details={**measurement.details, "telemetry": telemetry.rows})


def _work(pipe: Connection, job: Job | CeilingJob | str, log: str) -> None:
    """The worker's own work. Imported over there, where torch is: the sweep needs none and starts a second sooner."""
    from runner.engines.worker import work

    work(pipe, job, log)


def _listen(
    pipe: Connection, process: BaseProcess, *, ends: float, beat: Callable[[str], None]
) -> tuple[tuple[Any, ...] | None, str]:
    """(last message, what the process was doing). A process that died leaves ("died", how)."""
    doing = "start"
    while (left := ends - time.monotonic()) > 0:
        beat(doing)
        if not wait([pipe], timeout=min(left, BEAT_SECONDS)):
            continue
        try:
            message = pipe.recv()
        except (EOFError, ConnectionResetError):
            process.join(10)
            return ("died", _death(process.exitcode)), doing
        if message[0] == "refused":
            raise message[1]
        if message[0] != "doing":
            return message, doing
        doing = message[1]
    return None, doing


def _end(process: BaseProcess) -> None:
    """Ends the process and everything it started. One that has sent its result has nothing left to do."""
    assert process.pid is not None
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"The process was ended by {signal.Signals(-code).name}"
    return f"The process ended with exit code {code} and no result"


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "")[:500]


def _kernel_kills() -> int:
    """Processes that the kernel has killed for want of memory so far (Linux; 0 where it does not say)."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
