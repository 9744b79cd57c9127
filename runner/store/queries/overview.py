"""What is in this file: its machines and runs, and what can be chosen in it.

summary = contents(path)
print([run.label for run in summary.runs], summary.shapes)
"""

from dataclasses import dataclass
from pathlib import Path

from runner.results import RunSummary
from runner.schema import TABLES, Shape
from runner.store.cells import EVERY_CELL
from runner.store.contract import is_stated
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch
from runner.store.queries.selection import MACHINE


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Everything that the file's cells can be narrowed to. `edition` names this state of the data: it is
    the same for a copy of the file on another machine."""

    runs: tuple[RunSummary, ...]
    shapes: tuple[Shape, ...]
    contexts: tuple[int, ...]
    precisions: tuple[str, ...]
    backends: tuple[str, ...]
    modes: tuple[str, ...]
    edition: str

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines, the one that measured last first, and behind them those whose recordings were imported."""
        measured_first = sorted(self.runs, key=lambda run: run.source == "imported")
        return tuple(dict.fromkeys(run.machine for run in measured_first))


_RUNS = f"""
    SELECT r.run_id, {MACHINE} AS machine, r.started_at, r.label, r.preset, r.argv, r.torch, r.device, r.device_name,
        r.device_memory_bytes, r.git_commit, r.git_dirty, r.source, count(s.cell_id) FILTER (s.status = 'ok') AS ok,
        count(s.cell_id) FILTER (s.status NOT IN ('ok', 'skipped')) AS failed,
        count(s.cell_id) FILTER (s.status = 'skipped') AS skipped
    FROM runs r LEFT JOIN ({EVERY_CELL}) s USING (run_id) GROUP BY ALL ORDER BY r.run_id DESC"""


_MODELS = tuple(table for table in TABLES.values() if issubclass(table.row, Shape))
_MODEL_CELLS = " UNION ALL ".join(
    f"SELECT d_model, d_ff, layers, heads, vocabulary, context, precision FROM {table.name} WHERE {is_stated(table)}"
    for table in _MODELS
    if {"context", "precision"} <= {*table.key}
)
_BACKENDS = " UNION ALL ".join(
    f"SELECT backend, mode FROM {table.name}" for table in _MODELS if {"backend", "mode"} <= {*table.key}
)
_SHAPES = f"""
    SELECT DISTINCT d_model, d_ff, layers, heads, vocabulary FROM ({_MODEL_CELLS})
    ORDER BY d_model * d_model * layers, d_model, layers, d_ff, heads, vocabulary"""

_CHOICES = f"""
    SELECT (SELECT list_sort(list(DISTINCT context)) FROM ({_MODEL_CELLS})),
        (SELECT list(DISTINCT precision) FROM ({_MODEL_CELLS})),
        (SELECT list(DISTINCT backend) FROM ({_BACKENDS}) WHERE backend IS NOT NULL),
        (SELECT list(DISTINCT mode) FROM ({_BACKENDS}) WHERE mode IS NOT NULL),
        (SELECT substr(md5(count(*) || ' ' || coalesce(max(cell_id)::VARCHAR, '') || ' ' ||
            (SELECT count(*) FROM runs)), 1, 8) FROM ({EVERY_CELL}))"""


def runs(path: Path) -> list[RunSummary]:
    """Every run in the file, newest first."""
    with open_reader(path) as reader:
        return fetch(reader, _RUNS, kind=RunSummary)


def contents(path: Path) -> Contents:
    """What the file holds, of tables that can be read; lists are ordered as they are shown."""
    with open_reader(path, damaged="empty") as reader:
        found = fetch(reader, _RUNS, kind=RunSummary)
        shapes = fetch(reader, _SHAPES, kind=Shape)
        choices = reader.execute(_CHOICES).fetchone()
    assert choices is not None
    contexts, precisions, backends, modes, edition = choices
    return Contents(
        runs=tuple(found),
        shapes=tuple(shapes),
        contexts=tuple(contexts or ()),
        precisions=tuple(precisions or ()),
        backends=tuple(backends or ()),
        modes=tuple(modes or ()),
        edition=edition,
    )
