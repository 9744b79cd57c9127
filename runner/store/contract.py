"""The contract as SQL: which rows hold what the schema allows, and what is wrong with the others; and what of a file
keeps it, examined once for each state of it (`survey`).

    >>> check(con, TABLES["steps"], "temp.main.spool_steps", where=path, published=NO_RUNS)
    RowsRefused: there.duckdb holds rows that cannot be used: 3 of steps with status 'banana'.

Everything follows from the schema: choices, bounds of numbers (NaN and infinity are outside of all), times of day
between 1970 and 9999, ids and key fields, and sizes whose products fit into 64 bits. Rows of a run that was transcribed
from a published table (`source`) may lack key fields. Limits: ids are not looked up.

    >>> survey(path).left_out
    {'steps': 3}

Ten million samples take 0.2 s; of a table that has only grown since, only new rows are examined. The first reader of
a large file examines it on a connection that ends with that: DuckDB keeps what it has read, up to the file's size.
Limits: rows that somebody changes in place while a sweep adds others are noticed by the next process.
"""

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection

from runner.errors import RowsRefused, StoreError
from runner.places import check_place, list_files
from runner.schema import TABLES, Column, Model, Table
from runner.schema.axes import SHAPE
from runner.schema.own import PART
from runner.store.attached import (
    Columns,
    attach,
    connect,
    foreign_error,
    format_reason,
    is_damage,
    is_stepscope,
    load_columns,
    missing_error,
)
from runner.store.shared import Taken, spilling, take_connection
from runner.store.spool import Spool
from runner.store.sql import fetch_count, quote, select_stored_rows

#: The smallest measured number but 0, in its unit: the inverse of a smaller one may not fit into 64 bits.
MIN_MEASURED = 1e-12
#: The size of a file that is examined on a connection which then stays open: to open one takes 40 ms.
SMALL_BYTES = 2**24
#: How many problems a message names.
_MAX_NAMED = 3
#: Sizes that are multiplied to count operations and bytes, in a step and in single-head attention. Such counts are 64
#: bits wide, and have further factors of up to 64.
_PRODUCTS = (
    ("d_model", "d_model", "layers", "batch", "context"),
    ("d_model", "d_ff", "layers", "batch", "context"),
    ("d_model", "context", "context", "layers", "batch"),
    ("d_model", "vocabulary", "batch", "context"),
    ("d_head", "seq_len", "seq_len", "batch"),
)
_MAX_PRODUCT = 2**63 / 64


@cache
def valid(table: Table, *, published: str) -> str:
    """Returns the SQL condition of a row that holds what the schema allows; NULL counts as false.

    `published` is a query of the ids of published runs."""
    bounded: dict[tuple[type, tuple[float, float]], list[Column]] = {}
    for column in table.columns:
        if column.bounds is not None and (column.nullable or column.asked):
            bounded.setdefault((column.type, column.bounds), []).append(column)
    single = {column for columns in bounded.values() for column in columns}
    conditions = [_condition(column) for column in table.columns if column not in single]
    conditions += [_all_inside(columns) for columns in bounded.values()]
    if table.key:
        conditions.append(f"({is_stated(table)} OR run_id IN ({published}))")
    conditions += [_fits(product) for product in _products(table)]
    texts = [column for column in table.columns if column.type is str and (not column.choices or _is_open(column))]
    shares = ", ".join(f"strlen({column.name}) / {column.longest}" for column in texts)
    conditions.append(f"coalesce(greatest({shares}) <= 1, true)" if texts else "")
    return " AND ".join(condition for condition in conditions if condition) or "true"


def count_invalid(con: DuckDBPyConnection, table: Table, relation: str, *, published: str) -> int:
    """Returns how many rows of `relation` may not enter `table`."""
    good = valid(table, published=published)
    return fetch_count(con, f"SELECT count(*) - count(*) FILTER ({good}) FROM {relation}")


def check(con: DuckDBPyConnection, table: Table, relation: str, *, where: Path, published: str) -> None:
    """Raises RowsRefused, with table, column, value and count, unless every row of `relation` may enter `table`."""
    invalid = count_invalid(con, table, relation, published=published)
    if invalid:
        problems = find_problems(con, table, relation, published=published) or [f"{invalid:,} of {table.name}"]
        raise _refused(where, "; ".join(problems[:_MAX_NAMED]))


def check_unique(con: DuckDBPyConnection, table: Table, relation: str, *, where: Path) -> None:
    """Raises RowsRefused when two rows of `relation` have the same ids."""
    names = ", ".join(table.unique)
    query = f"SELECT {names}, count(*) FROM {relation} GROUP BY {names} HAVING count(*) > 1 LIMIT 1"
    repeated = con.execute(query).fetchone()
    if repeated:
        ids = ", ".join(f"{name} {value}" for name, value in zip(table.unique, repeated, strict=False))
        raise _refused(where, f"{repeated[-1]:,} of {table.name} with the same {ids}")


def _refused(where: Path, problems: str) -> RowsRefused:
    return RowsRefused(
        f"{where} holds rows that cannot be used: {problems}.",
        expected="what `python -m runner show columns` says of each column",
        do="Nothing of it was added.",
    )


