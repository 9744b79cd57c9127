"""Runs each job in a fresh process of this machine and returns how it ended.

    engine = LocalEngine(); outcome = engine.measure(job, timeout_s=600)

On Linux the processes come from a fork server that has imported torch and never ran an operator or touched CUDA: 0.1 s
each instead of 1.4 s, with the same step times. On macOS, where forking is not safe, each is spawned. In a sweep the
next process starts, and opens the GPU, while the last one is being ended and its rows are stored.

The GPU's clocks, power and temperature are sampled while a cell is measured, in the sweep's own idle process: NVIDIA
only, through the driver's management library (NVML), which starts no CUDA context and takes no GPU time. A counter that
a board does not have is None. Limits: a container may hide the processes of others.
"""

import contextlib
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

from runner.allowance import gpu_handle, read_counter, read_text
from runner.engines.engine import COMPILER, ENVIRONMENT, PRELOADED, PlaceLost
from runner.errors import NO_TORCH, BadModel, StepscopeError, UsageError
from runner.job import CeilingJob, Ceilings, FitJob, Job, Measurement, Outcome, OwnModelJob
from runner.places import mark, unusable_error
from runner.schema import TelemetryRow
from runner.schema.own import CountedStep, OwnModel

#: The time between two beats of what runs (s).
BEAT_SECONDS = 1.0
#: How many fork servers may be killed, one after the other, before a process of theirs has started.
MAX_SERVERS = 3
#: What is kept of a worker's output: its end (bytes), and more than its pipe holds.
MAX_OUTPUT_BYTES = 100_000


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A process that runs one job, our ends of its pipe and of its output, and the end of what it has printed."""

    process: BaseProcess
    pipe: Connection
    output: Connection
    printed: bytearray = field(default_factory=bytearray)

    def wait_for(self, what: Connection | int, *, seconds: float) -> bool:
        """Returns whether this can be read within so many seconds, and takes meanwhile what the process prints."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            ready = wait([what, *(() if self.output.closed else (self.output,))], timeout=left)
            if self.output in ready:
                self.take_output()
            if what in ready:
                return True
        return False

    def take_output(self) -> None:
        """Takes what waits to be read of the output, at most as much as is kept."""
        if not self.output.closed and wait([self.output], timeout=0):
            text = os.read(self.output.fileno(), MAX_OUTPUT_BYTES)
            self.printed.extend(text)
            del self.printed[:-MAX_OUTPUT_BYTES]
            if not text:
                self.output.close()

    def kill(self) -> None:
        """Kills the process and everything it started, without waiting until its memory is free."""
        if self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()

    def end(self) -> None:
        """Kills the process and everything it started, if it was started, and waits until it has ended."""
        self.kill()
        if self.process.pid is not None:
            self.process.join()
        self.pipe.close()
        self.output.close()


#: The reasons of NVML for reduced clocks (nvml.h, nvmlClocksEventReasons), without idle and application clocks.
_THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}


