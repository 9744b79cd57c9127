"""The declarations of an experiment and of a kind of cell.

    EXPERIMENT = Experiment(name="memory", question="…", kinds=(MEMORY,), grids={"laptop": (GRID,)})

A file of this folder that defines `EXPERIMENT` is an experiment; nothing else lists it. `measure` names the module and
the function that measures, so that torch stays out of here. Standard library only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.analysis.costs.activations import Device
from runner.experiments.grid import Grid, Variants
from runner.formats import format_bytes, format_quantity
from runner.results.findings import Finding
from runner.schema import Cell, Row, Table, TimingRow, table_of
from runner.schema.own import OwnModel

#: The time to start a process, start CUDA and build a model in it, by device (s).
START_SECONDS: Mapping[Device, float] = {"cuda": 2.0, "mps": 3.0, "cpu": 0.15}


@dataclass(frozen=True, kw_only=True)
class On:
    """The device on which a cell will run: its name, the FLOP/s that it reaches in the cell's precision, and what is
    known of own models, by key."""

    device: Device
    flops_per_s: float
    gpu: str = ""
    own: Mapping[str, OwnModel] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The expected cost of a cell: operations of one step, bytes at its peak (None for an own model), and seconds from
    the start of its process to its row."""

    step_flops: int
    peak_bytes: int | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A row for `show`, with the medians of its phases (ms) and its findings."""

    row: Any
    medians_ms: Mapping[str, float]
    findings: Sequence[Finding] = ()


@dataclass(frozen=True, kw_only=True)
class Lines:
    """The table of `show`: its headings after cell and status, the texts of a line, and the order of the lines.
    `spared` are the columns that a narrow terminal leaves out first, by default the last ones. `settled` lists only
    rows that count, `audited` looks for findings, and `explained` explains failures below the tables."""

    headings: tuple[str, ...]
    line: Callable[[Shown], Sequence[str]]
    order: Callable[[Any], tuple[object, ...]]
    caption: str = ""
    spared: tuple[str, ...] = ()
    settled: bool = False
    audited: bool = False
    explained: bool = True


def _format_value(row: Row, name: str) -> str:
    """Returns a value of a row with its unit, an empty text for an unknown value."""
    value, unit = getattr(row, name), table_of(row).column(name).unit
    if not isinstance(value, int | float):
        return str(value or "")
    return format_bytes(value) if unit == "bytes" else format_quantity(value, unit).rstrip()


def summarize_numbers(row: Row, timings: Mapping[str, TimingRow]) -> str:
    """Returns the known numbers of a row with their labels."""
    table = table_of(row)
    values = {table.column(name).label.lower(): _format_value(row, name) for name in table.told}
    return ", ".join(f"{label} {value}" for label, value in values.items() if value)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of cell. `measure` names the module and the function that measures one. The function takes a job and a
    function that reports progress, and returns a Measurement or raises.

    `check` raises UsageError for a cell that makes no sense on any machine. `summarize` describes a row that is ok in a
    few words, from its timings by phase; `explain` describes what a failed row still knows. `fits` says whether the
    shape of a cell fits into the bytes of a device; presets leave out cells that do not fit. `lines` is the table that
    `show` prints, by default the row's numbers; `listed` is False where it prints none. A sweep measures the cheapest
    cell of each `repeat_group` in several processes, to learn the machine's noise; a cell without a group is not
    repeated."""

    cell: type[Cell]
    measure: str
    predict: Callable[[Any, On], Prediction]
    check: Callable[[Any], None] = lambda cell: None
    summarize: Callable[[Any, Mapping[str, TimingRow]], str] = summarize_numbers
    explain: Callable[[Any], str] = lambda row: ""
    fits: Callable[[Any, int], bool] = lambda cell, memory_bytes: True
    lines: Lines | None = None
    listed: bool = True
    repeat_group: Callable[[Any], str] = lambda cell: ""

    @property
    def table(self) -> Table:
        return table_of(self.cell)

    @property
    def shown(self) -> Lines:
        """The table that `show` prints."""
        table = self.table
        return self.lines or Lines(
            headings=tuple(table.column(name).label.lower() for name in table.told),
            line=lambda shown: [_format_value(shown.row, name) for name in table.told],
            order=lambda row: (row.cell_id,),
        )


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A question, the kinds of cells that answer it, and the grids of each preset. A preset that is not named leaves
    the experiment out. Once a user sets an axis, only the first grid of each kind is measured."""

    name: str
    question: str
    kinds: tuple[Kind, ...]
    grids: Mapping[str, tuple[Grid | Variants, ...]]
