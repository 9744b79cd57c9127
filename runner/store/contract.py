"""The contract as SQL: which rows hold what the schema says a row may hold, and what is wrong with the others.

    >>> check(con, TABLES["steps"], "temp.main.spool_steps", where=path)
    RowsRefused: there.duckdb holds rows that cannot be used: 3 of steps with status 'banana'.

Everything follows from the schema: choices, bounds of numbers (NaN and infinity are outside of all), times of day
between 1970 and 9999, the ids and what was asked for, and sizes whose products fit into 64 bits. Rows of a run that was
transcribed from a published table (`source`) may leave unstated what was asked for. Limits: ids are not looked up.
"""

from collections.abc import Sequence
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

import duckdb

from runner.errors import RowsRefused
from runner.schema import Column, Table

#: The longest text that is taken in, in bytes.
MAX_TEXT_BYTES = 1_000_000
#: How many findings a message names.
_NAMED = 3
#: The runs whose cells may leave unstated what was asked for.
PUBLISHED = "SELECT run_id FROM runs WHERE source = 'published'"
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
def valid(table: Table, *, published: str = PUBLISHED) -> str:
    """The SQL condition of a row that holds what it may; NULL counts as false. `published` is a query of run ids."""
    conditions = [_column(column) for column in table.columns]
    if table.key:
        conditions.append(f"({is_stated(table)} OR run_id IN ({published}))")
    conditions += [_fits(product) for product in _products(table)]
    return " AND ".join(condition for condition in conditions if condition) or "true"


def check(con: duckdb.DuckDBPyConnection, table: Table, relation: str, *, where: Path, published: str = PUBLISHED
          ) -> None:  # fmt: skip
    """Raises RowsRefused, with table, column, value and count, unless every row of `relation` may enter `table`."""
    good = f"({valid(table, published=published)}) AND {is_short(table)}"
    (bad,) = con.execute(f"SELECT count(*) - count(*) FILTER ({good}) FROM {relation}").fetchone() or (0,)
    if bad:
        raise _refused(where, _findings(con, table, relation, published=published), table, bad)


def check_unique(con: duckdb.DuckDBPyConnection, table: Table, relation: str, *, where: Path) -> None:
    """Raises RowsRefused when two rows of `relation` have the same ids."""
    names = ", ".join(table.unique)
    query = f"SELECT {names}, count(*) FROM {relation} GROUP BY {names} HAVING count(*) > 1 LIMIT 1"
    twice = con.execute(query).fetchone()
    if twice:
        ids = ", ".join(f"{name} {value}" for name, value in zip(table.unique, twice, strict=False))
        raise _refused(where, [f"{twice[-1]:,} of {table.name} with the same {ids}"], table, twice[-1])


def _refused(where: Path, findings: Sequence[str], table: Table, bad: int) -> RowsRefused:
    said = "; ".join(findings[:_NAMED]) or f"{bad:,} of {table.name}"
    return RowsRefused(
        f"{where} holds rows that cannot be used: {said}.",
        expected="what `python -m runner list columns` says of each column",
        do="Nothing of it was added.",
    )


def _findings(con: duckdb.DuckDBPyConnection, table: Table, relation: str, *, published: str) -> list[str]:
    """What is wrong, a sentence a column or product: how many rows, and one value."""
    reasons = [(c.name, condition) for c in table.columns if (condition := _column(c))]
    reasons += [(c.name, f"{c.name} IS NOT NULL OR run_id IN ({published})") for c in table.columns if _is_asked(c)]
    reasons += [(c.name, _short_column(c)) for c in table.columns if c.type is str]
    reasons += [(" × ".join(product), _fits(product)) for product in _products(table)]
    parts = []
    for name, condition in reasons:
        value = "'a product beyond 64 bits'" if "×" in name else f"left({name}::VARCHAR, 40)"
        query = f"SELECT count(*), any_value(coalesce({value}, 'NULL')) FROM {relation} WHERE ({condition}) IS NOT TRUE"
        count, example = con.execute(query).fetchone() or (0, None)
        if count:
            parts.append(f"{count:,} of {table.name} with {name} {example!r}")
    return parts


def _is_asked(column: Column) -> bool:
    """Whether a measured row states it, and a published one need not."""
    return column.asked and not column.nullable


def _column(column: Column) -> str:
    """The condition of one column; empty where every value of its type may be."""
    inside = _inside(column)
    if column.nullable or column.asked:
        return f"({column.name} IS NULL OR {inside})" if inside else ""
    return inside or f"{column.name} IS NOT NULL"


def _inside(column: Column) -> str:
    if column.choices:
        return f"{column.name} IN ({', '.join(map(_literal, column.choices))})"
    if column.bounds is not None:
        least, most = column.bounds
        return f"{column.name} BETWEEN {_number(column, least)} AND {_number(column, most)}"
    if column.sql_type == "TIMESTAMP":
        return f"{column.name} BETWEEN TIMESTAMP '1970-01-01' AND TIMESTAMP '9999-12-31'"
    return ""


def _number(column: Column, value: float) -> str:
    assert isfinite(value)
    return str(int(value)) if column.type is int else f"{float(value)!r}::DOUBLE"


def _literal(value: Any) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _products(table: Table) -> list[tuple[str, ...]]:
    return [product for product in _PRODUCTS if set(product) <= set(table.key)]


def _fits(product: tuple[str, ...]) -> str:
    """Unknown sizes make no product: the columns' own conditions say whether they may be unknown."""
    return f"coalesce({' * '.join(f'{name}::DOUBLE' for name in product)} < {_MAX_PRODUCT!r}::DOUBLE, true)"


def is_stated(table: Table, *, prefix: str = "") -> str:
    """The SQL condition of a row that states all that was asked for, without which it is no cell of ours."""
    return " AND ".join(f"{prefix}{column.name} IS NOT NULL" for column in table.columns if _is_asked(column))


def is_short(table: Table) -> str:
    """The SQL condition of a row whose texts are at most MAX_TEXT_BYTES long."""
    return " AND ".join(f"({_short_column(c)})" for c in table.columns if c.type is str and not c.choices) or "true"


def _short_column(column: Column) -> str:
    return f"coalesce(strlen({column.name}) <= {MAX_TEXT_BYTES}, true)"
