"""Defines notes on runs and cells: notes, names, tags, the pinned baseline, hidden runs. Rows are only ever
added, so that files merge: taking back a note adds a row, too."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from uuid import UUID

from runner.schema.choices import NoteKind
from runner.schema.columns import Column
from runner.schema.tables import Table


@dataclass(frozen=True, kw_only=True)
class NoteRow:
    """One note on a run or one of its cells, or its removal."""

    note_id: Annotated[UUID, Column("Note", "", "This note (UUIDv7).")]
    run_id: Annotated[UUID, Column("Run", "", "The run that it is about, or that measured the cell.")]
    noted_cell_id: Annotated[UUID | None, Column("Noted cell", "", "The cell that it is about; none for a run.")] = None
    kind: Annotated[
        NoteKind,
        Column("Kind", "", "A note, the run's name, a tag, the pinned baseline, a hidden run, or what is taken back."),
    ] = "note"
    text: Annotated[str | None, Column("Text", "", "What was said: the note, the name or the tag.")] = None
    removed_note_id: Annotated[UUID | None, Column("Takes back", "", "The note that a removal takes back.")] = None
    written_at: Annotated[datetime | None, Column("Written", "", "When it was said (UTC).")] = None
    ingested_at: Annotated[datetime | None, Column("Ingested", "", "When the row reached this file (UTC).")] = None


TABLES = (
    Table(
        name="notes",
        row=NoteRow,
        unique=("note_id",),
        doc="What people said of runs and cells: notes, names, tags, the baseline, hidden runs; what they took back.",
    ),
)
