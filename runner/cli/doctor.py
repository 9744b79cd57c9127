"""What is this machine, and what will and will not be measurable on it, and why?

python -m runner doctor
"""

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table as Grid
from rich.text import Text

from runner.analysis.costs import hardware
from runner.cli.terminal import Terminal
from runner.schema import TABLES


@dataclass(frozen=True, kw_only=True)
class Check:
    """Whether something can be measured here. `reason` says why not, or what makes it possible."""

    what: str
    possible: bool
    reason: str


def checks(machine: Mapping[str, Any]) -> Iterator[Check]:
    """What can be measured on the machine that `describe` described."""
    device, name = machine["device"], machine["device_name"] or ""
    cuda = device == "cuda"
    capability = tuple(int(part) for part in (machine.get("compute_capability") or "0.0").split("."))
    yield Check(what="fp32", possible=True, reason="IEEE float32 everywhere.")
    yield Check(
        what="tf32",
        possible=cuda and capability >= (8, 0),
        reason=f"compute capability {machine['compute_capability']}"
        if cuda
        else "needs an NVIDIA GPU of compute capability 8.0 or newer; such cells are skipped.",
    )
    native = {"cuda": capability >= (8, 0), "mps": True}.get(device, _has_flag(machine, "bf16"))
    yield Check(
        what="bf16 in hardware",
        possible=native,
        reason="native matrix products" if native else "no bf16 instructions: it runs, and may be slower than fp32.",
    )
    half = {"cuda": True, "mps": True}.get(device, _has_flag(machine, "fp16"))
    yield Check(
        what="fp16 in hardware",
        possible=half,
        reason="native matrix products" if half else "no fp16 matrix instructions: it runs, slowly.",
    )
    compiler = machine["compiler"]
    yield Check(
        what="torch.compile",
        possible=compiler is not None,
        reason=compiler
        or "needs a C++ compiler and Python's headers (Debian: g++ python3-dev); compiled cells are skipped.",
    )
    yield Check(
        what="CUDA graphs",
        possible=cuda,
        reason="mode reduce-overhead" if cuda else "need an NVIDIA GPU; compiled-reduce-overhead cells are skipped.",
    )
    yield Check(
        what="device clock",
        possible=device in ("cuda", "mps"),
        reason="events"
        if device != "cpu"
        else "a CPU has none and needs none: its work is done when the call returns.",
    )
    yield Check(
        what="peak memory of tensors",
        possible=cuda,
        reason="the CUDA allocator counts it"
        if cuda
        else "no allocator counts it here; the peak resident memory of the process is kept instead.",
    )
    peak = hardware.peak_flops(name, "bf16")
    yield Check(
        what="MFU",
        possible=peak is not None,
        reason=f"datasheet peak {peak / 1e12:.0f} TFLOP/s in bf16"
        if peak
        else f"no datasheet peak is known for {name}.",
    )
    limited = sys.platform == "linux"
    yield Check(
        what="out of memory as a row",
        possible=cuda or limited,
        reason="" if cuda or limited else "macOS has no limit on a process's memory; the machine may swap instead.",
    )
    yield Check(
        what="quiet CPU threads",
        possible=machine["omp_wait_policy"] == "PASSIVE",
        reason=f"OMP_WAIT_POLICY is {machine['omp_wait_policy']}; ACTIVE threads spin and slow their neighbors.",
    )
    app = importlib.util.find_spec("streamlit") is not None
    yield Check(
        what="browse here",
        possible=app,
        reason="streamlit run app.py"
        if app
        else "Streamlit is not installed: pip install '.[app]', or copy the results file to another machine.",
    )


def print_report(console: Terminal, machine: Mapping[str, Any]) -> None:
    """The machine, then what is possible on it."""
    grid = Grid(box=None, show_header=False, pad_edge=False)
    for name, value in machine.items():
        column = TABLES["runs"].column(name)
        shown = (
            f"{value / 2**30:.1f} GiB"
            if column.unit == "bytes" and value
            else "unknown"
            if value is None
            else str(value)
        )
        grid.add_row(Text(column.label, "dim"), shown)
    console.print(grid, "")
    table = Grid(box=None, show_header=False, pad_edge=False)
    for check in checks(machine):
        answer = Text("yes", "green") if check.possible else Text("no", "yellow")
        table.add_row(answer, check.what, Text(check.reason, "dim"))
    console.print(table)


def _has_flag(machine: Mapping[str, Any], part: str) -> bool:
    return any(part in flag for flag in (machine["cpu_flags"] or "").split())
