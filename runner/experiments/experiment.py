"""What an experiment is, and what a kind of cell is: everything that the house knows of them, in one declaration each.

    EXPERIMENT = Experiment(name="memory", question="…", kinds=(MEMORY,), grids={"laptop": (GRID,)})

A file of this folder that defines `EXPERIMENT` is one; nothing else lists it. Nothing here measures: `measure` says
where the function stands that does, so that torch stays out. Standard library only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.analysis.audit.findings import Finding
from runner.analysis.costs.activations import Device
from runner.experiments.grid import Grid, Variants
from runner.formats import format_bytes, format_quantity
from runner.schema import Cell, Row, Table, TimingRow, table_of

#: Starting a process, building a model and starting CUDA in it, by device (s).
START_SECONDS: Mapping[Device, float] = {"cuda": 2.0, "mps": 3.0, "cpu": 0.15}


@dataclass(frozen=True, kw_only=True)
class On:
    """Where a cell is to run: the device, the FLOP/s that it reaches in the cell's precision, and its name."""

    device: Device
    flops_per_s: float
    gpu: str = ""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What is expected of a cell: operations of one step, bytes at its peak, seconds from its process to its row."""

    step_flops: int
    peak_bytes: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A row as `show` prints it, with the medians of its phases (ms) and what the audit says of it."""

    row: Any
    medians_ms: Mapping[str, float]
    findings: Sequence[Finding] = ()


@dataclass(frozen=True, kw_only=True)
class Lines:
    """The table of `show`: its headings after cell and status, what stands below them, in which order. With `settled`
    only rows that count are listed; with `audited` findings are looked for; with `explained` failures are explained
    below the tables."""

    headings: tuple[str, ...]
    line: Callable[[Shown], Sequence[str]]
    order: Callable[[Any], tuple[object, ...]]
    caption: str = ""
    settled: bool = False
    audited: bool = False
    explained: bool = True


def _always(cell: Cell, memory_bytes: int) -> bool:
    return True


def _tell(row: Row, name: str) -> str:
    """A value of a row in its unit; nothing if it is unknown."""
    value, unit = getattr(row, name), table_of(row).column(name).unit
    if not isinstance(value, int | float):
        return str(value or "")
    return format_bytes(value) if unit == "bytes" else format_quantity(value, unit).rstrip()


def summarize_numbers(row: Row, timings: Mapping[str, TimingRow]) -> str:
    """The numbers of a row that are known, by their labels."""
    table = table_of(row)
    said = {table.column(name).label.lower(): _tell(row, name) for name in table.told}
    return ", ".join(f"{label} {value}" for label, value in said.items() if value)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of cell. `measure` is the module and the function that measures one: it is called with a job and a
    function to tell what is being done, and returns a Measurement or raises.

    `check` raises UsageError for a cell that makes no sense on any machine. `summarize` says in a few words what came
    of a row that is ok, from its timings by phase; `explain` what a failed one still knows. `fits` says whether the
    shape of a cell fits a device, where a preset leaves out what does not. `lines` are what `show` prints, the row's
    numbers if nothing is said; `listed` is whether it prints anything."""

    cell: type[Cell]
    measure: str
    predict: Callable[[Any, On], Prediction]
    check: Callable[[Any], None] = lambda cell: None
    summarize: Callable[[Any, Mapping[str, TimingRow]], str] = summarize_numbers
    explain: Callable[[Any], str] = lambda row: ""
    fits: Callable[[Any, int], bool] = _always
    lines: Lines | None = None
    listed: bool = True

    @property
    def table(self) -> Table:
        return table_of(self.cell)

    @property
    def shown(self) -> Lines:
        """What `show` prints."""
        table = self.table
        return self.lines or Lines(
            headings=tuple(table.column(name).label.lower() for name in table.told),
            line=lambda shown: [_tell(shown.row, name) for name in table.told],
            order=lambda row: (row.cell_id,),
        )


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A question, the kinds of cells that answer it, and its grids in each preset. The first grid of a kind is the
    experiment's own: alone it is what is asked once a user sets an axis. A preset that is not named leaves it out."""

    name: str
    question: str
    kinds: tuple[Kind, ...]
    grids: Mapping[str, tuple[Grid | Variants, ...]]
