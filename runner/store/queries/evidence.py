"""How do we know? The query that gives the rows behind an answer, those rows, and which others were left out and why.

    found = of_cells(path, Scope(table="steps", machine="Example GPU · node1"), (cell_id,))
    print(found.sql, found.rows, found.left_out)

The queries need nothing but the file: they can be pasted into the page SQL, or into any program that opens the file.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb

from runner.analysis.compare.environments import COLUMNS
from runner.schema import TABLES, Shape
from runner.schema.axes import SHAPE
from runner.store.database import open_reader
from runner.store.queries.counted import among, every, literal, select_counted
from runner.store.queries.selection import MACHINE, Selection

#: More rows than these are not brought back.
MAX_ROWS = 1_000


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Where cells come from: the rows of a table that count on a machine or in a run; or, with `latest` off, all."""

    table: str
    machine: str | None = None
    run: UUID | None = None
    latest: bool = True


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A query and what it brings back, `MAX_ROWS` rows at most. `cells` of the `total` rows of the table `about` are
    the answer's; `left_out` counts the others by reason, and `left_out_sql` is the query that does. They are None and
    empty where the query reads everything there is."""

    about: str
    sql: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    cells: int | None = None
    total: int | None = None
    left_out: tuple[tuple[str, int], ...] = ()
    left_out_sql: str = ""


def of_cells(path: Path, scope: Scope, cells: Sequence[UUID]) -> Evidence:
    """The rows behind these cells, with their other rounds and their times."""
    with open_reader(path) as reader:
        base = _counted(reader, scope, cells)
        reader.execute(
            """CREATE TEMP TABLE meant AS
            SELECT * FROM counted SEMI JOIN (SELECT DISTINCT run_id, cell_key FROM counted
                WHERE list_contains(?, cell_id)) USING (run_id, cell_key)""",
            [list(cells)],
        )
        conditions = _conditions(reader, scope.table)
        sql, left_out_sql = _rows_sql(reader, scope.table, base, conditions), _left_out_sql(scope, base, conditions)
        count = reader.execute(f"SELECT (SELECT count(*) FROM meant), (SELECT count(*) FROM {scope.table})").fetchone()
        reader.execute("DROP TABLE counted")  # what is shown is what the query brings back
        reader.execute("DROP TABLE meant")
        names, rows = run_with_names(reader, sql)
        left_out = reader.execute(left_out_sql).fetchall()
    assert count is not None
    return Evidence(about=scope.table, sql=sql, columns=names, rows=rows, cells=count[0], total=count[1],
                    left_out=tuple(left_out), left_out_sql=left_out_sql)  # fmt: skip


def _counted(reader: duckdb.DuckDBPyConnection, scope: Scope, cells: Sequence[UUID]) -> str:
    """Fills the table `counted`, and returns the query for it: the rows that count, of every effort where the cells are
    not all of the preferred one."""
    own = Selection(machine=scope.machine, run=scope.run)
    queries = [select_counted(scope.table, replace(own, settled=settled)) for settled in (True, False)]
    for base in queries if scope.latest else [every(scope.table)]:
        reader.execute(f"CREATE OR REPLACE TEMP TABLE counted AS {base}")
        found = reader.execute("SELECT count(*) FROM counted WHERE list_contains(?, cell_id)", [list(cells)]).fetchone()
        if found == (len(set(cells)),):
            break
    return base


@dataclass(frozen=True, kw_only=True)
class _Condition:
    """What the answer's rows have in common, in SQL, and why a row without it was left out."""

    sql: str
    why: str


def _conditions(reader: duckdb.DuckDBPyConnection, table: str) -> list[_Condition]:
    """The values of the key by which the answer's rows differ from the rest; where that is not enough, the cells."""
    names = ["machine", *TABLES[table].question]
    sized = issubclass(TABLES[table].row, Shape)
    plain = [name for name in names if not (sized and name in SHAPE)]
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
        found += _shapes(reader)
    rest: tuple[tuple[tuple[str, ...], str], ...] = (
        (("cell_key",), "'no part of this answer'"),
        (("run_id", "cell_key"), "'of another run'"),
    )
    for columns, why in rest:
        where = " AND ".join(condition.sql for condition in found) or "true"
        more = reader.execute(f"SELECT 1 FROM counted c ANTI JOIN meant USING (cell_id) WHERE {where} LIMIT 1")
        if more.fetchone():
            found.append(_Condition(sql=_tuples(reader, columns), why=why))
    return found


