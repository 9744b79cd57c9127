"""Every way in which a worker can end becomes a status with a reason, and nothing of it remains."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pytest

from runner.engines.engine import count_cores
from runner.engines.local import LocalEngine
from runner.errors import BadModel, UsageError
from runner.job import Outcome, OwnModelJob
from runner.schema import RunRow, StepCell
from tests.command import (
    ROOT,
    TINY,
    awaited,
    ended,
    execute,
    family,
    gone,
    make_job,
    rows,
    run_apart,
    start,
    tiny,
    workers,
)

#: A cell that would measure for ten minutes.
ENDLESS = tiny(warmup_steps=2, min_steps=10_000_000, max_steps=10_000_000, max_seconds=600.0)
#: A cell whose first matrix of scores has 2 x 300,000 x 300,000 x 4 bytes, which every machine refuses at once.
TOO_LARGE = tiny(context=300_000)


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    """Yields an engine, and restores the environment that it changes for its workers."""
    before = dict(os.environ)
    yield LocalEngine()
    os.environ.clear()
    os.environ.update(before)


def below() -> list[psutil.Process]:
    """Returns the workers of this process: children of its fork server, of which there is one."""
    servers = [child for child in psutil.Process().children() if "forkserver" in " ".join(child.cmdline())]
    return [child for server in servers for child in server.children(recursive=True)]


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    assert gone(below())


def measure(
    engine: LocalEngine, cell: StepCell, *, timeout_s: float = 100.0, beat: Callable[[str], None] = lambda doing: None
) -> Outcome:
    return engine.measure(make_job(cell), timeout_s=timeout_s, beat=beat)


def test_a_cell_that_works(engine: LocalEngine) -> None:
    said: list[str] = []
    outcome = measure(engine, tiny(warmup_steps=2), beat=said.append)
    assert (outcome.status, outcome.failed_phase, outcome.message) == ("ok", None, None)
    assert outcome.measurement.values["steps"] == 3
    assert list(dict.fromkeys(said)) == ["start", "build", "warm-up", "measure"]


@pytest.mark.parametrize(
    ("number", "phase"),
    [(signal.SIGKILL, "start"), (signal.SIGKILL, "measure"), (signal.SIGTERM, "measure"), (signal.SIGSEGV, "measure")],
)
def test_a_killed_worker_is_crashed(engine: LocalEngine, number: signal.Signals, phase: str) -> None:
    """It is killed when a phase is first heard of; from its start, which is no message, it may have gone on."""
    due = [phase]

    def kill(doing: str) -> None:
        if doing in due:
            due.clear()  # a second beat would come while the process is ending
            (worker,) = below()
            worker.send_signal(number)

    outcome = measure(engine, ENDLESS, beat=kill)
    assert outcome.status == "crashed"
    assert phase in (outcome.failed_phase, "start")
    assert number.name in (outcome.message or "")
    assert outcome.measurement.values == {}


def test_a_cell_that_takes_too_long(engine: LocalEngine) -> None:
    began, said = time.monotonic(), list[str]()
    outcome = measure(engine, ENDLESS, timeout_s=2.0, beat=said.append)
    assert time.monotonic() - began >= 2.0
    assert (outcome.status, outcome.failed_phase) == ("timeout", said[-1])
    assert "2 s" in (outcome.message or "")
    assert "--timeout" in (outcome.message or "")


def test_out_of_memory_and_an_error_are_reported_and_do_not_affect_the_next_cell(engine: LocalEngine) -> None:
    """On a CPU too, the message says how many bytes were requested."""
    large, ok, error, again = (measure(engine, cell) for cell in (TOO_LARGE, tiny(), tiny(heads=3), tiny()))
    assert (large.status, large.failed_phase) == ("oom", "forward")
    assert max(int(word) for word in re.findall(r"\d+", large.message or "")) >= 300_000**2
    assert (error.status, error.failed_phase) == ("error", "build")
    assert "does not divide into 3 heads" in (error.message or "")
    assert ok.status == again.status == "ok"


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (tiny(precision="tf32"), "TF32 needs an NVIDIA GPU of compute capability 8.0"),
        (tiny(backend="compiled-reduce-overhead"), "CUDA graphs"),
        (tiny(attention="sdpa-cudnn"), "no sdpa-cudnn kernel for cpu"),
    ],
)
def test_cells_that_cannot_run_here_are_skipped_with_a_reason(engine: LocalEngine, cell: StepCell, reason: str) -> None:
    outcome = measure(engine, cell)
    assert (outcome.status, outcome.failed_phase) == ("skipped", None)
    assert reason in (outcome.message or "")


def test_a_machine_is_described_by_the_columns_of_a_run(engine: LocalEngine) -> None:
    columns = engine.describe("cpu")
    assert set(columns) <= {item.name for item in fields(RunRow)}
    assert columns["device"] == "cpu"
    assert columns["omp_wait_policy"] == "PASSIVE"
    assert columns["threads"] == max(1, count_cores() - 1)
    assert columns["places"] == 1
    kept = "MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=1073741824"
    assert columns["allocator"] == (kept if sys.platform == "linux" else None)
    assert columns["device_memory_bytes"] == columns["memory_bytes"] == psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("allowed", "physical", "cores"), [(8, 8, 8), (16, 8, 8), (4, 8, 4), (2, None, 2)]
)  # CPUs the process may use, cores of the machine
def test_two_hardware_threads_of_a_core_count_once(
    allowed: int, physical: int | None, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(allowed)), raising=False)
    monkeypatch.setattr(psutil, "cpu_count", lambda *, logical: physical)
    assert count_cores() == cores


@pytest.mark.parametrize("device", ["tpu", "cpu:x", "cuda:99", ""])
def test_a_missing_device_is_refused(engine: LocalEngine, device: str) -> None:
    with pytest.raises(UsageError, match=r"This machine has no device.*Expected one of .*cpu"):
        engine.describe(device)


@pytest.mark.soak
def test_without_a_compiler_compiled_cells_are_skipped(db: Path) -> None:
    words, env = ("--backends", "compiled,compiled-block,eager"), {"PATH": "", "CXX": "/nonexistent"}
    run_apart("sweep", *TINY, *words, db=db, env=env, code=0)
    found = {row["backend"]: row for row in rows(db, "SELECT backend, status, message, failed_phase FROM steps")}
    statuses = {name: row["status"] for name, row in found.items()}
    assert statuses == {"compiled": "skipped", "compiled-block": "skipped", "eager": "ok"}
    assert "needs a C++ compiler" in found["compiled"]["message"]
    assert rows(db, "SELECT compiler FROM runs") == [{"compiler": None}]


@pytest.mark.soak
@pytest.mark.parametrize("killed", ["worker", "runner"])
def test_compilers_end_with_the_worker_and_the_worker_with_the_sweep(tmp_path: Path, killed: str) -> None:
    cache = tmp_path / "inductor"
    words = ("--backends", "compiled-block", "--modes", "inference")
    process = start("sweep", *TINY, *words, db=tmp_path / "r.duckdb", env={"TORCHINDUCTOR_CACHE_DIR": str(cache)})
    try:
        compilers = awaited(process, lambda: _compilers(process, cache))
        everyone = family(process) + compilers
        victims = workers(process) if killed == "worker" else [psutil.Process(process.pid)]
        for victim in victims:
            victim.kill()
        output = ended(process)
    finally:
        process.kill()
    assert gone(everyone)
    assert process.returncode == (1 if killed == "worker" else -signal.SIGKILL), output


def _compilers(process: subprocess.Popen[str], cache: Path) -> list[psutil.Process]:
    """Returns the compilers that the worker has started. The worker that describes the machine only asks a compiler for
    its version, and leaves the cache empty."""
    return [below for worker in workers(process) for below in family(worker)] if any(cache.glob("*")) else []


def test_an_interrupt_waits_until_the_worker_has_started(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork server prints a traceback into the terminal if a request to it is cut off."""
    request, requested = forkserver.connect_to_new_process, []

    def interrupted(descriptors: list[int]) -> object:
        reply = request(descriptors)
        signal.raise_signal(signal.SIGINT)
        requested.append(reply)
        return reply

    monkeypatch.setattr(forkserver, "connect_to_new_process", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measure(engine, ENDLESS)
    assert requested, "the request was completed"


#: Whether the fork server's children have imported the compiler, on a machine that is said to have an NVIDIA GPU.
PRELOADING = """
from runner.engines import local
local.gpu_handle = lambda device: object()
engine = local.LocalEngine(compiles=True)
with engine.context.Pool(1) as pool:
    print(pool.apply(eval, ("'torch._inductor.compile_fx' in __import__('sys').modules",)))
"""
#: A fork server that imports something that has used CUDA, so that CUDA refuses to work in its children.
POISONED = """
from multiprocessing import context
from runner.engines import local
local.PRELOADED.append("tests.own.poisoned")
engine = local.LocalEngine()
print(engine.describe("cpu")["device"], isinstance(engine.context, context.SpawnContext))
"""


def run_program(text: str) -> str:
    """Runs a program in a process of its own, with a fork server of its own, and returns what it printed last."""
    return execute(sys.executable, "-c", text, code=0).stdout.splitlines()[-1]


@pytest.mark.soak
def test_the_compiler_is_imported_once_for_a_sweep_that_compiles() -> None:
    assert run_program(PRELOADING) == "True"


@pytest.mark.soak
def test_processes_are_spawned_where_forked_ones_cannot_use_cuda() -> None:
    assert run_program(POISONED) == "cpu True"


def test_only_the_end_of_a_long_output_is_kept_in_memory_and_none_on_disk(engine: LocalEngine, tmp_path: Path) -> None:
    """A gigabyte: read as it is printed, also by a process that ends without a word."""
    body = "import os\ndef build(want):\n    for _ in range(1000): print('x' * 1_000_000)\n"
    (tmp_path / "net.py").write_text(f"{body}    print('the end', flush=True)\n    os._exit(3)\n")
    job = OwnModelJob(spec=f"{tmp_path}/net.py:build", device="cpu", points=((1, 8),), runs=False)
    before, room = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, shutil.disk_usage(tempfile.gettempdir()).free
    with pytest.raises(BadModel, match=r"exit code 3 and no result \(the end\)"):
        engine.describe_model(job, timeout_s=60)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000, "kB"
    assert room - shutil.disk_usage(tempfile.gettempdir()).free < 500e6


def test_a_process_that_prints_without_end_ends_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("def build(want):\n    while True: print('x' * 1_000_000)\n")
    command = [sys.executable, "-m", "runner", "model", "check", f"{tmp_path}/net.py:build", "--device", "cpu"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
    awaited(process, lambda: [one for one in workers(process) if one.cpu_times().user > 0.2])
    everyone = family(process)
    process.kill()
    process.wait()
    assert gone(everyone)
