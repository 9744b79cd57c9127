"""The sides of a comparison that a file offers: its runs, labels, machines, commits, precisions and backends.

    known = load_sides(path)
    a, b = choose_sides(path) or (known["precision"][0], known["precision"][1])

Limits: a label, a machine or a commit may stand for several runs; `compare` defines which of their rows count.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

import duckdb

from runner.analysis.compare.verdict import Kind, Side
from runner.schema import TABLES
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch
from runner.store.queries.notes import load_notes
from runner.store.queries.selection import MACHINE

#: The kinds of sides that select runs; the others select values of a cell's key.
OF_RUNS: tuple[Kind, ...] = ("run", "label", "machine", "commit")
_TABLES = ("steps", "attention", "memory")
_RUNS = f"""
    SELECT run_id, started_at, label, preset, {MACHINE} AS machine, git_commit FROM runs r
    SEMI JOIN ({" UNION ALL ".join(f"SELECT run_id FROM {name}" for name in _TABLES)}) USING (run_id)
    ORDER BY run_id DESC"""


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A run and its names."""

    run_id: UUID
    started_at: datetime | None
    label: str | None
    preset: str | None
    machine: str
    git_commit: str | None


def load_sides(path: Path) -> dict[Kind, tuple[Side, ...]]:
    """Returns all possible sides by kind, the latest first; precisions and backends in the schema's order."""
    notes = load_notes(path)
    with open_reader(path) as reader:
        runs = [run for run in fetch(reader, _RUNS, kind=_Run) if run.run_id not in notes.hidden]
        values = {kind: _count_values(reader, kind) for kind in ("precision", "backend")}
    order = {kind: TABLES["steps"].column(kind).choices for kind in values}
    return {
        "run": tuple(_make_run_side(run, notes.names.get(run.run_id)) for run in runs),
        "label": _make_sides("label", [run.label for run in runs]),
        "machine": _make_sides("machine", [run.machine for run in runs]),
        "commit": _make_sides("commit", [run.git_commit for run in runs]),
        "precision": _make_sides("precision", sorted(values["precision"], key=order["precision"].index)),
        "backend": _make_sides("backend", sorted(values["backend"], key=order["backend"].index)),
    }


def _count_values(reader: duckdb.DuckDBPyConnection, kind: str) -> Counter[str]:
    """Returns the values of a column of the key, and the number of rows with each."""
    found: Counter[str] = Counter()
    for table in _TABLES:
        if kind in TABLES[table].key:
            found.update(dict(reader.execute(f"SELECT {kind}, count(*) FROM {table} GROUP BY ALL").fetchall()))
    return found


def _make_sides(kind: Kind, values: Sequence[str | None]) -> tuple[Side, ...]:
    return tuple(
        Side(kind=kind, value=value, title=value[:10] if kind == "commit" else value)
        for value in dict.fromkeys(values)
        if value
    )


def _make_run_side(run: _Run, given: str | None) -> Side:
    when = f"{run.started_at:%Y-%m-%d %H:%M}" if run.started_at else "undated"
    title = f"{given or run.label or run.preset or 'run'} {run.run_id.hex[-6:]}"
    return Side(kind="run", value=str(run.run_id), title=title, when=when)


_ASKED = " UNION ALL ".join(f"SELECT run_id, cell_key, status FROM {table}" for table in _TABLES)
_SHARED = f"""
    WITH asked AS MATERIALIZED (
        SELECT DISTINCT run_id, cell_key FROM ({_ASKED})
        WHERE status = 'ok' AND NOT list_contains($hidden, run_id)),
    last_shared AS (SELECT max(last_run) AS run_id FROM (
        SELECT max(run_id) AS last_run FROM asked GROUP BY cell_key HAVING count(*) > 1))
    SELECT a.run_id, b.run_id FROM asked a JOIN (FROM asked SEMI JOIN last_shared USING (run_id)) b
        ON a.cell_key = b.cell_key AND a.run_id < b.run_id
    GROUP BY ALL ORDER BY count(*) DESC, a.run_id DESC LIMIT 1"""


#: The latest run that shares a cell with the baseline.
_SINCE = f"""
    WITH asked AS MATERIALIZED (
        SELECT DISTINCT run_id, cell_key FROM ({_ASKED})
        WHERE status = 'ok' AND NOT list_contains($hidden, run_id))
    SELECT max(run_id) FROM asked SEMI JOIN (FROM asked WHERE run_id = $baseline) USING (cell_key)
    WHERE run_id <> $baseline"""


def find_since_baseline(path: Path) -> tuple[Side, Side] | None:
    """Returns the pinned baseline and the latest run that shares cells with it; None without either."""
    notes = load_notes(path)
    if notes.baseline is None:
        return None
    with open_reader(path) as reader:
        found = reader.execute(_SINCE, {"hidden": sorted(notes.hidden), "baseline": notes.baseline}).fetchone()
    sides = {side.value: side for side in load_sides(path)["run"]}
    first, second = str(notes.baseline), str(found[0]) if found else ""
    return (sides[first], sides[second]) if first in sides and second in sides else None


def choose_sides(path: Path) -> tuple[Side, Side] | None:
    """Returns the default comparison: the pinned baseline and the latest run that shares cells with it, or the latest
    run that shares cells with another, and the run that shares the most
    with it. Where no runs share cells, the first precision or backend and the most frequent other one; None where there
    is nothing to compare."""
    if since := find_since_baseline(path):
        return since
    known, hidden = load_sides(path), sorted(load_notes(path).hidden)
    with open_reader(path) as reader:
        shared = reader.execute(_SHARED, {"hidden": hidden}).fetchone()
        counts = {kind: _count_values(reader, kind) for kind in ("precision", "backend")}
    if shared:
        by_id = {side.value: side for side in known["run"]}
        first, second = map(str, shared)
        return by_id[first], by_id[second]
    for kind in ("precision", "backend"):
        usual_one, *others = known[kind] or (None,)
        if usual_one and others:
            return usual_one, max(others, key=lambda side: counts[side.kind][side.value])
    return (known["run"][1], known["run"][0]) if len(known["run"]) > 1 else None