def _shapes(reader: duckdb.DuckDBPyConnection) -> list[_Condition]:
    names = ", ".join(SHAPE)
    meant, held = (
        reader.execute(f"SELECT DISTINCT {names} FROM {table} ORDER BY ALL").fetchall()
        for table in ("meant", "counted")
    )
    if meant == held or not meant:
        return []
    why = "'size is d_model ' || c.d_model || ', ' || c.layers || ' layers'"
    return [_Condition(sql=_tuples(reader, SHAPE), why=why)]


def _tuples(reader: duckdb.DuckDBPyConnection, names: Sequence[str]) -> str:
    """The condition that several columns together are as in one of the answer's rows."""
    rows = reader.execute(f"SELECT DISTINCT {', '.join(names)} FROM meant ORDER BY ALL").fetchall()
    if len(names) == 1:
        return among(f"c.{names[0]}", [row[0] for row in rows])
    values = ", ".join("(" + ", ".join(map(literal, row)) + ")" for row in rows)
    return f"({', '.join(f'c.{name}' for name in names)}) IN ({values})" if rows else "false"


def _rows_sql(reader: duckdb.DuckDBPyConnection, table: str, base: str, conditions: Sequence[_Condition]) -> str:
    """The cells with what differs among them first, their numbers and, where they are timed, one row a phase."""
    counts = _count(reader, "DISTINCT c", table, ("machine", *TABLES[table].key))
    varied = [name for name, count in counts.items() if count > 1]
    fixed = [name for name in ("context", "seq_len", "mode", "precision") if counts.get(name) == 1]
    numbers = _count(reader, "s", table, (*TABLES[table].told, "failed_phase", "message"))
    columns = [f"c.{name}" for name in (*fixed, *varied, "round", "status")]
    timed = TABLES[table].timed
    columns += [f"t.{name}" for name in ("phase", "median_ms", "low_ms", "high_ms", "n")] if timed else []
    columns += [f"s.{name}" for name in (*(name for name, count in numbers.items() if count), "cell_id")]
    order = ", ".join([f"c.{name}" for name in (*varied, "round", "cell_id")] + (["t.phase"] if timed else []))
    lines = [
        f"WITH counted AS (\n{_indented(base)})",
        *textwrap.wrap(f"SELECT {', '.join(columns)}", 100, subsequent_indent="    "),
        f"FROM counted c JOIN {table} s USING (cell_id)" + (" LEFT JOIN timings t USING (cell_id)" if timed else ""),
        *([f"WHERE {' AND '.join(condition.sql for condition in conditions)}"] if conditions else []),
        f"ORDER BY {order}",
        f"LIMIT {MAX_ROWS}",
    ]
    return "\n".join(lines)


def _count(reader: duckdb.DuckDBPyConnection, what: str, table: str, names: Sequence[str]) -> dict[str, int]:
    """How many values each column has among the answer's rows: `DISTINCT c`, or `s` for all that are known."""
    counts = ", ".join(f"count({what}.{name})" for name in names)
    found = reader.execute(f"SELECT {counts} FROM meant c JOIN {table} s USING (cell_id)").fetchone()
    assert found is not None
    return dict(zip(names, found, strict=True))


def _left_out_sql(scope: Scope, base: str, conditions: Sequence[_Condition]) -> str:
    """Every other row of the table under the first reason that holds."""
    machine = "coalesce(s.machine, 'unknown')"
    reasons = []
    if scope.latest and scope.machine is not None:
        reasons.append((f"s.machine IS DISTINCT FROM {literal(scope.machine)}", f"'measured on ' || {machine}"))
    if scope.latest and scope.run is not None:
        reasons.append((f"s.run_id <> {literal(scope.run)}", "'of another run'"))
    reasons.append(("c.cell_id IS NULL", "'asked again: a later run, another try or more warm-up counts instead'"))
    reasons += [(f"({condition.sql}) IS NOT TRUE", condition.why) for condition in conditions]
    cases = "\n".join(f"        WHEN {test} THEN {why}" for test, why in reasons)
    return f"""WITH counted AS (
{_indented(base)}),
every AS (
    SELECT s.cell_id, s.run_id, {MACHINE} AS machine FROM {scope.table} s LEFT JOIN runs r USING (run_id)),
judged AS (
    SELECT CASE
{cases} END AS why
    FROM every s LEFT JOIN counted c USING (cell_id))
SELECT why, count(*) AS "rows" FROM judged WHERE why IS NOT NULL GROUP BY why ORDER BY "rows" DESC, why LIMIT 50"""


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def run_with_names(reader: duckdb.DuckDBPyConnection, sql: str) -> tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]:
    """The names of the columns that the query brings back, and its rows."""
    answer = reader.execute(sql)
    names = tuple(column[0] for column in answer.description or ())
    return names, tuple(answer.fetchall())


