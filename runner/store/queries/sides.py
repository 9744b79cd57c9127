"""The sides of a comparison that a file offers: its runs, labels, machines, commits, precisions and backends.

    known = load_sides(path)
    a, b = choose_pair(path, "precision") or (known["precision"][0], known["precision"][1])

Limits: a label, a machine or a commit may stand for several runs; `compare` defines which of their rows count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

import duckdb

from runner.analysis.compare.verdict import Kind, Side
from runner.schema import TABLES
from runner.schema.axes import SHAPE
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
        values = {kind: _load_values(reader, kind) for kind in ("precision", "backend")}
    order = {kind: TABLES["steps"].column(kind).choices for kind in values}
    return {
        "run": tuple(_make_run_side(run, notes.names.get(run.run_id)) for run in runs),
        "label": _make_sides("label", [run.label for run in runs]),
        "machine": _make_sides("machine", [run.machine for run in runs]),
        "commit": _make_sides("commit", [run.git_commit for run in runs]),
        "precision": _make_sides("precision", sorted(values["precision"], key=order["precision"].index)),
        "backend": _make_sides("backend", sorted(values["backend"], key=order["backend"].index)),
    }


def _load_values(reader: duckdb.DuckDBPyConnection, kind: str) -> set[str]:
    """Returns the values of a column of the key."""
    tables = [name for name in _TABLES if kind in TABLES[name].key]
    query = " UNION ".join(f"SELECT {kind} FROM {name}" for name in tables)
    return {value for (value,) in reader.execute(query).fetchall()}


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


#: The cells with a result of sides in an order, and what a partner on another side shares with each.
_ASKED = "asked AS MATERIALIZED (SELECT DISTINCT side, shared FROM ({}) WHERE list_contains($order, side))"
#: The first side that shares cells with another, and the one that shares the most with it.
_PAIR = f"""
    WITH {_ASKED}, first AS (
        SELECT side FROM asked SEMI JOIN (SELECT shared FROM asked GROUP BY shared HAVING count(*) > 1) USING (shared)
        ORDER BY list_position($order, side) LIMIT 1)
    SELECT first.side, other.side FROM first JOIN asked own USING (side) JOIN asked other USING (shared)
    WHERE other.side <> first.side GROUP BY first.side, other.side
    ORDER BY count(*) DESC, list_position($order, other.side) LIMIT 1"""
#: The first side that shares a cell with the baseline.
_SINCE = f"""
    WITH {_ASKED} SELECT $baseline, side FROM asked SEMI JOIN (FROM asked WHERE side = $baseline) USING (shared)
    WHERE side <> $baseline ORDER BY list_position($order, side) LIMIT 1"""


def _select_asked(kind: Kind) -> str:
    """Returns a query for the sides of the cells with a result, and for what partners share: all of the key but what is
    compared. Versions of an own model are partners."""
    side = {"run": "s.run_id", "label": "r.label", "machine": MACHINE, "commit": "r.git_commit"}.get(kind, f"s.{kind}")
    same = {"commit": [MACHINE], "precision": [MACHINE, "r.torch"], "backend": [MACHINE, "r.torch"]}.get(kind, [])
    left_out = (kind, "model_key", "compile_cache") if kind == "backend" else (kind, "model_key")
    found = []
    for table in (TABLES[name] for name in _TABLES if kind in OF_RUNS or kind in TABLES[name].key):
        versions = SHAPE if "model_key" in table.key else ()
        shared = [
            f"CASE WHEN s.model_key IS NULL THEN s.{name} END" if name in versions else f"s.{name}"
            for name in table.key
            if name not in left_out
        ]
        found.append(
            f"""SELECT CAST({side} AS VARCHAR) AS side, hash('{table.name}', {", ".join([*same, *shared])}) AS shared
            FROM {table.name} s LEFT JOIN runs r USING (run_id)
            WHERE s.status = 'ok' AND NOT list_contains($hidden, s.run_id)"""
        )
    return " UNION ALL ".join(found)


def find_since_baseline(path: Path) -> tuple[Side, Side] | None:
    """Returns the pinned baseline and the latest run that shares cells with it; None without either."""
    notes = load_notes(path)
    return _find(path, "run", _SINCE, baseline=str(notes.baseline)) if notes.baseline else None


def choose_sides(path: Path) -> tuple[Side, Side] | None:
    """Returns the default comparison: the pinned baseline and the latest run that shares cells with it, or two runs,
    precisions or backends that share cells; None where nothing does."""
    kinds: tuple[Kind, ...] = ("run", "precision", "backend")
    return find_since_baseline(path) or next((pair for kind in kinds if (pair := choose_pair(path, kind))), None)


def choose_pair(path: Path, kind: Kind) -> tuple[Side, Side] | None:
    """Returns two sides of a kind that share cells: the latest of runs, labels, machines or commits and the one that
    shares the most with it, which is A; the first precision or backend, which is A, and the one that shares the most
    with it. None where no two share a cell."""
    found = _find(path, kind, _PAIR)
    return found[::-1] if found and kind in OF_RUNS else found


def _find(path: Path, kind: Kind, query: str, **more: str) -> tuple[Side, Side] | None:
    """Returns the two sides that a query finds."""
    sides = {side.value: side for side in load_sides(path)[kind]}
    parameters = {"order": list(sides), "hidden": sorted(load_notes(path).hidden), **more}
    with open_reader(path) as reader:
        found = reader.execute(query.format(_select_asked(kind)), parameters).fetchone()
    return (sides[found[0]], sides[found[1]]) if found else None
