"""What makes equal steps differ between processes? The spread of their medians under one changed setting at a time.

    python -m tests.bench.sources --seconds 300
    python -m tests.bench.sources --inside pinned      # one setting: a line of input starts a process, a line answers

Each setting has an engine in a process of its own, with its own fork server. They take turns, so that a machine that
slows down favors none, and each turn measures every cell in a fresh process as a sweep does. Equal cells of one sweep
share what their fork server had: its addresses and its hash seed are those of all its children. `new addresses` spawns
each process instead, with new ones. On a GPU the cells are steps that the host limits; on a CPU, toys.
Limits: the standard deviation of N medians is itself known to one part in √(2(N−1)): with 8, to 27 %.
"""

import argparse
import json
import math
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from runner.engines.local import LocalEngine
from runner.engines.telemetry import Telemetry
from runner.formats import format_number
from runner.job import Job
from runner.schema import Mode, StepCell, TimingRow, new_id
from runner.schema.sizes import size_named

PROCESSES, SECONDS = 8, 300.0
#: What the time limit of a cell is (s).
CELL_SECONDS, TIMEOUT = 1.0, 120.0


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is changed before the process starts: variables of its environment, and the command that starts Python. What
    changes afterwards is in `apply` and `serve`."""

    environment: Mapping[str, str] | None = None
    before: tuple[str, ...] = ()


SETTINGS: Mapping[str, Setting] = {
    "as it is": Setting(),
    "pinned": Setting(),
    "no sampler": Setting(),
    "new addresses": Setting(),
    "no randomization": Setting(before=("setarch", "-R"), environment={"PYTHONHASHSEED": "0"}),
    "huge pages": Setting(environment={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "THP_MEM_ALLOC_ENABLE": "1"}),
    "one arena": Setting(environment={"MALLOC_ARENA_MAX": "1"}),
    "bound threads": Setting(environment={"OMP_PROC_BIND": "spread", "OMP_PLACES": "threads"}),
    "one thread": Setting(environment={"OMP_NUM_THREADS": "1"}),
    "one bound thread": Setting(environment={"OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "true"}),
}


def make_cells(device: str) -> dict[str, StepCell]:
    """Returns the cells by the names of their columns."""
    if device == "cuda":
        how: dict[str, Any] = {"precision": "bf16", "attention": "sdpa", "optimizer": "fused", "context": 512}
        steps: tuple[tuple[str, Mode], ...] = (("small", "train"), ("small", "inference"))
    else:
        how, steps = {"precision": "fp32", "context": 64}, (("toy-256", "train"), ("toy-64", "train"))
    cells = {}
    for size, mode in steps:
        shape: dict[str, Any] = size_named(size).numbers
        cells[f"{size} {mode}"] = StepCell(**shape, mode=mode, max_seconds=CELL_SECONDS, **how)
    return cells


def apply(setting: str) -> None:
    """Makes those changes that need no new process. Half of the cores, from the last down, is what a pinned worker
    has; the process that samples keeps the others."""
    if setting == "no sampler":
        Telemetry.sample = lambda self: None  # type: ignore[method-assign]
    if setting == "pinned":
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, set(cores[: len(cores) // 2]))


def pin_server(engine: LocalEngine) -> None:
    """Moves the fork server, and so its children, to one core that the runner has not."""
    engine.describe("auto")
    core = sorted(set(range(os.cpu_count() or 1)) - os.sched_getaffinity(0))[-1]
    for child in psutil.Process().children(recursive=True):
        child.cpu_affinity([core])


def serve(setting: str) -> None:
    """Measures every cell once for each line of input, and answers with the medians."""
    apply(setting)
    engine = LocalEngine()
    if setting == "new addresses":
        engine.context = multiprocessing.get_context("spawn")
    machine = engine.describe("auto")
    if setting == "pinned":
        pin_server(engine)
    for _ in sys.stdin:
        medians = {name: measure(engine, cell, machine) for name, cell in make_cells(machine["device"]).items()}
        print(json.dumps(medians), flush=True)


def measure(engine: LocalEngine, cell: StepCell, machine: Mapping[str, Any]) -> float:
    """Returns the median time of a step that is waited for (ms); raises RuntimeError where the cell fails."""
    device = "cuda:0" if machine["device"] == "cuda" else machine["device"]
    job = Job(
        experiment="benchmark",
        cell=cell,
        run_id=new_id(),
        cell_id=new_id(),
        device=device,
        device_name=machine["device_name"] or "",
    )
    outcome = engine.measure(job, timeout_s=TIMEOUT)
    timings = [row for row in outcome.measurement.details.get("timings", ()) if isinstance(row, TimingRow)]
    step = next((row.median_ms for row in timings if row.phase == "step"), None)
    if step is None:
        raise RuntimeError(f"{cell.mode} {outcome.status}: {outcome.message}")
    return step


def start(setting: str) -> "subprocess.Popen[str]":
    """Starts the process of a setting."""
    how = SETTINGS[setting]
    command = [*how.before, sys.executable, "-m", "tests.bench.sources", "--inside", setting]
    environment = {**os.environ, **(how.environment or {})}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def take_turns(settings: list[str], *, processes: int, seconds: float) -> dict[str, dict[str, list[float]]]:
    """Returns the medians (ms) by setting and cell; a setting whose process ends is left out from then on."""
    found: dict[str, dict[str, list[float]]] = {setting: {} for setting in settings}
    ends = time.monotonic() + seconds
    with ExitStack() as running:
        servers = {setting: running.enter_context(start(setting)) for setting in settings}
        for turn in range(processes):
            for setting in settings if turn % 2 else settings[::-1]:
                if time.monotonic() > ends:
                    break
                server = servers[setting]
                assert server.stdin
                assert server.stdout
                try:
                    server.stdin.write("go\n")
                    server.stdin.flush()
                    medians: dict[str, float] = json.loads(server.stdout.readline())
                except (OSError, ValueError):
                    print(f"{setting}: its process ended", file=sys.stderr)
                    continue
                print(f"{turn} {setting}: {medians}", file=sys.stderr, flush=True)
                for name, median in medians.items():
                    found[setting].setdefault(name, []).append(median)
        for server in servers.values():
            server.kill()
    return found


def show_table(found: Mapping[str, Mapping[str, list[float]]], console: Console) -> None:
    """Prints for every cell and setting the spread of the logarithms of its medians, and the medians themselves."""
    table = Table("cell", "setting", "spread", "median ms", "medians of the processes, ms", box=None, pad_edge=False)
    for name in next(iter(found.values())):
        for setting, by_cell in found.items():
            medians = by_cell.get(name, [])
            if len(medians) > 1:
                spread = statistics.stdev(map(math.log, medians))
                texts = " ".join(map(format_number, medians))
                table.add_row(name, setting, f"{spread:.1%}", format_number(statistics.median(medians)), texts)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="The spread between processes under one changed setting at a time.")
    parser.add_argument("--inside", choices=SETTINGS, help="measure under this setting in this very process")
    parser.add_argument("--settings", default=",".join(SETTINGS), help="names, with commas")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="how often each cell is measured")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="no process starts after this time")
    given = parser.parse_args()
    if given.inside:
        serve(given.inside)
        return
    settings = [name for name in given.settings.split(",") if not SETTINGS[name].before or shutil.which("setarch")]
    found = take_turns(settings, processes=given.processes, seconds=given.seconds)
    show_table(found, Console(width=None if sys.stdout.isatty() else 180))


if __name__ == "__main__":
    main()