def find_problems(con: DuckDBPyConnection, table: Table, relation: str, *, published: str) -> list[str]:
    """Returns a phrase for each column or product that breaks the contract: how many rows, and one value."""
    conditions = [(c.name, condition) for c in table.columns if (condition := _condition(c))]
    conditions += [(name, f"{stated} OR run_id IN ({published})") for name, stated in _stated(table).items()]
    conditions += [(c.name, f"coalesce(strlen({c.name}) <= {c.longest}, true)") for c in table.columns if c.type is str]
    conditions += [(" × ".join(product), _fits(product)) for product in _products(table)]
    problems = []
    for name, condition in conditions:
        value = "'a product beyond 64 bits'" if "×" in name else f"left({name}::VARCHAR, 40)"
        query = f"SELECT count(*), any_value(coalesce({value}, 'NULL')) FROM {relation} WHERE ({condition}) IS NOT TRUE"
        count, example = con.execute(query).fetchone() or (0, None)
        if count:
            problems.append(f"{count:,} of {table.name} with {name} {example!r}")
    return problems


def _stated(table: Table, *, prefix: str = "") -> dict[str, str]:
    """Returns the condition that a row states a column of its key, by column; a published row need not. Only an own
    model lacks numbers of a shape, or a length."""
    stated = {c.name: f"{prefix}{c.name} IS NOT NULL" for c in table.columns if c.asked and not c.nullable}
    sized = SHAPE if issubclass(table.row, Model) else ()
    if sized and "context" in stated:
        stated["context"] = f"({prefix}context > 0 OR ({prefix}context = 0 AND {prefix}model_key IS NOT NULL))"
    return stated | {name: f"({prefix}{name} IS NOT NULL OR {prefix}model_key IS NOT NULL)" for name in sized}


def _all_inside(columns: Sequence[Column]) -> str:
    """Returns the condition of columns that may be NULL and share their bounds. One for all is planned several times as
    fast as one for each; NaN counts as greater than any number."""
    assert columns[0].bounds is not None
    low, high = (_number(columns[0], bound) for bound in columns[0].bounds)
    names = ", ".join(column.name for column in columns)
    inside = f"coalesce(least({names}) >= {low} AND greatest({names}) <= {high}, true)"
    if not _is_measured(columns[0]):
        return inside
    sizes = ", ".join(f"nullif({column.name}, 0)" for column in columns)
    return f"{inside} AND coalesce(least({sizes}) >= {MIN_MEASURED!r}, true)"


def _is_measured(column: Column) -> bool:
    """Returns whether the column holds sizes with a unit, of which none is negative."""
    return column.type is float and bool(column.unit) and column.bounds is not None and column.bounds[0] == 0


def _condition(column: Column) -> str:
    """Returns the condition of one column; empty where its type allows every value."""
    inside = _inside(column)
    if column.nullable or column.asked:
        return f"({column.name} IS NULL OR {inside})" if inside else ""
    return inside or f"{column.name} IS NOT NULL"


def _is_open(column: Column) -> bool:
    """Returns whether the column holds own parts beside its choices."""
    return column.flag is not None and column.flag.open


def _inside(column: Column) -> str:
    if column.choices:
        # DuckDB casts each different text of a block once, and compares every row with a list: 33 and 190 ms for 25
        # million samples.
        known = f"TRY_CAST({column.name} AS ENUM ({', '.join(map(quote, column.choices))})) IS NOT NULL"
        return f"({known} OR regexp_full_match({column.name}, {quote(PART)}))" if _is_open(column) else known
    if column.bounds is not None:
        low, high = (_number(column, bound) for bound in column.bounds)
        if _is_measured(column):
            return f"({column.name} = 0 OR {column.name} BETWEEN {MIN_MEASURED!r} AND {high})"
        return f"{column.name} BETWEEN {low} AND {high}"
    if column.sql_type == "TIMESTAMP":
        return f"{column.name} BETWEEN TIMESTAMP '1970-01-01' AND TIMESTAMP '9999-12-31'"
    return ""


def _number(column: Column, value: float) -> str:
    assert isfinite(value)
    return str(int(value)) if column.type is int else f"{float(value)!r}::DOUBLE"


def _products(table: Table) -> list[tuple[str, ...]]:
    return [product for product in _PRODUCTS if set(product) <= set(table.key)]


def _fits(product: tuple[str, ...]) -> str:
    """Returns the condition of a product below the limit; one of unknown sizes passes, because the columns' own
    conditions say whether they may be unknown."""
    return f"coalesce({' * '.join(f'{name}::DOUBLE' for name in product)} < {_MAX_PRODUCT!r}::DOUBLE, true)"


def is_stated(table: Table, *, prefix: str = "") -> str:
    """Returns the SQL condition of a row that has its whole key."""
    return " AND ".join(_stated(table, prefix=prefix).values()) or "true"


NO_RUNS = "SELECT NULL::UUID WHERE false"