def sample_gpu(handle: Any, job: Job, at_seconds: float) -> TelemetryRow:
    """Returns the driver's counters of a GPU at a moment of a cell."""
    import pynvml

    query = partial(read_counter, handle)
    power = query("nvmlDeviceGetPowerUsage")
    reasons = query("nvmlDeviceGetCurrentClocksThrottleReasons")
    running = query("nvmlDeviceGetComputeRunningProcesses")
    return TelemetryRow(
        **job.ids,
        at_seconds=round(at_seconds, 3),
        sm_clock_mhz=query("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
        memory_clock_mhz=query("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),
        power_watts=None if power is None else power / 1000,
        temperature_celsius=query("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
        throttle_reasons=None if reasons is None else format_throttles(reasons),
        foreign_processes=None if running is None else max(len(running) - 1, 0),
    )


def format_throttles(reasons: int) -> str:
    """Returns NVML's bit mask in words: `power cap,hardware thermal`; empty where nothing reduces the clocks."""
    return ",".join(name for bit, name in _THROTTLES.items() if reasons & bit)


#: The limit for measuring the ceilings, which should take 1 s on a CPU and 3 s on CUDA (s).
CEILINGS_SECONDS = 60.0

_Message = tuple[Any, ...]
#: What a worker is given; a text names the device of a machine to describe.
AnyJob = Job | CeilingJob | OwnModelJob | FitJob | str


class LocalEngine:
    """Fresh processes on this machine, one at a time, on `device` where it is given, whatever the job names. With
    `compiles` and an NVIDIA GPU, the fork server imports the compiler, too. With `goes_on`, the process of the next
    job starts while that of the last one frees its memory, and waits for its job; `end` ends it."""

    def __init__(self, *, device: str | None = None, compiles: bool = False, goes_on: bool = False) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self.device, self.goes_on, self.has_ended = device, goes_on, False
        self.next: Worker | None = None
        self.current: Worker | None = None
        self.context: ForkServerContext | SpawnContext
        if sys.platform == "linux":
            self.context = multiprocessing.get_context("forkserver")
            compiler = [COMPILER] if compiles and gpu_handle("cuda:0") else []
            self.context.set_forkserver_preload([*PRELOADED, *compiler])
        else:
            self.context = multiprocessing.get_context("spawn")

    def describe(self, device: str) -> dict[str, Any]:
        """Returns the machine's columns of `runs`. Raises UsageError for a device that is missing, or torch."""
        if find_spec("torch") is None:
            raise UsageError(**NO_TORCH)
        ask = partial(self._ask, self.device or device, timeout_s=300.0, late="it took longer than 300 s")
        columns, why, text = ask()
        if "forked subprocess" in text:  # something that the fork server imports has used CUDA, and no child may then
            self._end_waiting()
            self.context = multiprocessing.get_context("spawn")
            columns, why, text = ask()
        if why:
            raise StepscopeError(
                f"The machine could not be described: {why}{f' ({text})' if text else ''}.",
                do="Run `python -c 'import torch; print(torch.zeros(1))'` to see whether torch works.",
            )
        return dict(columns)

    def describe_model(self, job: OwnModelJob, *, timeout_s: float) -> OwnModel:
        """Returns what was understood of an own model. Raises BadModel with the reason where it cannot be built."""
        return cast(OwnModel, self._understand(job, timeout_s=timeout_s))

    def count_step(self, job: FitJob, *, timeout_s: float) -> CountedStep:
        """Returns the bytes of an own model's training step. Raises BadModel where they cannot be counted."""
        return cast(CountedStep, self._understand(job, timeout_s=timeout_s))

    def _understand(self, job: OwnModelJob | FitJob, *, timeout_s: float) -> Any:
        found, why, text = self._ask(job, timeout_s=timeout_s, late=f"stopped after {timeout_s:g} s (--timeout)")
        if why:
            raise BadModel(f"{job.spec} cannot be built: {why}{f' ({text})' if text else ''}.")
        return found

    def ceilings(self, job: CeilingJob) -> Ceilings:
        """Returns what this machine can do at most. Where measuring fails, all ceilings are missing."""
        found, why, text = self._ask(job, timeout_s=CEILINGS_SECONDS, late=f"no result within {CEILINGS_SECONDS:g} s")
        return Ceilings(rows=(), missing={"all": f"{why}{f': {text}' if text else ''}"}) if why else found

    def measure(self, job: Job, *, timeout_s: float, beat: Callable[[str], None] = lambda phase: None) -> Outcome:
        """Measures one cell. Calls `beat` with the phase whenever it changes and every BEAT_SECONDS."""
        killed_before, began, telemetry = _count_oom_kills(), time.monotonic(), list[TelemetryRow]()
        gpu = gpu_handle(self.device or job.device)

        def sample_and_beat(phase: str) -> None:
            if gpu is not None:
                telemetry.append(sample_gpu(gpu, job, time.monotonic() - began))
            beat(phase)

        message, phase, text = self._run(job, timeout_s=timeout_s, beat=sample_and_beat)
        match message:
            case None:
                reason = f"Stopped after {timeout_s:g} s, the limit for a cell (--timeout)."
                return Outcome(status="timeout", failed_phase=phase, message=reason)
            case ("measured", Measurement() as measurement):
                details = {**measurement.details, **({"telemetry": telemetry} if telemetry else {})}
                return Outcome(status="ok", measurement=replace(measurement, details=details))
            case ("failed", status, reason, values):
                failed_phase = None if status == "skipped" else phase
                known = Measurement(values=values, details={})
                return Outcome(status=status, failed_phase=failed_phase, message=reason, measurement=known)
        if _count_oom_kills() > killed_before:
            reason = "The kernel's out-of-memory killer ended the process."
            return Outcome(status="oom", failed_phase=phase, message=reason)
        return Outcome(status="crashed", failed_phase=phase, message=f"{message[1]}{f': {text}' if text else '.'}")

    def end(self) -> None:
        """Ends the process that waits for the next cell, and what runs in another thread, which gets PlaceLost. The
        fork server ends with this process."""
        self.has_ended = True
        if self.current:
            self.current.kill()
        self._end_waiting()

    def _end_waiting(self) -> None:
        waiting, self.next = self.next, None
        if waiting:
            waiting.end()

    def _start_server(self) -> None:
        """Starts the fork server, if it does not run, with Ctrl-C blocked: it imports torch before it ignores the
        signal, and would write a traceback over ours."""
        if not isinstance(self.context, ForkServerContext):
            return
        resource_tracker.ensure_running()  # unblocks the signal when it has started, so it comes first
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            mark(util.get_temp_dir())  # which the server makes otherwise, and a kill between the two would leave it
            forkserver.ensure_running()
        except OSError as error:
            raise unusable_error(error) from error
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def _ask(self, job: AnyJob, *, timeout_s: float, late: str) -> tuple[Any, str, str]:
        """Returns a worker's answer, or why there is none, such as that it is `late`; and what it printed last."""
        message, _, text = self._run(job, timeout_s=timeout_s)
        if message and message[0] == "answered":
            return message[1], "", text
        return None, late if message is None else str(message[1]), text

    def _run(
        self, job: AnyJob, *, timeout_s: float, beat: Callable[[str], None] = lambda phase: None
    ) -> tuple[_Message | None, str, str]:
        """Returns the worker's last message (None if it ran out of time), its phase, and the last line it printed."""
        if self.next and self.next.pipe.poll():  # it does not speak first: it has ended
            self._end_waiting()
        if self.device and isinstance(job, Job | CeilingJob | OwnModelJob):
            job = replace(job, device=self.device)
        waiting, self.next = self.next, None
        self.current = worker = waiting or self._start()
        try:
            if not self.has_ended:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # its answer shows whether it has died
                    worker.pipe.send(job)
                message, phase = _listen(worker, ends=time.monotonic() + timeout_s, beat=beat)
                worker.take_output()
            if self.has_ended:
                raise PlaceLost("The sweep was ended.")
            if self.goes_on:
                worker.kill()
                device = job if isinstance(job, str) else getattr(job, "device", "")
                with contextlib.suppress(StepscopeError, OSError):  # the next job will say so; this result is kept
                    self.next = self._start(device=device)
        finally:
            self.current = None
            worker.end()
        printed = [line.strip() for line in worker.printed.decode(errors="replace").split("\n")]
        return message, phase, next(filter(None, reversed(printed)), "")[:500]

    def _start(self, *, device: str = "") -> Worker:
        """Starts a worker that waits for a job. It starts using the device at once, if one is named."""
        ours, theirs = self.context.Pipe()
        printed, prints = self.context.Pipe(duplex=False)
        process = self.context.Process(target=_work, args=(theirs, prints, device), daemon=False)
        worker = Worker(process=process, pipe=ours, output=printed)
        try:
            with _uninterrupted():
                for left in reversed(range(MAX_SERVERS)):
                    self._start_server()
                    try:
                        worker.process.start()
                        break
                    except (EOFError, ConnectionError):  # the fork server was killed just now
                        if not left:
                            words = f"No process starts: their fork server was killed {MAX_SERVERS} times."
                            raise StepscopeError(words, do="The same command goes on.") from None
                        time.sleep(0.1)  # until the system says that it has ended
        except BaseException:
            worker.end()
            raise
        finally:
            theirs.close()
            prints.close()
        return worker


@contextlib.contextmanager
def open_places(on: Sequence[str], *, compiles: bool) -> Iterator[Sequence[LocalEngine]]:
    """Yields the GPUs of this machine that are named, such as cuda:0, as places; without any the machine is one. Raises
    UsageError for what is no GPU, or named twice."""
    if not all(re.fullmatch(r"cuda:\d+", name) for name in on) or len({*on}) < len(on):
        raise UsageError(
            f"--on got {','.join(on)}.",
            expected="GPUs of this machine, each once, such as cuda:0,cuda:1; types of GPU go with --engine ray",
        )
    engines = [LocalEngine(device=name, compiles=compiles, goes_on=True) for name in on or (None,)]
    try:
        yield engines
    finally:
        for engine in engines:
            engine.end()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delivers Ctrl-C and SIGTERM only afterwards: a fork server whose request breaks off prints a traceback."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []
    deferred = (signal.SIGINT, signal.SIGTERM)
    handlers = [signal.signal(number, lambda got, frame: pending.append(got)) for number in deferred]
    try:
        yield
    finally:
        for number, handler in zip(deferred, handlers, strict=True):
            signal.signal(number, handler)
        if pending:
            signal.raise_signal(pending[0])


def _work(pipe: Connection, prints: Connection, device: str) -> None:
    """Runs in the worker, which alone imports torch: without it the sweep starts a second sooner."""
    from runner.engines.worker import work

    work(pipe, prints, device)


def _listen(worker: Worker, *, ends: float, beat: Callable[[str], None]) -> tuple[_Message | None, str]:
    """Returns the last message and the phase of the process; ("died", reason) for a process that sent none."""
    pipe, process, phase = worker.pipe, worker.process, "start"
    while (left := ends - time.monotonic()) > 0:
        beat(phase)
        if not worker.wait_for(pipe, seconds=min(left, BEAT_SECONDS)):
            continue
        try:
            message = pipe.recv()
        except (EOFError, ConnectionResetError):
            worker.wait_for(process.sentinel, seconds=10)
            process.join(0)
            if (code := process.exitcode) is not None and code < 0:
                return ("died", f"The process was ended by {signal.Signals(-code).name}"), phase
            return ("died", f"The process ended with exit code {code} and no result"), phase
        if message[0] == "refused":
            raise message[1]
        if message[0] != "doing":
            return message, phase
        phase = message[1]
    return None, phase


def _count_oom_kills() -> int:
    """Returns how many processes the kernel has killed for lack of memory (Linux; 0 where it does not tell)."""
    lines = (read_text(Path("/proc/vmstat")) or "").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
