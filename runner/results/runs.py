"""Holds runs, machines, and the notes on runs and cells that were not taken back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from runner.schema import NoteKind


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What steps were measured on: `device` is cuda, cpu or mps."""

    device: str | None = None
    device_name: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run and how its cells ended. `given` is the name that somebody gave it later."""

    run_id: UUID
    machine: str
    started_at: datetime | None
    label: str | None
    preset: str | None
    argv: str | None
    torch: str | None
    device: str | None
    device_name: str | None
    device_memory_bytes: int | None
    git_commit: str | None
    git_dirty: bool | None
    source: str | None
    ok: int
    failed: int
    skipped: int
    given: str | None = None
    tags: tuple[str, ...] = ()

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
    """All notes of a file, by run and by cell, the oldest first. Of several names of a run, and of several baselines of
    a file, the latest counts."""

    notes: tuple[Note, ...] = ()
    of_cells: Mapping[UUID, tuple[str, ...]] = field(default_factory=dict)
    of_runs: Mapping[UUID, tuple[str, ...]] = field(default_factory=dict)
    tags: Mapping[UUID, tuple[str, ...]] = field(default_factory=dict)
    names: Mapping[UUID, str] = field(default_factory=dict)
    hidden: frozenset[UUID] = frozenset()
    baseline: UUID | None = None


def gather_notes(notes: tuple[Note, ...]) -> Notes:
    """Returns the notes, which are given oldest first, by the run or the cell that they are about."""

    def texts(kind: NoteKind, *, of_cells: bool) -> dict[UUID, tuple[str, ...]]:
        found: dict[UUID, tuple[str, ...]] = {}
        for note in notes:
            about = note.cell_id if of_cells else note.run_id
            if note.kind == kind and about is not None and (note.cell_id is not None) == of_cells:
                found[about] = tuple(dict.fromkeys((*found.get(about, ()), note.text)))
        return found

    baselines = [note.run_id for note in notes if note.kind == "baseline"]
    return Notes(
        notes=notes,
        of_cells=texts("note", of_cells=True),
        of_runs=texts("note", of_cells=False),
        tags=texts("tag", of_cells=False),
        names={note.run_id: note.text for note in notes if note.kind == "name"},
        hidden=frozenset(note.run_id for note in notes if note.kind == "hidden"),
        baseline=baselines[-1] if baselines else None,
    )
