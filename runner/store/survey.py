"""What a results file holds, examined once for each state of it: its columns, the rows that break the contract, and the
tables that can no longer be read.

    >>> survey(path, deadline=time.monotonic() + 2).left_out
    {'steps': 3}

Ten million samples take 0.2 s; of a table that has only grown since, only new rows are examined. The first reader of a
file examines all of it, on a connection that ends with that: DuckDB keeps what it has read, up to the file's size.
Limits: rows that somebody changes in place while a sweep adds others are noticed by the next process.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection

from runner.schema import TABLES
from runner.store.attached import (
    attach,
    connect,
    foreign_error,
    format_reason,
    is_damage,
    is_stepscope,
    load_columns,
    quote,
    select_stored_rows,
)
from runner.store.contract import count_invalid
from runner.store.shared import Taken, spilling, take_connection

NO_RUNS = "SELECT NULL::UUID WHERE false"


@dataclass(frozen=True, kw_only=True)
class Survey:
    """`stored` has the columns by table, `rows` the number of rows, `left_out` how many of them break the contract,
    `damaged` the reasons why tables cannot be read; `published` is a query of the published runs, `runs` the ids of
    all. Since the state of the file `origin`, when all of it was examined, rows have only been added. Of several
    files, `broken` are those that are left out, by name, with the reason."""

    stored: Mapping[str, frozenset[str]] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    damaged: Mapping[str, str] = field(default_factory=dict)
    published: str = NO_RUNS
    runs: frozenset[str] = frozenset()
    origin: str = ""
    broken: Mapping[str, str] = field(default_factory=dict)

    def readable(self) -> "Survey":
        """Returns the survey as if the file did not have the damaged tables."""
        stored = {name: columns for name, columns in self.stored.items() if name not in self.damaged}
        return replace(self, stored=stored, damaged={})


_known: dict[Path, tuple[tuple[Any, ...], Survey]] = {}


def survey(path: Path, *, deadline: float, taken: Taken | None = None) -> Survey:
    """Examines the file, unless this process has and it has not changed. Raises DatabaseBusy, DatabaseForeign.

    New rows are examined on a connection with nothing attached: `taken`, which is opened anew where damage ends it, or
    one of its own."""
    state = _state(path)
    known_state, known = _known.get(path, (None, Survey()))
    if known_state == state:
        return known
    damaged: dict[str, str] = {}
    result = None
    if known.rows and known_state and known_state[0] == state[0]:
        with contextlib.nullcontext(taken) if taken else take_connection(path) as used:
            result = _examine(path, used.con, known, damaged, deadline=deadline)
            if result is None:
                used.reopen()
    result = result or _examine_all(path, damaged, deadline=deadline)
    if not result.origin:
        result = replace(result, origin=f"{path} {state}")
    _known[path] = state, result
    return result


def _examine_all(path: Path, damaged: dict[str, str], *, deadline: float) -> Survey:
    """Examines every row, within the memory of a reader or, where a long text needs more, without a limit."""
    limits = spilling()
    while True:
        try:
            with connect(path, limits=limits) as con:
                if found := _examine(path, con, Survey(), damaged, deadline=deadline):
                    return found
        except duckdb.OutOfMemoryException:
            if not limits:
                raise
            limits = ()


def _state(path: Path) -> tuple[Any, ...]:
    """Returns what changes with the file: its identity first."""
    states: list[Any] = []
    for file in (path, path.with_name(path.name + ".wal")):
        known = file.stat() if file.exists() else None
        states += [known.st_ino, known.st_size, known.st_mtime_ns] if known else [None]
    return tuple(states)


def _examine(
    path: Path, con: DuckDBPyConnection, before: Survey, damaged: dict[str, str], *, deadline: float
) -> Survey | None:
    """Examines all tables but those in `damaged`; None when another one joined them, which ends the connection."""
    name = ""
    try:
        with attach(con, path, access="READ_ONLY", deadline=deadline):
            stored = {table: frozenset(columns) for table, columns in load_columns(con, path).items()}
            if not is_stepscope(stored):
                raise foreign_error(path, "it holds no results")
            counts = ", ".join(f"(SELECT count(*) FROM file.main.{table})" for table in stored)
            rows = dict(zip(stored, con.execute(f"SELECT {counts}").fetchone() or (), strict=True))
            left_out, published, runs = dict[str, int](), before.published, before.runs
            start = dict(before.rows) if rows != before.rows and not before.left_out else {}
            has_grown = bool(start) and all(rows.get(table, 0) >= count for table, count in start.items())
            for name in [table for table in TABLES if rows.get(table, 0) > start.get(table, 0)]:
                if name in damaged:
                    continue
                if name == "runs":
                    published = _select_published(con, stored[name])
                    runs = frozenset(str(run) for (run,) in con.execute("SELECT run_id FROM file.main.runs").fetchall())
                # All columns are read, so that damage shows.
                new = f"({select_stored_rows(TABLES[name], stored[name])} WHERE rowid >= {start.get(name, 0)})"
                invalid = count_invalid(con, TABLES[name], new, published=published)
                left_out |= {name: invalid} if invalid else {}
    except (duckdb.Error, UnicodeDecodeError) as error:
        if not is_damage(error):
            raise
        if not name:
            raise foreign_error(path, format_reason(error)) from error
        damaged[name] = format_reason(error)
        return None
    return Survey(
        stored=stored,
        rows=rows,
        left_out=left_out,
        damaged=damaged,
        published=published,
        runs=runs,
        origin=before.origin if has_grown else "",
    )


def _select_published(con: DuckDBPyConnection, columns: frozenset[str]) -> str:
    if "source" not in columns:
        return NO_RUNS
    runs = con.execute("SELECT run_id FROM file.main.runs WHERE source = 'published'").fetchall()
    return select_runs([str(run_id) for (run_id,) in runs])


def select_runs(ids: Sequence[str]) -> str:
    """Returns a query whose rows are these ids."""
    return " UNION ALL ".join(f"SELECT {quote(run_id)}::UUID" for run_id in sorted(set(ids))) or NO_RUNS
