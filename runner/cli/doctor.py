"""What this machine is, what can and cannot be measured on it and why, and what is wrong with a results file.

python -m runner doctor
python -m runner doctor --repair --db results.duckdb
"""

import importlib.util
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table as Grid
from rich.text import Text

from runner.analysis.costs import hardware
from runner.cli.terminal import Terminal, errors
from runner.formats import format_count
from runner.schema import TABLES
from runner.store.checking import Checked, check_file, repair_file


@dataclass(frozen=True)
class Check:
    """Whether something can be measured here, with the reason if not, or what makes it possible."""

    what: str
    possible: bool
    reason: str


def checks(machine: Mapping[str, Any]) -> Iterator[Check]:
    """Yields what can be measured on a machine as `describe` returns it."""
    device, name, flags = machine["device"], machine["device_name"] or "", machine["cpu_flags"] or ""
    cuda, accelerated = device == "cuda", device in ("cuda", "mps")
    capability = machine.get("compute_capability") or "0.0"
    is_ampere = tuple(int(part) for part in capability.split(".")) >= (8, 0)

    def check(what: str, possible: bool, *, yes: str, no: str) -> Check:
        return Check(what, possible, yes if possible else no)

    yield Check("fp32", True, "IEEE float32 everywhere.")
    needed = "needs an NVIDIA GPU of compute capability 8.0 or newer; such cells are skipped."
    yield Check("tf32", cuda and is_ampere, f"compute capability {machine['compute_capability']}" if cuda else needed)
    native = {"cuda": is_ampere, "mps": True}.get(device, "bf16" in flags)
    slow = "no bf16 instructions: it runs, and may be slower than fp32."
    yield check("bf16 in hardware", native, yes="native matrix products", no=slow)
    slow = "no fp16 matrix instructions: it runs, slowly."
    yield check("fp16 in hardware", accelerated or "fp16" in flags, yes="native matrix products", no=slow)
    compiler = machine["compiler"]
    needed = "needs a C++ compiler and Python's headers (Debian: g++ python3-dev); compiled cells are skipped."
    yield check("torch.compile", compiler is not None, yes=str(compiler), no=needed)
    needed = "need an NVIDIA GPU; compiled-reduce-overhead cells are skipped."
    yield check("CUDA graphs", cuda, yes="mode reduce-overhead", no=needed)
    needed = "PyTorch has none for MPS; such cells are skipped."
    yield check("kernels of a step", device != "mps", yes="torch.profiler", no=needed)
    yield check("memory timelines", device != "mps", yes="every allocation with its stack", no=needed)
    needed = "MPS has none: sums in fp64 are skipped, errors are computed on the CPU or against fp32."
    yield check("float64", device != "mps", yes="what errors are computed against", no=needed)
    none = "a CPU has none and needs none: its work is done when the call returns."
    yield check("device clock", accelerated, yes="events", no=none)
    resident = "no allocator counts it here; the peak resident memory of the process is kept instead."
    yield check("peak memory of tensors", cuda, yes="the CUDA allocator counts it", no=resident)
    peak = hardware.peak_flops(name, "bf16")
    known = f"datasheet peak {(peak or 0) / 1e12:.0f} TFLOP/s in bf16"
    yield check("MFU", peak is not None, yes=known, no=f"no datasheet peak is known for {name}.")
    swap = "macOS has no limit on a process's memory; the machine may swap instead."
    yield check("out of memory as a row", cuda or sys.platform == "linux", yes="", no=swap)
    threads, cores, policy = machine["threads"], machine["cpu_cores"], machine["omp_wait_policy"]
    use = f"{threads} of {cores} CPUs compute, OMP_WAIT_POLICY is {policy}"
    advice = "leave one to the system, or equal cells differ much more: unset OMP_NUM_THREADS and OMP_WAIT_POLICY."
    quiet = threads is not None and cores is not None and threads < max(cores, 2) and policy == "PASSIVE"
    yield check("quiet CPU threads", quiet, yes=f"{use}; OMP_NUM_THREADS sets another number.", no=f"{use}: {advice}")
    copy = "Streamlit is not installed: pip install '.[app]', or copy the results file to another machine."
    yield check("browse here", importlib.util.find_spec("streamlit") is not None, yes="python -m runner app", no=copy)


def print_report(console: Terminal, machine: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Prints the machine, then what is possible on it."""
    if as_json:
        console.dump({"machine": dict(machine), "checks": list(map(asdict, checks(machine)))})
        return
    grid = Grid(box=None, show_header=False, pad_edge=False)
    for name, value in machine.items():
        column = TABLES["runs"].column(name)
        text = "unknown" if value is None else str(value)
        if isinstance(value, bool):
            text = "yes" if value else "no"
        if column.unit == "bytes" and value:
            text = f"{value / 2**30:.1f} GiB"
        grid.add_row(Text(column.label, "dim"), text)
    console.print(grid, "")
    table = Grid(box=None, show_header=False, pad_edge=False)
    for check in checks(machine):
        answer = Text("yes", "green") if check.possible else Text("no", "yellow")
        table.add_row(answer, check.what, Text(check.reason, "dim"))
    console.print(table)


def check_results(console: Terminal, db: Path, *, repair: bool, as_json: bool = False) -> int:
    """Prints what is wrong with the file and, with `repair`, repairs it and prints what is left. Returns the exit code:
    0 if nothing is wrong, 1 if something is."""
    left = found = check_file(db)
    if not as_json:
        _print_problems(console, db, found)
    copy, repairs = None, repair and any(problem.repair for problem in found.problems)
    if repairs:
        copy, left = repair_file(db), check_file(db)
    if not repair and any(problem.repair for problem in found.problems):
        words = shlex.join(["python", "-m", "runner", "doctor", "--repair", "--db", str(db)])
        (errors if as_json else console).say(f"Nothing was changed. To repair it, and keep a copy: {words}")
    if as_json:
        console.dump({"file": str(db), "copy": copy, **asdict(left)})
    elif repairs:
        console.print("")
        console.say(f"Repaired. The file as it was is {copy}." if copy else "Repaired.")
        _print_problems(console, db, left)
    return int(bool(left.problems))


def _print_problems(console: Terminal, db: Path, found: Checked) -> None:
    rows = sum(found.rows.values())
    what = f"{db}: {format_count(rows, 'row')} in {format_count(sum(map(bool, found.rows.values())), 'table')}"
    grid = Grid(box=None, show_header=False, pad_edge=False)
    for problem in found.problems:
        repair = problem.repair or "A repair leaves it as it is."
        grid.add_row(Text(problem.kind, "red"), f"{problem.sentence} {Text(repair)}")
    count = format_count(len(found.problems), "problem")
    console.say(f"{what}, {count}:" if found.problems else f"{what}, nothing wrong.")
    if found.problems:
        console.print(grid)
    for note in found.notes:
        console.say(note, style="dim")
