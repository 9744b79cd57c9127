"""The rows that answers are made of, by kind: those of one file and one selection (`runner.store.read`); the notes that
were not taken back."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from runner.results.cells import (
    AccumulationResult,
    AttentionResult,
    EarlyStep,
    Kernel,
    KernelTrace,
    NormalizationResult,
    Peak,
    PhaseSample,
    StepResult,
    Timeline,
)
from runner.results.findings import AuditedRow
from runner.results.published import PublishedTable
from runner.results.times import Clock, Noise, RepeatedCell
from runner.schema import Bound, CeilingRow, DtypeRow, NoteKind, NumericsRow, RunRow
from runner.schema.memory import FrontierRow, SavedTensorRow


@dataclass(frozen=True, kw_only=True)
class RunSummary(RunRow):
    """One run and how its cells ended. `given` is the name that somebody gave it later; rows of one that `is_hidden`
    do not count."""

    machine: str
    ok: int
    failed: int
    skipped: int
    given: str | None = None
    tags: tuple[str, ...] = ()
    is_hidden: bool = False

    @property
    def name(self) -> str:
        """What the run is called in the dashboard's filter and address, and in no other run of the file."""
        when = f"{self.started_at:%Y-%m-%d %H:%M}" if self.started_at else "undated"
        return " ".join(part for part in (when, self.given or self.label or self.preset, self.run_id.hex[-6:]) if part)

    @property
    def cells(self) -> int:
        return self.ok + self.failed + self.skipped


@dataclass(frozen=True, kw_only=True)
class Note:
    """One note, name, tag, pinned baseline or hidden run. `cell_id` is None for one about a run."""

    note_id: UUID
    run_id: UUID
    cell_id: UUID | None
    kind: NoteKind
    text: str
    written_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Notes:
    """All notes of a file, the oldest first: what is said of each cell and of each run. Of several names of a run, and
    of several baselines of a file, the latest counts."""

    notes: tuple[Note, ...] = ()
    of_cells: Mapping[UUID, tuple[str, ...]] = field(default_factory=dict)
    tags: Mapping[UUID, tuple[str, ...]] = field(default_factory=dict)
    names: Mapping[UUID, str] = field(default_factory=dict)
    hidden: frozenset[UUID] = frozenset()
    baseline: UUID | None = None


def gather_notes(notes: tuple[Note, ...]) -> Notes:
    """Returns the notes, which are given oldest first, by the run or the cell that they are about."""
    of_cells, tags = defaultdict[UUID, list[str]](list), defaultdict[UUID, list[str]](list)
    for note in notes:
        if note.kind == "note" and note.cell_id:
            of_cells[note.cell_id].append(note.text)
        if note.kind == "tag" and note.cell_id is None:
            tags[note.run_id].append(note.text)
    baselines = [note.run_id for note in notes if note.kind == "baseline"]
    return Notes(
        notes=notes,
        of_cells={cell_id: tuple(dict.fromkeys(texts)) for cell_id, texts in of_cells.items()},
        tags={run_id: tuple(dict.fromkeys(texts)) for run_id, texts in tags.items()},
        names={note.run_id: note.text for note in notes if note.kind == "name"},
        hidden=frozenset(note.run_id for note in notes if note.kind == "hidden"),
        baseline=baselines[-1] if baselines else None,
    )


