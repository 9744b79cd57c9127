"""The evidence behind an answer: a query, the rows that it returns, and the rows that were left out, with reasons.

    found = of_cells(path, Scope(table="steps", machine="Example GPU · node1"), (cell_id,))
    print(found.sql, found.rows, found.left_out)

The queries need only the file. They run on the page SQL, and in any program that opens the file.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb

from runner.analysis.compare.environments import COLUMNS
from runner.schema import TABLES, Model
from runner.schema.axes import MODEL, SHAPE
from runner.store.database import open_reader
from runner.store.queries.counted import among, literal, select_counted, select_every
from runner.store.queries.selection import MACHINE, Selection

#: The most rows that a query returns.
MAX_ROWS = 1_000


@dataclass(frozen=True, kw_only=True)
class EvidenceScope:
    """The rows of a table from which cells come: those that count on a machine or in a run, or all with `latest`
    off."""

    table: str
    machine: str | None = None
    run: UUID | None = None
    hidden: tuple[UUID, ...] = ()
    latest: bool = True


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A query and its result of at most `MAX_ROWS` rows. The answer rests on `cells` of the `total` rows of the table
    `about`. `left_out` counts the other rows by reason, with the query `left_out_sql`. All four are None or empty where
    the query reads every row."""

    about: str
    sql: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    cells: int | None = None
    total: int | None = None
    left_out: tuple[tuple[str, int], ...] = ()
    left_out_sql: str = ""


def of_cells(path: Path, scope: EvidenceScope, cells: Sequence[UUID]) -> Evidence:
    """Returns the rows behind these cells, with their other rounds and their times."""
    with open_reader(path) as reader:
        base = _fill_counted(reader, scope, cells)
        reader.execute(
            """CREATE OR REPLACE TEMP TABLE meant AS
            SELECT * FROM counted SEMI JOIN (SELECT DISTINCT run_id, cell_key FROM counted
                WHERE list_contains(?, cell_id)) USING (run_id, cell_key)""",
            [list(cells)],
        )
        conditions = _find_conditions(reader, scope.table)
        sql = _write_rows_sql(reader, scope.table, base, conditions)
        left_out_sql = _write_left_out_sql(scope, base, conditions)
        count = reader.execute(f"SELECT (SELECT count(*) FROM meant), (SELECT count(*) FROM {scope.table})").fetchone()
        reader.execute("DROP TABLE counted")  # the rows shown are those that the query itself returns
        reader.execute("DROP TABLE meant")
        found = read_evidence(reader, sql, about=scope.table)
        left_out = tuple(reader.execute(left_out_sql).fetchall())
    assert count is not None
    return replace(found, cells=count[0], total=count[1], left_out=left_out, left_out_sql=left_out_sql)


def _fill_counted(reader: duckdb.DuckDBPyConnection, scope: EvidenceScope, cells: Sequence[UUID]) -> str:
    """Fills the table `counted` with the rows that count, and returns its query. Rows of every effort count where some
    of the cells were not measured with the preferred effort."""
    own = Selection(machine=scope.machine, run=scope.run, hidden=scope.hidden)
    queries = [select_counted(scope.table, replace(own, settled=settled)) for settled in (True, False)]
    for base in queries if scope.latest else [select_every(scope.table)]:
        reader.execute(f"CREATE OR REPLACE TEMP TABLE counted AS {base}")
        found = reader.execute("SELECT count(*) FROM counted WHERE list_contains(?, cell_id)", [list(cells)]).fetchone()
        if found == (len(set(cells)),):
            break
    return base


@dataclass(frozen=True, kw_only=True)
class _Condition:
    """A condition in SQL that holds for all of the answer's rows, and the reason for leaving out a row without it."""

    sql: str
    why: str


def _find_conditions(reader: duckdb.DuckDBPyConnection, table: str) -> list[_Condition]:
    """Returns the values of config fields that only the answer's rows have, and the cells themselves where these values
    are not enough."""
    names = ["machine", *TABLES[table].question]
    sized = issubclass(TABLES[table].row, Model)
    plain = [name for name in names if not (sized and name in MODEL)]
    listed = ", ".join(f"list_sort(list(DISTINCT {name}))" for name in plain)
    meant, held = (reader.execute(f"SELECT {listed} FROM {name}").fetchone() for name in ("meant", "counted"))
    assert meant is not None
    assert held is not None
    found = [
        _Condition(sql=among(f"c.{name}", values), why=f"'{name} is ' || coalesce(c.{name}::VARCHAR, 'unknown')")
        for name, values, all_values in zip(plain, meant, held, strict=True)
        if values != all_values and values
    ]
    if sized:
        found += _find_shapes(reader)
    rest: tuple[tuple[tuple[str, ...], str], ...] = (
        (("cell_key",), "'no part of this answer'"),
        (("run_id", "cell_key"), "'of another run'"),
    )
    for columns, why in rest:
        where = " AND ".join(condition.sql for condition in found) or "true"
        more = reader.execute(f"SELECT 1 FROM counted c ANTI JOIN meant USING (cell_id) WHERE {where} LIMIT 1")
        if more.fetchone():
            found.append(_Condition(sql=_match_rows(reader, columns), why=why))
    return found


