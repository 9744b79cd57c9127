"""Notes on runs and cells: add one, take it back, list them.

python -m runner note nightly "the fan was broken"
python -m runner note nightly --name "before the driver update" --tag h200 --baseline
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args
from uuid import UUID

from runner.cli.terminal import Terminal, new_grid
from runner.errors import UsageError
from runner.formats import visible
from runner.results.rows import Note
from runner.schema import NoteKind, NoteRow, new_id, utc_now
from runner.store.database import ingest
from runner.store.read.runs import Subject, find_subject, load_notes
from runner.store.spool import Spool

#: The longest note, and the longest name or tag, in letters.
MAX_NOTE, MAX_NAME = 2_000, 60
#: How long a note waits for the file; it is in the spool and counts in any case (s).
_PATIENCE_S = 2.0


def note(
    console: Terminal,
    about: str,
    texts: Mapping[Any, str],
    marks: Sequence[Any],
    *,
    remove: bool,
    db: Path,
    as_json: bool,
) -> None:
    """Adds, takes back or lists what is said of a run or a cell: a text by its kind, and kinds that have none. Raises
    UsageError for what is not there, too long or no use for a cell."""
    if not about:
        _print_notes(console, list(load_notes(db).notes), as_json=as_json)
        return
    subject, said = find_subject(db, about), [(kind, text) for kind, text in texts.items() if text]
    said += [(kind, "") for kind in marks]
    for kind, words in said:
        most = MAX_NOTE if kind == "note" else MAX_NAME
        if len(words) > most:
            raise UsageError(f"The {kind} has {len(words):,} letters.", expected=f"at most {most:,}")
        if subject.cell_id and kind != "note":
            raise UsageError(f"A cell has notes, but no {_WORDS[kind]}.", expected="a run", do="Name its run instead.")
    if not remove and (blank := next((kind for kind, text in said if text.isspace()), None)):
        raise UsageError(f"The {blank} is blank.", expected="a text")
    words = ""
    if remove:
        words = f"Taken back of {_name(subject)}: {_describe_all(_remove(subject, said, db=db))}."
    elif said:
        for kind, text in said:
            _write(db, subject, kind=kind, text=text)
        words = f"Noted of {_name(subject)}: {_describe_all(said)}."
    if words and not as_json:
        console.say(words)
    else:
        _print_notes(console, _load_about(db, subject), as_json=as_json)


def _write(db: Path, subject: Subject, *, kind: NoteKind, text: str = "", removed: UUID | None = None) -> None:
    row = NoteRow(
        note_id=new_id(),
        run_id=subject.run_id,
        noted_cell_id=subject.cell_id,
        kind=kind,
        text=text or None,
        removed_note_id=removed,
        written_at=utc_now(),
    )
    Spool(db).write({"notes": [row]}, str(row.note_id))
    ingest(db, patience_s=_PATIENCE_S)


def _remove(subject: Subject, said: Sequence[tuple[NoteKind, str]], *, db: Path) -> list[tuple[NoteKind, str]]:
    """Takes back what is said, or all notes where nothing is, and returns what was. Raises UsageError where there is
    nothing to take back."""
    own = _load_about(db, subject)
    wanted = [one for one in own if ((one.kind, one.text) in said if said else one.kind == "note")]
    if not wanted:
        raise UsageError(
            f"Nothing of the kind was said of {_name(subject)}.",
            expected=f"of {_describe_all([(one.kind, one.text) for one in own])}" if own else "a note that is there",
        )
    for one in wanted:
        _write(db, subject, kind="removal", removed=one.note_id)
    return [(one.kind, one.text) for one in wanted]


def _load_about(db: Path, subject: Subject) -> list[Note]:
    return [one for one in load_notes(db).notes if (one.run_id, one.cell_id) == (subject.run_id, subject.cell_id)]


def _name(subject: Subject) -> str:
    return f"cell {subject.cell_id}" if subject.cell_id else f"run {subject.run_id}"


#: What each kind is called.
_WORDS: Mapping[NoteKind, str] = {kind: "hiding" if kind == "hidden" else kind for kind in get_args(NoteKind)}


def _describe_all(said: Sequence[tuple[NoteKind, str]]) -> str:
    """Lists what is said: `name “before”, baseline`."""
    return ", ".join(f"{_WORDS[kind]} “{visible(text)}”" if text else _WORDS[kind] for kind, text in said)


def _print_notes(console: Terminal, notes: Sequence[Note], *, as_json: bool) -> None:
    if as_json:
        console.dump(list(map(asdict, notes)))
        return
    if not notes:
        console.say('There are no notes. Add one: python -m runner note RUN "what happened"')
        return
    grid = new_grid("written (UTC)", "of", "kind", "text")
    for one in notes:
        when = f"{one.written_at:%Y-%m-%d %H:%M}" if one.written_at else ""
        about = f"cell {one.cell_id}" if one.cell_id else f"run {one.run_id}"
        grid.add_row(when, about, _WORDS[one.kind], visible(one.text))
    console.print(grid)
