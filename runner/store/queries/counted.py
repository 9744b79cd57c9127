"""The rows that count in any table of cells, as SQL without placeholders, which a reader can run.

    print(select_counted("steps", Selection(machine="Example GPU · node1")))

`selection` defines the rules.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from runner.schema import TABLES
from runner.store.database import open_reader
from runner.store.queries.selection import MACHINE, Selection, select_chosen


def select_counted(table: str, of: Selection) -> str:
    """Returns a query for the rows that count, one a round, with their key, ids, status, `round` and `machine`."""
    return inline_parameters(*select_chosen(table, of))


def load_settled_ids(path: Path, table: str, of: Selection) -> set[UUID]:
    """Returns the ids of the rows that count."""
    query = f"SELECT cell_id FROM ({select_counted(table, of)})"
    with open_reader(path) as reader:
        return {cell_id for (cell_id,) in reader.execute(query).fetchall()}


def select_every(table: str) -> str:
    """Returns a query for all rows of the table, with the same columns."""
    names = dict.fromkeys((*TABLES[table].key, "run_id", "cell_id", "cell_key", "round", "status"))
    columns = ", ".join(f"s.{name}" for name in names)
    return f"SELECT {columns}, {MACHINE} AS machine FROM {table} s LEFT JOIN runs r USING (run_id)"


def inline_parameters(query: str, parameters: Sequence[Any]) -> str:
    """Returns the query with its parameters written out."""
    first, *rest = query.split("?")
    assert len(rest) == len(parameters)
    text = first + "".join(literal(value) + part for value, part in zip(parameters, rest, strict=True))
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def among(column: str, values: Sequence[Any]) -> str:
    """Returns the condition that the column holds one of these values, of which None stands for NULL."""
    known = [literal(value) for value in values if value is not None]
    equal = f"{column} = {known[0]}" if len(known) == 1 else f"{column} IN ({', '.join(known)})"
    if len(known) == len(values):
        return equal if known else "false"
    return f"({equal} OR {column} IS NULL)" if known else f"{column} IS NULL"


def literal(value: Any) -> str:
    """Returns a value as an SQL literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(literal, value))}]"
    text = "'" + str(value).replace("'", "''") + "'"
    return f"{text}::UUID" if isinstance(value, UUID) else text