def _find_shapes(reader: duckdb.DuckDBPyConnection) -> list[_Condition]:
    names = ", ".join((*SHAPE, "model_key"))
    meant, held = (
        reader.execute(f"SELECT DISTINCT {names} FROM {table} ORDER BY ALL").fetchall()
        for table in ("meant", "counted")
    )
    if meant == held or not meant:
        return []
    why = "coalesce('model is ' || c.model, 'size is d_model ' || c.d_model || ', ' || c.layers || ' layers')"
    own = [row[-1] for row in meant if row[-1] is not None]
    of_shapes = [_match_rows(reader, SHAPE, where="model_key IS NULL")] if len(own) < len(meant) else []
    if any(row[-1] is not None for row in held):
        of_shapes = [f"(c.model_key IS NULL AND {sql})" for sql in of_shapes]
    of_own = [among("c.model_key", own)] if own else []
    return [_Condition(sql=f"({' OR '.join(parts)})" if len(parts := of_shapes + of_own) > 1 else parts[0], why=why)]


def _match_rows(reader: duckdb.DuckDBPyConnection, names: Sequence[str], *, where: str = "true") -> str:
    """Returns the condition that several columns together have the values of one of the answer's rows."""
    rows = reader.execute(f"SELECT DISTINCT {', '.join(names)} FROM meant WHERE {where} ORDER BY ALL").fetchall()
    if len(names) == 1:
        return among(f"c.{names[0]}", [row[0] for row in rows])
    values = ", ".join("(" + ", ".join(map(literal, row)) + ")" for row in rows)
    return f"({', '.join(f'c.{name}' for name in names)}) IN ({values})" if rows else "false"


def _write_rows_sql(reader: duckdb.DuckDBPyConnection, table: str, base: str, conditions: Sequence[_Condition]) -> str:
    """Returns the query for the cells: first the fields in which they differ, then their numbers. Timed cells have one
    row a phase."""
    counts = _count(reader, "DISTINCT c", table, ("machine", *TABLES[table].key))
    varied = [name for name, count in counts.items() if count > 1]
    fixed = [name for name in ("context", "seq_len", "mode", "precision") if counts.get(name) == 1]
    numbers = _count(reader, "s", table, (*TABLES[table].told, "failed_phase", "message"))
    columns = [f"c.{name}" for name in (*fixed, *varied, "round", "status")]
    timed = TABLES[table].timed
    columns += [f"t.{name}" for name in ("phase", "median_ms", "low_ms", "high_ms", "n")] if timed else []
    columns += [*(f"s.{name}" for name, count in numbers.items() if count), "s.cell_id"]
    order = ", ".join([f"c.{name}" for name in (*varied, "round", "cell_id")] + (["t.phase"] if timed else []))
    lines = [
        f"WITH counted AS (\n{textwrap.indent(base, '    ')})",
        *textwrap.wrap(f"SELECT {', '.join(columns)}", 100, subsequent_indent="    "),
        f"FROM counted c JOIN {table} s USING (cell_id)" + (" LEFT JOIN timings t USING (cell_id)" if timed else ""),
        *([f"WHERE {' AND '.join(condition.sql for condition in conditions)}"] if conditions else []),
        f"ORDER BY {order}",
        f"LIMIT {MAX_ROWS}",
    ]
    return "\n".join(lines)


def _count(reader: duckdb.DuckDBPyConnection, what: str, table: str, names: Sequence[str]) -> dict[str, int]:
    """Counts the values of each column among the answer's rows: `DISTINCT c` counts different ones, `s` all known."""
    counts = ", ".join(f"{literal(name)}: count({what}.{name})" for name in names)
    found = reader.execute(f"SELECT MAP {{{counts}}} FROM meant c JOIN {table} s USING (cell_id)").fetchone()
    assert found is not None
    return dict(found[0])


