"""The rows that a report answers from: those of one machine, or of one run, and of one edition's sizes where asked.

    rows = Rows(path, Scope(edition="2025"))
    rows.steps, rows.attention, rows.peaks, rows.traces

Every query runs once, when it is first needed. Only measured runs count: published and imported ones are somebody
else's numbers. Without a machine or a run it is the machine that measured last.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal
from uuid import UUID

from runner.analysis.audit.findings import Finding
from runner.errors import UsageError
from runner.experiments.models import EDITIONS
from runner.results import (
    AccumulationResult,
    AttentionResult,
    CompileCost,
    EarlyStep,
    KernelPart,
    KernelTrace,
    Peak,
    PrecisionResult,
    Result,
    RunSummary,
    StepResult,
    Timeline,
)
from runner.schema import TABLES, Cell, Model, Shape
from runner.schema.sizes import size_named
from runner.store.queries.attention import load_attention
from runner.store.queries.compile import load_compile_costs
from runner.store.queries.memory import load_peaks
from runner.store.queries.notes import load_notes
from runner.store.queries.numerics import load_accumulations, load_precisions
from runner.store.queries.overview import load_runs
from runner.store.queries.raw import load_rounds
from runner.store.queries.selection import Selection
from runner.store.queries.steps import load_early_steps, load_steps
from runner.store.queries.timelines import load_timelines
from runner.store.queries.trust import load_findings
from runner.store.read.kernels import load_parts, load_traces

Edition = Literal["2025", "2026"]


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which rows of a file count. `edition` leaves the sizes and contexts of that edition of the assignment."""

    machine: str | None = None
    run: UUID | None = None
    edition: Edition | None = None


