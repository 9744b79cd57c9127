"""The notes of a file that were not taken back, and the run or the cell that a person means.

notes = load_notes(path)
print(notes.names, notes.of_cells)
subject = find_subject(path, "01a2037e-c114")
"""

import re
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from runner.errors import UsageError
from runner.results.runs import Note, Notes, gather_notes
from runner.store.attached import EVERY_CELL
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch

_LIVE = """
    SELECT note_id, run_id, noted_cell_id AS cell_id, kind, coalesce(text, '') AS text, written_at FROM notes
    ANTI JOIN (SELECT removed_note_id AS note_id FROM notes WHERE kind = 'removal') USING (note_id)
    WHERE kind <> 'removal' ORDER BY note_id"""
_ID = re.compile(r"[0-9a-f]{4,32}")
_BEGINS = "starts_with(replace({}::VARCHAR, '-', ''), ?)"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a note is about: a run, or one of its cells."""

    run_id: UUID
    cell_id: UUID | None = None


def load_notes(path: Path) -> Notes:
    """Returns every note of the file that was not taken back."""
    with open_reader(path, damaged="empty") as reader:
        return gather_notes(tuple(fetch(reader, _LIVE, kind=Note)))


def find_subject(path: Path, words: str) -> Subject:
    """Returns the run of this id, label or given name, or the cell of this id; the beginning of an id is enough.

    Raises UsageError for none and for several."""
    names, beginning = load_notes(path).names, words.strip().replace("-", "").lower()
    is_id = bool(_ID.fullmatch(beginning))
    with open_reader(path) as reader:
        labeled = reader.execute("SELECT run_id FROM runs WHERE label = ? ORDER BY run_id DESC", [words]).fetchall()
        named = [run_id for run_id, name in names.items() if name == words]
        runs, cells = [], []
        if is_id:
            query = f"SELECT run_id FROM runs WHERE {_BEGINS.format('run_id')}"
            runs = [run_id for (run_id,) in reader.execute(query, [beginning]).fetchall()]
            query = f"SELECT DISTINCT run_id, cell_id FROM ({EVERY_CELL}) WHERE {_BEGINS.format('cell_id')}"
            cells = reader.execute(query, [beginning]).fetchall()
    found = [Subject(run_id=run_id) for run_id in runs] + [Subject(run_id=run, cell_id=cell) for run, cell in cells]
    found = [Subject(run_id=run_id) for run_id in named or [run for (run,) in labeled[:1]]] or found
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} runs and cells begin so" if found else "no run or cell is called so"
    raise UsageError(
        f"{words!r}: {what}.",
        expected="the id of a run or a cell or its beginning, or a run's label or name",
        do="`python -m runner list runs` lists the runs; a page's address and its tables have the ids of cells.",
    )
