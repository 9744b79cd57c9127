"""Holds the notes on runs and cells that were not taken back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from runner.schema import NoteKind


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