def _write_left_out_sql(scope: EvidenceScope, base: str, conditions: Sequence[_Condition]) -> str:
    """Returns the query that counts every other row of the table under the first reason that holds."""
    machine = "coalesce(s.machine, 'unknown')"
    reasons = []
    if scope.latest and scope.machine is not None:
        reasons.append((f"s.machine IS DISTINCT FROM {literal(scope.machine)}", f"'measured on ' || {machine}"))
    if scope.latest and scope.run is not None:
        reasons.append((f"s.run_id <> {literal(scope.run)}", "'of another run'"))
    if scope.latest and scope.run is None and scope.hidden:
        reasons.append((among("s.run_id", scope.hidden), "'of a hidden run'"))
    reasons.append(("c.cell_id IS NULL", "'asked again: a later run, another try or more warm-up counts instead'"))
    reasons += [(f"({condition.sql}) IS NOT TRUE", condition.why) for condition in conditions]
    cases = "\n".join(f"        WHEN {test} THEN {why}" for test, why in reasons)
    return f"""WITH counted AS (
{textwrap.indent(base, "    ")}),
every AS (
    SELECT s.cell_id, s.run_id, {MACHINE} AS machine FROM {scope.table} s LEFT JOIN runs r USING (run_id)),
judged AS (
    SELECT CASE
{cases} END AS why
    FROM every s LEFT JOIN counted c USING (cell_id))
SELECT why, count(*) AS "rows" FROM judged WHERE why IS NOT NULL GROUP BY why ORDER BY "rows" DESC, why LIMIT 50"""


def read_evidence(reader: duckdb.DuckDBPyConnection, sql: str, *, about: str) -> Evidence:
    """Runs a query and returns its columns and rows as evidence about a table."""
    answer = reader.execute(sql)
    names = tuple(column[0] for column in answer.description or ())
    return Evidence(about=about, sql=sql, columns=names, rows=tuple(answer.fetchall()))


# -------------------------------------------------------------------------------------- answers that rest on other rows


def _load(path: Path, about: str, sql: str, others: str = "") -> Evidence:
    """Runs a query, and with `others` the query that counts the rows that it leaves out."""
    with open_reader(path) as reader:
        found = read_evidence(reader, sql, about=about)
        if not others:
            return found
        left_out = tuple((why, count) for why, count in reader.execute(others).fetchall() if count)
    cells = len(found.rows)
    total = cells + sum(count for _, count in left_out)
    return replace(found, cells=cells, total=total, left_out=left_out, left_out_sql=others)


def of_runs(path: Path) -> Evidence:
    """Returns every run, with the number of its measured, failed and skipped cells by table; published tables, which
    have no cells, are left out."""
    cells = "\n    UNION ALL ".join(
        f"SELECT run_id, status, '{table.name}' AS of FROM {table.name}" for table in TABLES.values() if table.key
    )
    sql = f"""SELECT r.started_at, {MACHINE} AS machine, s.of AS "table",
    count(*) FILTER (status = 'ok') AS measured,
    count(*) FILTER (status NOT IN ('ok', 'skipped')) AS failed, count(*) FILTER (status = 'skipped') AS skipped
FROM runs r LEFT JOIN (
    {cells}) s USING (run_id)
WHERE r.source <> 'published' OR s.of IS NOT NULL GROUP BY ALL ORDER BY r.started_at DESC, machine, "table" """
    return _load(path, "runs", sql.rstrip())


def of_environments(path: Path, a: tuple[UUID, ...], b: tuple[UUID, ...]) -> Evidence:
    """Returns the environments of the runs of two sides."""
    groups = {"A and B": [run for run in a if run in b], "A": a, "B": b}
    sides = [f"WHEN {among('run_id', list(runs))} THEN '{side}'" for side, runs in groups.items() if runs]
    chosen = among("run_id", list(dict.fromkeys((*a, *b))))
    columns = textwrap.fill(", ".join((*COLUMNS, "git_dirty", "run_id")), 96)
    sql = f"""SELECT CASE {" ".join(sides)} END AS side, started_at, label,
{textwrap.indent(columns, "    ")}
FROM runs WHERE {chosen}
ORDER BY side, started_at"""
    others = f"""SELECT 'of neither side' AS why, count(*) AS "rows" FROM runs
WHERE source <> 'published' AND NOT ({chosen})"""
    return _load(path, "runs", sql, others)


def of_tables(path: Path) -> Evidence:
    """Returns the number of rows of each table."""
    counts = "\nUNION ALL ".join(f'SELECT \'{name}\' AS "table", count(*) AS "rows" FROM {name}' for name in TABLES)
    return _load(path, "tables", counts + '\nORDER BY "rows" DESC, "table"')


def of_ceilings(path: Path, machine: str | None) -> Evidence:
    """Returns the rates that the machine reached in each of its sweeps."""
    sql = f"""SELECT r.started_at, s.moment, s.name, s.flops_per_s, s.bytes_per_s, s.datasheet_flops_per_s,
    s.datasheet_bytes_per_s
FROM ceilings s LEFT JOIN runs r USING (run_id) WHERE {MACHINE} = {literal(machine)}
ORDER BY r.started_at DESC, s.run_id, s.moment DESC, s.name"""
    others = f"""SELECT 'measured on ' || {MACHINE} AS why, count(*) AS "rows"
FROM ceilings s LEFT JOIN runs r USING (run_id) WHERE {MACHINE} IS DISTINCT FROM {literal(machine)} GROUP BY why
ORDER BY why"""
    return _load(path, "ceilings", sql, others)