@dataclass(frozen=True, kw_only=True)
class ImportedTrace:
    """One trace that somebody else recorded, with its kernels. Times are per step where `steps` is known, else of the
    whole recording."""

    cell_id: UUID
    title: str
    machine: str
    steps: int | None
    step_ms: float | None
    busy_ms: float | None
    kernels: tuple[Kernel, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CellHistory:
    """The times of a whole step of one cell on one machine over its runs, the oldest first, by each clock."""

    machine: str
    cell_key: str
    times: Mapping[Clock, tuple[float, ...]]


#: The fields of a step by which two sides can be compared.
OF_CELL = ("precision", "backend", "model", "attention", "optimizer", "weights_dtype")


@dataclass(frozen=True, kw_only=True)
class RunSteps:
    """One run and what it measured, whatever later runs measured again. Its cells are read when they are asked for:
    `load` returns those of some runs, by kind, and `pool` those of several runs as one, each over its rounds in all.
    `values` are those that its steps have in each field of OF_CELL; `common` counts the cells that earlier runs
    measured, too, by run, where the run is one of the latest."""

    run: RunSummary
    load: Callable[[], Mapping[UUID, Mapping[str, Sequence[Any]]]]
    pool: Callable[[tuple[UUID, ...]], Mapping[str, Sequence[Any]]] = field(default=lambda runs: {})
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    common: Mapping[UUID, int] = field(default_factory=dict)

    @cached_property
    def _cells(self) -> Mapping[str, Sequence[Any]]:
        return self.load().get(self.run.run_id, {})

    @property
    def steps(self) -> Sequence[StepResult]:
        return self._cells.get("steps", ())

    @property
    def attention(self) -> Sequence[AttentionResult]:
        return self._cells.get("attention", ())

    @property
    def peaks(self) -> Sequence[Peak]:
        return self._cells.get("peaks", ())


@dataclass(frozen=True, kw_only=True)
class SavedCell:
    """What the first block of a memory cell, or an attention cell, keeps for backward."""

    cell_id: UUID
    machine: str
    cell: Any
    tensors: tuple[SavedTensorRow, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Precise(NumericsRow):
    """One pass of a model in one precision, beside the reference: its errors, the dtypes read from it, and statistics
    of normalization over its residual streams."""

    machine: str
    dtypes: tuple[DtypeRow, ...] = ()
    normalization: tuple[NormalizationResult, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StepSpread:
    """The measured steps of one cell over its processes: how many, the least and the most time of one in ms. `samples`
    are all of its whole steps, for the cell whose times vary most of those that differ in model and context alone."""

    cell_id: UUID
    n: int
    least_ms: float
    most_ms: float
    samples: tuple[PhaseSample, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FrontierResult(FrontierRow):
    """The largest size that fits, with the machine that it was searched on."""

    machine: str


@dataclass(frozen=True, kw_only=True)
class MachineNoise:
    """The noise of the whole steps of one kind of cell of a table: those with one bound, by one clock. `device` is the
    GPU's own number where several of a machine measured."""

    table: str
    machine: str
    device: str = ""
    bound: Bound | None
    clock: Clock
    noise: Noise


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows by kind; empty for what a question does not need."""

    steps: tuple[StepResult, ...] = ()
    every_step: tuple[StepResult, ...] = ()
    attention: tuple[AttentionResult, ...] = ()
    peaks: tuple[Peak, ...] = ()
    #: The steps and peaks that come with Stepscope, unless the file is theirs.
    shipped: tuple[StepResult | Peak, ...] = ()
    traced: tuple[KernelTrace, ...] = ()
    runs: tuple[RunSummary, ...] = ()
    by_run: tuple[RunSteps, ...] = ()
    #: The latest run of a machine with steps, and the latest before it that measured some of the same, if any.
    latest: tuple[RunSteps, ...] = ()
    #: What several runs measured, the newest of them among them.
    history: tuple[CellHistory, ...] = ()
    saved: tuple[SavedCell, ...] = ()
    recorded: tuple[Timeline, ...] = ()
    imported: tuple[ImportedTrace, ...] = ()
    frontiers: tuple[FrontierResult, ...] = ()
    sums: tuple[AccumulationResult, ...] = ()
    precise: tuple[Precise, ...] = ()
    early: tuple[EarlyStep, ...] = ()
    spreads: tuple[StepSpread, ...] = ()
    noise: tuple[MachineNoise, ...] = ()
    repeated: tuple[RepeatedCell, ...] = ()
    ceilings: tuple[CeilingRow, ...] = ()
    audited: tuple[AuditedRow, ...] = ()
    published: tuple[PublishedTable, ...] = ()