@dataclass(frozen=True, kw_only=True)
class Survey:
    """`stored` has the columns by table, `rows` the number of rows, `left_out` how many of them break the contract,
    `damaged` the reasons why tables cannot be read; `published` is a query of the published runs, `runs` the ids of
    all. Since the state of the file `origin`, when all of it was examined, rows have only been added. Of several
    files, `broken` are those that are left out, by name, with the reason."""

    stored: Columns = field(default_factory=dict)
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


def survey(path: Path, *, patience_s: float = 0.0, taken: Taken | None = None) -> Survey:
    """Examines the file, unless this process has and it has not changed. Raises DatabaseBusy, DatabaseForeign.

    New rows and small files are examined on a connection with nothing attached: `taken`, which is opened anew where an
    error ends it, or another."""
    files = [file.stat() if file.exists() else None for file in (path, path.with_name(path.name + ".wal"))]
    # What changes with the file: its identity first.
    state = tuple(part for one in files for part in ((one.st_ino, one.st_size, one.st_mtime_ns) if one else (None,)))
    known_state, known = _known.get(path, (None, Survey()))
    if known_state == state:
        return known
    damaged: dict[str, str] = {}
    result = None
    before = known if known_state and known_state[0] == state[0] else Survey()
    if before.rows or path.stat().st_size <= SMALL_BYTES:
        with contextlib.nullcontext(taken) if taken else take_connection(path) as used:
            with contextlib.suppress(duckdb.OutOfMemoryException):
                result = _examine(path, used.con, before, damaged, patience_s=patience_s)
            if result is None:
                used.reopen()
    limits = spilling()
    while not result:  # every row, within the memory of a reader or, where a long text needs more, without a limit
        try:
            with connect(path, limits=limits) as con:
                result = _examine(path, con, Survey(), damaged, patience_s=patience_s)
        except duckdb.OutOfMemoryException:
            if not limits:
                raise
            limits = ()
    if not result.origin:
        result = replace(result, origin=f"{path} {state}")
    _known[path] = state, result
    return result


def _examine(
    path: Path, con: DuckDBPyConnection, before: Survey, damaged: dict[str, str], *, patience_s: float
) -> Survey | None:
    """Examines all tables but those in `damaged`; None when another one joined them, which ends the connection."""
    name = ""
    try:
        with attach(con, path, patience_s=patience_s):
            if not is_stepscope(stored := load_columns(con, path)):
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
                    source = "source" if "source" in stored[name] else "NULL"
                    listed = con.execute(f"SELECT run_id::VARCHAR, {source} FROM file.main.runs").fetchall()
                    published = select_runs([run for run, kind in listed if kind == "published"])
                    runs = frozenset(run for run, _ in listed)
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


def select_runs(ids: Sequence[str]) -> str:
    """Returns a query whose rows are these ids."""
    return " UNION ALL ".join(f"SELECT {quote(run_id)}::UUID" for run_id in sorted(set(ids))) or NO_RUNS


#: How many files are examined at once: most of an examination is waiting for DuckDB, which uses other cores.
_AT_ONCE = 4


def survey_fleet(path: Path, *, patience_s: float) -> Survey:
    """Returns what is wrong with the files of a folder or a list together; `broken` names each that is left out, and
    why. One that another program holds for writing is left out until it or another changes."""
    files = [file.absolute() for file in list_files(path)]
    shared = {name for name, count in Counter(file.name for file in files).items() if count > 1}
    named = {file: str(file) if file.name in shared else file.name for file in files}
    surveyed, refused = survey_files(files, patience_s=patience_s)
    rows, left_out, stored = Counter[str](), Counter[str](), dict[str, frozenset[str]]()
    broken = {named[file]: error.got for file, error in refused.items()}
    for file, found in surveyed.items():
        rows.update(found.rows)
        left_out.update(found.left_out)
        stored |= {name: columns | stored.get(name, frozenset()) for name, columns in found.stored.items()}
        broken |= {f"{named[file]}, {name}": why for name, why in Spool(file).find_unreadable().items()}
        broken |= {f"{named[file]}, table {name}": why for name, why in found.damaged.items()}
    return Survey(stored=stored, rows=dict(rows), left_out=dict(left_out), broken=broken)


def survey_files(
    files: Sequence[Path], *, patience_s: float, taken: Taken | None = None
) -> tuple[dict[Path, Survey], dict[Path, StoreError]]:
    """Returns what each file holds, and for the others why they cannot be read. One is examined on `taken`."""

    def examine(file: Path) -> Survey | StoreError:
        try:
            check_place(file)
            if not file.exists():
                spool = Spool(file)
                if spool.files() or spool.plans() or spool.find_unreadable():
                    return Survey()
                if not file.exists():  # rows go from the spool to the file
                    return missing_error(file)
            return survey(file, patience_s=patience_s, taken=taken)
        except StoreError as error:
            return error

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = dict(zip(files, (map if len(files) == 1 else pool.map)(examine, files), strict=True))
    surveyed = {file: one for file, one in found.items() if isinstance(one, Survey)}
    return surveyed, {file: one for file, one in found.items() if isinstance(one, StoreError)}