class Rows:
    """The rows of one file that count, read as they are needed."""

    def __init__(self, path: Path, scope: Scope) -> None:
        """Raises UsageError for a machine that measured nothing in this file, and StoreError for a bad file."""
        self.path, self.scope = path, scope
        self.notes = load_notes(path)
        every = [run for run in load_runs(path) if run.run_id == scope.run or run.run_id not in self.notes.hidden]
        self.measured_runs = [run for run in every if run.source in (None, "measured")]
        self.other_runs = len(every) - len(self.measured_runs)
        self._findings: dict[UUID, list[Finding]] = {}
        machines = self.machines
        if scope.machine is not None and scope.machine not in machines:
            raise UsageError(
                f"No rows were measured on {scope.machine!r}.",
                expected=f"one of {', '.join(repr(name) for name in machines)}" if machines else "",
                do="" if machines else "Measure some: python -m runner sweep.",
            )

    @property
    def machines(self) -> list[str]:
        """The machines of the file, the last to measure first."""
        return list(dict.fromkeys(run.machine for run in self.measured_runs))

    @cached_property
    def machine(self) -> str | None:
        """The machine that the report is about; None for a file without measured runs."""
        of_run = [run.machine for run in self.measured_runs if run.run_id == self.scope.run]
        return next(iter([*of_run, *([self.scope.machine] if self.scope.machine else []), *self.machines]), None)

    @cached_property
    def runs(self) -> list[RunSummary]:
        """The runs that the report is about, the newest first."""
        wanted = (run for run in self.measured_runs if run.machine == self.machine)
        return [run for run in wanted if self.scope.run in (None, run.run_id)]

    @property
    def device(self) -> str | None:
        """cuda, cpu or mps."""
        return next((run.device for run in self.runs if run.device), None)

    @property
    def device_memory_bytes(self) -> int | None:
        return next((run.device_memory_bytes for run in self.runs if run.device_memory_bytes), None)

    @property
    def selection(self) -> Selection:
        return Selection(machine=self.machine, run=self.scope.run, hidden=tuple(sorted(self.notes.hidden)))

    def holds(self, cell: Cell) -> bool:
        """Returns whether a model's cell has a size and a context of the edition; true without one."""
        if self.scope.edition is None:
            return True
        axes = EDITIONS[f"cs336-{self.scope.edition}"]
        if not isinstance(cell, Model) or cell.model_key is not None:
            return False
        shapes = [Shape(**size_named(name).numbers) for name in axes["sizes"]]
        return cell.shape in shapes and getattr(cell, "context", None) in axes["contexts"]

    @cached_property
    def steps(self) -> list[StepResult]:
        """End-to-end cells with the preferred effort, smallest model first."""
        return [cell for cell in load_steps(self.path, self.selection) if self.holds(cell.cell)] if self.runs else []

    @cached_property
    def every_step(self) -> list[StepResult]:
        """End-to-end cells of every effort, for pairs."""
        loose = replace(self.selection, settled=False)
        return [cell for cell in load_steps(self.path, loose) if self.holds(cell.cell)] if self.runs else []

    @cached_property
    def early(self) -> list[EarlyStep]:
        """Every step of the cells of warm-up ablations."""
        found = load_early_steps(self.path, self.selection) if self.runs else []
        return [step for step in found if self.holds(step.cell)]

    @cached_property
    def compile_costs(self) -> list[CompileCost]:
        return load_compile_costs(self.path, self.selection) if self.runs else []

    @cached_property
    def attention(self) -> list[AttentionResult]:
        """Single-head attention cells with the preferred effort; the written-out implementation first."""
        return load_attention(self.path, self.selection) if self.runs else []

    @cached_property
    def every_attention(self) -> list[AttentionResult]:
        """Single-head attention cells of every effort, for pairs."""
        return load_attention(self.path, replace(self.selection, settled=False)) if self.runs else []

    @cached_property
    def peaks(self) -> list[Peak]:
        """Memory cells, smallest model first."""
        return [peak for peak in load_peaks(self.path, self.selection) if self.holds(peak.cell)] if self.runs else []

    @cached_property
    def timelines(self) -> list[Timeline]:
        """The recorded timelines of memory cells, the newest first."""
        found = load_timelines(self.path, self.scope.run, self.machine) if self.runs else []
        return [line for line in found if line.cell and line.machine == self.machine and self.holds(line.cell)]

    @cached_property
    def traces(self) -> list[KernelTrace]:
        """The profiled cells, smallest model first; failed ones too."""
        found = load_traces(self.path, self.selection) if self.runs else []
        return [trace for trace in found if trace.cell and self.holds(trace.cell)]

    @cached_property
    def parts(self) -> dict[UUID, list[KernelPart]]:
        """The kernel classes of every trace by phase."""
        return load_parts(self.path)

    @cached_property
    def sums(self) -> list[AccumulationResult]:
        return load_accumulations(self.path, self.selection) if self.runs else []

    @cached_property
    def precisions(self) -> list[PrecisionResult]:
        """Passes in several precisions beside a reference; an edition does not narrow them."""
        return load_precisions(self.path, self.selection) if self.runs else []

    def findings(self, results: Sequence[Result], table: str) -> dict[UUID, list[list[Finding]]]:
        """Returns the audit's findings of cells of one table, by cell: a list for each of its rounds."""
        asked = [result.cell_id for result in results if result.status in ("ok", "oom")]
        rounds = load_rounds(self.path, table, asked) if asked else {}
        every = dict.fromkeys(one for cell_id in asked for one in rounds.get(cell_id, ()))
        if unread := tuple(one for one in every if one not in self._findings):
            self._findings |= load_findings(self.path, unread, table)
        return {cell_id: [self._findings.get(one, []) for one in rounds.get(cell_id, ())] for cell_id in asked}

    def lists(self, cell: Cell) -> bool:
        """Returns whether the file has a row of this cell with any effort that need not be tried again."""
        return self._key(cell) in self._keys

    @cached_property
    def _keys(self) -> frozenset[tuple[object, ...]]:
        results: list[Result] = [*self.every_step, *self.every_attention, *self.peaks]
        done = [result.cell for result in results if result.status in ("ok", "oom", "skipped")]
        others = [trace.cell for trace in self.traces if trace.cell and trace.status in ("ok", "oom", "skipped")]
        rows: list[Cell] = [*(one.row for one in self.sums), *(one.row for one in self.precisions)]
        return frozenset(self._key(cell) for cell in (*done, *others, *rows))

    @staticmethod
    def _key(cell: Cell) -> tuple[object, ...]:
        kind = cell.asked()
        table = next(table for table in TABLES.values() if table.key and table.cell is kind)
        return (kind.__name__, *(getattr(cell, name) for name in table.question))
