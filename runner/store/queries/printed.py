"""The evidence behind sentences about published tables: what they print, as a query that needs no table of the file.

    found = of_printed(path, "001_e2e_mbair.csv", ("line", "heading", "text", "value"), rows)

Tables that come with Stepscope lie in no results file, so the query holds their rows itself; it can be run and changed
like any other.
"""

import math
from pathlib import Path

from runner.store.database import open_reader
from runner.store.queries.counted import literal
from runner.store.queries.evidence import MAX_ROWS, Evidence, read_evidence

Printed = tuple[str | int | float | None, ...]


def of_printed(path: Path, about: str, columns: tuple[str, ...], rows: tuple[Printed, ...]) -> Evidence:
    """Returns the rows, of which there is at least one, through a query of their values; at most `MAX_ROWS`."""
    values = ",\n    ".join(f"({', '.join(map(_write, row))})" for row in rows[:MAX_ROWS])
    sql = f"SELECT * FROM (VALUES\n    {values}\n) AS printed ({', '.join(columns)})"
    with open_reader(path) as reader:
        found = read_evidence(reader, sql, about=about)
    return Evidence(
        about=about, sql=sql, columns=found.columns, rows=found.rows, cells=len(found.rows), total=len(found.rows)
    )


def _write(value: str | int | float | None) -> str:
    """Returns a value as an SQL literal; a number with a point would be a DECIMAL without its type."""
    if isinstance(value, float):
        return f"{value!r}::DOUBLE" if math.isfinite(value) else "NULL"
    return literal(value)
