"""The contents of a file: its machines and runs with their names and notes, the values of its filters, and the progress
of a running sweep.

summary = load_contents(path)
print([run.label for run in summary.runs], summary.shapes)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from runner.errors import UsageError
from runner.results.rows import Note, Notes, RunSummary, gather_notes
from runner.schema import TABLES, Model, RunRow, utc_now
from runner.schema.axes import MODEL
from runner.store.contract import is_stated
from runner.store.database import open_reader
from runner.store.read.selection import FILTERS, MACHINE, Selection, fetch, select
from runner.store.spool import STALE_S
from runner.store.sql import EVERY_CELL


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents of a file. `runs` measured or recorded something here or elsewhere and are not hidden; `published`
    are those of tables that others published, which have no cells and no machine of this file. `choices` are the values
    of each filter but `size`, whose values are the `shapes`. `edition` names this state of the data; it is the same for
    a copy of the file on another machine."""

    runs: tuple[RunSummary, ...]
    published: tuple[RunSummary, ...]
    shapes: tuple[Model, ...]
    choices: Mapping[str, tuple[Any, ...]]
    edition: str
    notes: Notes = field(default_factory=Notes)

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines, the last to measure first, and then the machines of imported recordings."""
        return tuple(dict.fromkeys(run.machine for run in sorted(self.runs, key=lambda run: run.source == "imported")))

    def select(self, machine: str | None = None, run: UUID | None = None) -> Selection:
        """Returns the rows of a machine, of the last that measured where none is named, and of a run where one is;
        hidden runs do not count. Raises UsageError for a machine that the file does not have."""
        if machine and machine not in self.machines:
            raise UsageError(
                f"No rows were measured on {machine!r}.",
                expected=f"one of {', '.join(map(repr, self.machines))}" if self.machines else "",
                do="" if self.machines else "Measure some: python -m runner sweep.",
            )
        machine = machine or next(iter(self.machines), None)
        return Selection(machine=machine, run=run, hidden=tuple(sorted(self.notes.hidden)))


_RUNS = f"""
    SELECT {select(RunRow, "r.")}, {MACHINE} AS machine, count(s.cell_id) FILTER (s.status = 'ok') AS ok,
        count(s.cell_id) FILTER (s.status NOT IN ('ok', 'skipped')) AS failed,
        count(s.cell_id) FILTER (s.status = 'skipped') AS skipped
    FROM runs r LEFT JOIN ({EVERY_CELL}) s USING (run_id) GROUP BY ALL ORDER BY r.run_id DESC"""

_MODELS = tuple(table for table in TABLES.values() if issubclass(table.row, Model))


def _select(*names: str) -> str:
    """Returns a query for columns of every model's cells that have them. The modes of memory cells, which have no
    backend, are left out: their page has its own chooser."""
    wanted = {*names, "backend"} if "mode" in names else {*names}
    return " UNION ALL ".join(
        f"SELECT {', '.join(names)} FROM {table.name} WHERE {is_stated(table)}"
        for table in _MODELS
        if wanted <= {*table.key}
    )


_SHAPES = f"""
    SELECT DISTINCT {", ".join(MODEL)} FROM ({_select(*MODEL)})
    ORDER BY model_key IS NOT NULL, model, model_key, d_model * d_model * layers, d_model, layers, d_ff, heads,
        vocabulary"""

_VALUES = {
    name: f"SELECT DISTINCT {name} FROM ({_select(name)}) WHERE {name} IS NOT NULL ORDER BY 1"
    for name in FILTERS
    if name != "size"
}
_EDITION = f"""
    SELECT substr(md5(count(*) || ' ' || coalesce(max(cell_id)::VARCHAR, '') || ' ' ||
        (SELECT count(*) FROM runs)), 1, 8) FROM ({EVERY_CELL})"""


def load_runs(path: Path, of: Selection | None = None) -> list[RunSummary]:
    """Returns every run in the file, newest first; published ones, whose ids have no time, last. No filter applies."""
    notes = load_notes(path)
    with open_reader(path) as reader:
        return [_with_name(run, notes) for run in fetch(reader, _RUNS, kind=RunSummary)]


def _with_name(run: RunSummary, notes: Notes) -> RunSummary:
    """Returns the run with the name and the tags that somebody gave it, and whether it is hidden."""
    given, tags = notes.names.get(run.run_id), notes.tags.get(run.run_id, ())
    return replace(run, given=given, tags=tags, is_hidden=run.run_id in notes.hidden)


def find_run(path: Path, words: str) -> RunSummary:
    """Returns the latest run of this label or name, or whose id begins so; the latest of all for an empty text.

    Raises UsageError if there is none."""
    known = load_runs(path)
    if not known:
        raise UsageError(f"There are no runs in {path}.", do="Measure some: python -m runner sweep")
    for run in known:
        if words in (run.label, run.given, run.name, run.run_id.hex[-6:]) or str(run.run_id).startswith(words):
            return run
    labels = ", ".join(run.label or str(run.run_id) for run in known[:5])
    raise UsageError(
        f"No run is called {words!r}.",
        expected=f"an id, its beginning, its last six digits or a label, such as {labels}",
        do="`stepscope show --help` names the questions.",
    )


def load_contents(path: Path) -> Contents:
    """Returns the contents of the tables that can be read, in the order of showing."""
    notes = load_notes(path)
    with open_reader(path, damaged="empty") as reader:
        (edition,) = reader.execute(_EDITION).fetchone() or ("",)
        runs = [_with_name(run, notes) for run in fetch(reader, _RUNS, kind=RunSummary)]
        shown = [run for run in runs if not run.is_hidden]
        return Contents(
            runs=tuple(run for run in shown if run.source != "published" or run.cells),
            published=tuple(run for run in runs if run.source == "published" and not run.cells),
            shapes=tuple(fetch(reader, _SHAPES, kind=Model)),
            choices={
                name: tuple(value for (value,) in reader.execute(query).fetchall()) for name, query in _VALUES.items()
            },
            edition=edition,
            notes=notes,
        )


_LIVE = """
    SELECT note_id, run_id, noted_cell_id AS cell_id, kind, coalesce(text, '') AS text, written_at FROM notes
    ANTI JOIN (SELECT removed_note_id AS note_id FROM notes WHERE kind = 'removal') USING (note_id)
    WHERE kind <> 'removal' ORDER BY note_id"""
_ID = re.compile(r"[0-9a-f]{4,32}")
_BEGUN = f"""
    SELECT run_id, cell_id FROM (SELECT run_id, NULL::UUID AS cell_id FROM runs UNION
        SELECT run_id, cell_id FROM ({EVERY_CELL}))
    WHERE starts_with(replace(coalesce(cell_id, run_id)::VARCHAR, '-', ''), $beginning)
        OR (cell_id IS NULL AND right(run_id::VARCHAR, 6) = $beginning)"""


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
    """Returns the run of this id, label or given name, or the cell of this id; the beginning of an id is enough, or the
    last six digits of a run's.

    Raises UsageError for none and for several."""
    names, beginning = load_notes(path).names, words.strip().replace("-", "").lower()
    with open_reader(path) as reader:
        labeled = reader.execute("SELECT run_id FROM runs WHERE label = ? ORDER BY run_id DESC", [words]).fetchall()
        named = [run_id for run_id, name in names.items() if name == words]
        begun = fetch(reader, _BEGUN, {"beginning": beginning}, kind=Subject) if _ID.fullmatch(beginning) else []
    found = [Subject(run_id=run_id) for run_id in named or [run for (run,) in labeled[:1]]] or begun
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} runs and cells begin so" if found else "no run or cell is called so"
    raise UsageError(
        f"{words!r}: {what}.",
        expected="the id of a run or a cell or its beginning, or a run's label or name",
        do="`python -m runner show runs` lists the runs; a page's address and its tables have the ids of cells.",
    )


@dataclass(frozen=True, kw_only=True)
class SweepProgress:
    """One sweep with unfinished cells. `seconds_left` is its own prediction, scaled by the errors of its earlier
    ones; `argv` is the command that goes on with it."""

    run_id: UUID
    done: int
    total: int
    failed: int
    current: str | None
    waiting: tuple[str, ...]
    seconds_left: float | None
    heartbeat_at: datetime | None
    argv: str | None = None

    def is_alive(self, *, now: datetime | None = None) -> bool:
        beat_at = self.heartbeat_at
        return beat_at is not None and ((now or utc_now()) - beat_at).total_seconds() <= STALE_S


_PROGRESS = """
    SELECT run_id, count(*) FILTER (state = 'done') AS done, count(*) AS total,
        count(*) FILTER (state = 'done' AND status NOT IN ('ok', 'skipped')) AS failed,
        any_value(title) FILTER (state = 'running') AS current,
        coalesce(list(title ORDER BY position) FILTER (state = 'waiting'), []) AS waiting,
        CASE WHEN count(*) FILTER (state <> 'done' AND seconds IS NULL) = 0
            THEN sum(seconds) FILTER (state <> 'done')
            ELSE avg(seconds) FILTER (state = 'done') * count(*) FILTER (state <> 'done') END AS seconds_left,
        max(p.heartbeat_at) AS heartbeat_at, any_value(r.argv) AS argv
    FROM plan p LEFT JOIN runs r USING (run_id) GROUP BY run_id
    HAVING count(*) FILTER (state <> 'done') > 0 ORDER BY max(p.heartbeat_at) DESC"""


def load_progress(path: Path) -> list[SweepProgress]:
    """Returns every sweep with unfinished cells, the latest heartbeat first."""
    with open_reader(path) as reader:
        return fetch(reader, _PROGRESS, kind=SweepProgress)
