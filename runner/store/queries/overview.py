"""The contents of a file: its machines, its runs, and the values of its filters.

summary = load_contents(path)
print([run.label for run in summary.runs], summary.shapes)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from runner.results import RunSummary
from runner.results.runs import Notes
from runner.schema import TABLES, Model, RunRow
from runner.schema.axes import MODEL
from runner.store.attached import EVERY_CELL
from runner.store.contract import is_stated
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch
from runner.store.queries.notes import load_notes
from runner.store.queries.raw import fetch_rows
from runner.store.queries.selection import FILTERS, MACHINE


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents of a file. `runs` measured or recorded something here or elsewhere and are not hidden; `published`
    are those of tables
    that others published, which have no cells and no machine of this file. `choices` are the values of each filter but
    `size`, whose values are the `shapes`. `edition` names this state of the data; it is the same for a copy of the file
    on another machine."""

    runs: tuple[RunSummary, ...]
    published: tuple[RunSummary, ...]
    shapes: tuple[Model, ...]
    choices: Mapping[str, tuple[Any, ...]]
    edition: str
    notes: Notes = field(default_factory=Notes)

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines, the last to measure first, and then the machines of imported recordings."""
        measured_first = sorted(self.runs, key=lambda run: run.source == "imported")
        return tuple(dict.fromkeys(run.machine for run in measured_first))


_RUNS = f"""
    SELECT r.run_id, {MACHINE} AS machine, r.started_at, r.label, r.preset, r.argv, r.torch, r.device, r.device_name,
        r.device_memory_bytes, r.git_commit, r.git_dirty, r.source, count(s.cell_id) FILTER (s.status = 'ok') AS ok,
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


def load_runs(path: Path) -> list[RunSummary]:
    """Returns every run in the file, newest first; published ones, whose ids have no time, last."""
    notes = load_notes(path)
    with open_reader(path) as reader:
        return [_with_name(run, notes) for run in fetch(reader, _RUNS, kind=RunSummary)]


def _with_name(run: RunSummary, notes: Notes) -> RunSummary:
    """Returns the run with the name and the tags that somebody gave it."""
    return replace(run, given=notes.names.get(run.run_id), tags=notes.tags.get(run.run_id, ()))


def load_run_details(path: Path, runs: Sequence[UUID]) -> list[RunRow]:
    """Returns all that is known of these runs, newest first."""
    with open_reader(path) as reader:
        return fetch_rows(reader, RunRow, "runs WHERE list_contains(?, run_id) ORDER BY run_id DESC", [list(runs)])


def load_contents(path: Path) -> Contents:
    """Returns the contents of the tables that can be read, in the order of showing."""
    notes = load_notes(path)
    with open_reader(path, damaged="empty") as reader:
        (edition,) = reader.execute(_EDITION).fetchone() or ("",)
        runs = [_with_name(run, notes) for run in fetch(reader, _RUNS, kind=RunSummary)]
        shown = [run for run in runs if run.run_id not in notes.hidden]
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
