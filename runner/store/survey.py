"""What a results file holds, looked through once for each state of it: columns, rows that break the contract, tables
that can no longer be read.

    >>> survey(path, deadline=time.monotonic() + 2).left_out
    {'steps': 3}

A million samples take 0.1 s; of a table that has only grown since, the new rows are looked at. Limits: rows that
somebody changes in place while a sweep adds others are noticed by the next process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb

from runner.schema import TABLES, Table
from runner.store.attached import (
    attach,
    connect,
    foreign,
    is_damage,
    is_stepscope,
    literal,
    present,
    reason,
    select_stored_rows,
)
from runner.store.contract import is_short, valid

NO_RUNS = "SELECT NULL::UUID WHERE false"


@dataclass(frozen=True, kw_only=True)
class Survey:
    """`stored` are the tables and their columns, `rows` how many each has, `left_out` how many of them break the
    contract, `damaged` the reasons why tables cannot be read, `published` a query of the runs with that source."""

    stored: Mapping[str, frozenset[str]] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    damaged: Mapping[str, str] = field(default_factory=dict)
    published: str = NO_RUNS

    def readable(self) -> "Survey":
        """The same without the damaged tables, as if the file did not have them."""
        stored = {name: columns for name, columns in self.stored.items() if name not in self.damaged}
        return replace(self, stored=stored, damaged={})


_known: dict[Path, tuple[tuple[Any, ...], Survey]] = {}


def survey(path: Path, *, deadline: float) -> Survey:
    """Looks through the file, unless this process has and it is as it was. Raises DatabaseBusy, DatabaseForeign."""
    state = _state(path)
    known_state, known = _known.get(path, (None, Survey()))
    if known_state == state:
        return known
    before = known if known_state and known_state[0] == state[0] else Survey()
    damaged: dict[str, str] = {}
    while (found := _look(path, before, damaged, deadline=deadline)) is None:
        before = Survey()
    _known[path] = state, found
    return found


def _state(path: Path) -> tuple[Any, ...]:
    """What changes with the file: its identity first."""
    states: list[Any] = []
    for file in (path, path.with_name(path.name + ".wal")):
        known = file.stat() if file.exists() else None
        states += [known.st_ino, known.st_size, known.st_mtime_ns] if known else [None]
    return tuple(states)


def _look(path: Path, before: Survey, damaged: dict[str, str], *, deadline: float) -> Survey | None:
    """Looks at all tables but those in `damaged`; None when another one joined them, which ends the connection."""
    name = ""
    try:
        with connect(path) as con, attach(con, path, access="READ_ONLY", deadline=deadline):
            stored = {table: frozenset(columns) for table, columns in present(con, path).items()}
            if not is_stepscope(stored):
                raise foreign(path, "it holds no results")
            rows, left_out = _totals(con, stored), dict[str, int]()
            published = before.published
            start = dict(before.rows) if rows != before.rows and not before.left_out else {}
            for name in [table for table in TABLES if rows.get(table, 0) > start.get(table, 0)]:
                if name in damaged:
                    continue
                if name == "runs":
                    published = _published(con, stored[name])
                bad = _count(con, TABLES[name], stored[name], published=published, start=start.get(name, 0))
                left_out |= {name: bad} if bad else {}
    except (duckdb.Error, UnicodeDecodeError) as error:
        if not is_damage(error):
            raise
        if not name:
            raise foreign(path, reason(error)) from error
        damaged[name] = reason(error)
        return None
    return Survey(stored=stored, rows=rows, left_out=left_out, damaged=damaged, published=published)


def _totals(con: duckdb.DuckDBPyConnection, stored: Mapping[str, frozenset[str]]) -> dict[str, int]:
    counts = ", ".join(f"(SELECT count(*) FROM file.main.{name})" for name in stored)
    return dict(zip(stored, con.execute(f"SELECT {counts}").fetchone() or (), strict=True))


def _published(con: duckdb.DuckDBPyConnection, columns: frozenset[str]) -> str:
    if "source" not in columns:
        return NO_RUNS
    found = con.execute("SELECT run_id FROM file.main.runs WHERE source = 'published'").fetchall()
    return runs_query([str(run_id) for (run_id,) in found])


def runs_query(ids: Sequence[str]) -> str:
    """A query of these runs, written out."""
    return " UNION ALL ".join(f"SELECT {literal(run_id)}::UUID" for run_id in sorted(set(ids))) or NO_RUNS


def _count(con: duckdb.DuckDBPyConnection, table: Table, columns: frozenset[str], *, published: str, start: int) -> int:
    """How many rows from `start` on break the contract. Reads every column, so that damage shows."""
    good = f"({valid(table, published=published)}) AND {is_short(table)}"
    rows = f"{select_stored_rows(table, columns)} WHERE rowid >= {start}"
    (bad,) = con.execute(f"SELECT count(*) - count(*) FILTER ({good}) FROM ({rows})").fetchone() or (0,)
    return int(bad)