# -------------------------------------------------------------------------------------- answers that rest on other rows


def _simple(path: Path, about: str, sql: str) -> Evidence:
    with open_reader(path) as reader:
        names, rows = run_with_names(reader, sql)
    return Evidence(about=about, sql=sql, columns=names, rows=rows)


def of_runs(path: Path) -> Evidence:
    """Every run, and how its cells ended, by table."""
    cells = "\n    UNION ALL ".join(
        f"SELECT run_id, status, '{table.name}' AS of FROM {table.name}" for table in TABLES.values() if table.key
    )
    sql = f"""SELECT r.started_at, {MACHINE} AS machine, s.of AS "table",
    count(*) FILTER (status = 'ok') AS measured,
    count(*) FILTER (status NOT IN ('ok', 'skipped')) AS failed, count(*) FILTER (status = 'skipped') AS skipped
FROM runs r LEFT JOIN (
    {cells}) s USING (run_id)
GROUP BY ALL ORDER BY r.started_at DESC, machine, "table" """
    return _simple(path, "runs", sql.rstrip())


def of_environments(path: Path, a: tuple[UUID, ...], b: tuple[UUID, ...]) -> Evidence:
    """What the runs of two sides ran on."""
    groups = {"A and B": [run for run in a if run in b], "A": a, "B": b}
    sides = [f"WHEN {among('run_id', list(runs))} THEN '{side}'" for side, runs in groups.items() if runs]
    chosen = among("run_id", list(dict.fromkeys((*a, *b))))
    sql = "\n".join(
        [
            f"SELECT CASE {' '.join(sides)} END AS side, started_at, label,",
            *textwrap.wrap(", ".join((*COLUMNS, "git_dirty", "run_id")), 100, initial_indent="    ",
                           subsequent_indent="    "),
            f"FROM runs WHERE {chosen}",
            "ORDER BY side, started_at",
        ]
    )  # fmt: skip
    others = f"""SELECT 'of neither side' AS why, count(*) AS "rows" FROM runs WHERE NOT ({chosen})"""
    with open_reader(path) as reader:
        names, rows = run_with_names(reader, sql)
        left_out = tuple((why, count) for why, count in reader.execute(others).fetchall() if count)
    total = len(rows) + sum(count for _, count in left_out)
    return Evidence(about="runs", sql=sql, columns=names, rows=rows, cells=len(rows), total=total,
                    left_out=left_out, left_out_sql=others)  # fmt: skip


def of_tables(path: Path) -> Evidence:
    """How many rows each table holds."""
    counts = "\nUNION ALL ".join(f'SELECT \'{name}\' AS "table", count(*) AS "rows" FROM {name}' for name in TABLES)
    return _simple(path, "tables", counts + '\nORDER BY "rows" DESC, "table"')


def of_ceilings(path: Path, machine: str | None) -> Evidence:
    """What the machine was seen to reach, in each of its sweeps."""
    sql = f"""SELECT r.started_at, s.moment, s.name, s.flops_per_s, s.bytes_per_s, s.datasheet_flops_per_s,
    s.datasheet_bytes_per_s
FROM ceilings s LEFT JOIN runs r USING (run_id) WHERE {MACHINE} = {literal(machine)}
ORDER BY r.started_at DESC, s.run_id, s.moment DESC, s.name"""
    others = f"""SELECT 'measured on ' || {MACHINE} AS why, count(*) AS "rows"
FROM ceilings s LEFT JOIN runs r USING (run_id) WHERE {MACHINE} IS DISTINCT FROM {literal(machine)} GROUP BY why
ORDER BY why"""
    with open_reader(path) as reader:
        names, rows = run_with_names(reader, sql)
        left_out = reader.execute(others).fetchall()
    total = len(rows) + sum(count for _, count in left_out)
    return Evidence(about="ceilings", sql=sql, columns=names, rows=rows, cells=len(rows), total=total,
                    left_out=tuple(left_out), left_out_sql=others)  # fmt: skip
