"""The contract as SQL: which rows hold what the schema allows, and what is wrong with the others.

    >>> check(con, TABLES["steps"], "temp.main.spool_steps", where=path, published=NO_RUNS)
    RowsRefused: there.duckdb holds rows that cannot be used: 3 of steps with status 'banana'.

Everything follows from the schema: choices, bounds of numbers (NaN and infinity are outside of all), times of day
between 1970 and 9999, ids and key fields, and sizes whose products fit into 64 bits. Rows of a run that was transcribed
from a published table (`source`) may lack key fields. Limits: ids are not looked up.
"""

from collections.abc import Sequence
from functools import cache
from math import isfinite
from pathlib import Path

from duckdb import DuckDBPyConnection

from runner.errors import RowsRefused
from runner.schema import Column, Model, Table
from runner.schema.axes import SHAPE
from runner.store.attached import fetch_count, quote

#: The smallest measured number but 0, in its unit: the inverse of a smaller one may not fit into 64 bits.
MIN_MEASURED = 1e-12
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
        if column.bounds is not None and _may_be_null(column):
            bounded.setdefault((column.type, column.bounds), []).append(column)
    single = {column for columns in bounded.values() for column in columns}
    conditions = [_condition(column) for column in table.columns if column not in single]
    conditions += [_all_inside(columns) for columns in bounded.values()]
    if table.key:
        conditions.append(f"({is_stated(table)} OR run_id IN ({published}))")
    conditions += [_fits(product) for product in _products(table)]
    conditions.append(_is_short(table))
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
    conditions += [(c.name, _short_column(c)) for c in table.columns if c.type is str]
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


def _may_be_null(column: Column) -> bool:
    return column.nullable or column.asked


def _condition(column: Column) -> str:
    """Returns the condition of one column; empty where its type allows every value."""
    inside = _inside(column)
    if _may_be_null(column):
        return f"({column.name} IS NULL OR {inside})" if inside else ""
    return inside or f"{column.name} IS NOT NULL"


def _inside(column: Column) -> str:
    if column.choices:
        # DuckDB casts each different text of a block once, and compares every row with a list: 33 and 190 ms for 25
        # million samples.
        return f"TRY_CAST({column.name} AS ENUM ({', '.join(map(quote, column.choices))})) IS NOT NULL"
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


def _is_short(table: Table) -> str:
    """Returns the SQL condition of a row whose texts are not too long."""
    texts = [column for column in table.columns if column.type is str and not column.choices]
    shares = ", ".join(f"strlen({column.name}) / {column.longest}" for column in texts)
    return f"coalesce(greatest({shares}) <= 1, true)" if texts else ""


def _short_column(column: Column) -> str:
    return f"coalesce(strlen({column.name}) <= {column.longest}, true)"
