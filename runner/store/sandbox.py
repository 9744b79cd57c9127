"""One query of a reader's own, answered by a process that can do nothing else: `python -m runner.store.sandbox`.

    {"path": "data/results.duckdb", "query": "SELECT …", "most_rows": 10000, "seconds": 10}      on stdin
    {"columns": [["mode", "VARCHAR"]], "rows": [["train"]], "cut": false, "seconds": 0.004}      on stdout
    {"refused": ["got", "expected", "do"]}                                                       or this

`runner.store.queries.console` starts it and ends it. It is a process of its own because DuckDB cannot interrupt
everything, and because a query of one line can exhaust the memory of whoever runs it. What it may do is limited three
times over: by the kinds of statement, by DuckDB's settings (no file, no extension, no setting, no spilling), and by the
system (no file can be opened or written, 1 GiB of memory, an end after the time limit even if nobody waits).
Limits: macOS does not enforce the system's limit of memory.
"""

import contextlib
import json
import os
import re
import resource
import signal
import sys
import time
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from runner.errors import StoreError, UsageError
from runner.store.attached import reason
from runner.store.database import look_through, open_reader
from runner.store.views import damage

#: DuckDB's own limit of memory, and the system's, which also holds for what DuckDB does not count.
MEMORY, MEMORY_BYTES = "512MB", 1 << 30
#: An answer's text ends with the first row beyond this.
MAX_CHARACTERS = 20_000_000

#: What a query may begin with, in words.
ALLOWED = "one SELECT, WITH, FROM, VALUES, DESCRIBE, SUMMARIZE, SHOW or EXPLAIN"

_SETTINGS = (
    "SET temp_directory = ''",
    f"SET memory_limit = '{MEMORY}'",
    "SET threads = 2",
    "SET allow_community_extensions = false",
)
_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?(\([^)]*\)\s*)?", re.IGNORECASE)


def answer(path: str, query: str, *, most_rows: int, seconds: float) -> dict[str, Any]:
    """The answer as JSON can hold it. Locks this process down for good. Raises StepscopeError."""
    signal.alarm(int(seconds) + 2)
    os.nice(10)  # a sweep that measures on this CPU comes first
    known = look_through(path)
    with open_reader(path, limits=_SETTINGS) as con:
        _lock_down()
        _check(con, query)
        begun = time.monotonic()
        try:
            columns = _asked(con, query)
            rows, cut = _rows(con, most_rows)
        except (duckdb.Error, MemoryError) as error:
            raise damage(error, Path(path), known) or _refusal(error) from error
        return {"columns": columns, "rows": rows, "cut": cut, "seconds": time.monotonic() - begun}


def _lock_down() -> None:
    """From here on no file can be opened, by anybody in this process; those that are open stay."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))


def _check(con: duckdb.DuckDBPyConnection, query: str) -> None:
    """Raises UsageError unless this is one statement that reads."""
    try:
        statements = con.extract_statements(query)
        if len(statements) == 1 and statements[0].type == duckdb.StatementType.EXPLAIN:
            statements = con.extract_statements(_EXPLAIN.sub("", query, count=1))
    except duckdb.Error as error:
        raise _refusal(error) from error
    if len(statements) != 1:
        raise UsageError(f"{len(statements)} statements.", expected=ALLOWED, do="Ask one question at a time.")
    kind = statements[0].type
    if kind == duckdb.StatementType.MULTI:
        raise UsageError("A PIVOT that makes its columns itself.", expected=ALLOWED, do="Name them: ON mode IN (…).")
    if kind != duckdb.StatementType.SELECT:
        word = kind.name.replace("_", " ")
        raise UsageError(f"A statement of the kind {word}.", expected=ALLOWED, do="This console only reads.")
    if statements[0].named_parameters:
        raise UsageError("A query with parameters.", expected="values in their place", do="Write the values out.")


def _asked(con: duckdb.DuckDBPyConnection, query: str) -> list[list[str]]:
    """Run it; the names and types of its columns. Times come back as DuckDB writes them: Python knows neither infinity
    nor years before 1 and after 9999, and for those with a zone it needs a package."""
    (statement,) = con.extract_statements(query)
    if statement.type != duckdb.StatementType.SELECT:
        con.execute(query)
        return [[name, str(kind)] for name, kind, *_ in con.description or ()]
    found = con.sql(query)  # bound, not run
    names, kinds = found.columns, [str(kind) for kind in found.types]
    if any(map(_is_time, kinds)):
        inside = statement.query.strip().removesuffix(";")
        alone = [f"column{place}" for place in range(len(names))]
        as_text = [f"{name}::VARCHAR" if _is_time(kind) else name for name, kind in zip(alone, kinds, strict=True)]
        query = f"SELECT {', '.join(as_text)} FROM (\n{inside}\n) AS answer({', '.join(alone)})"
    con.execute(query)
    return [list(pair) for pair in zip(names, kinds, strict=True)]


def _is_time(kind: str) -> bool:
    return kind == "DATE" or kind.startswith("TIMESTAMP")


def _rows(con: duckdb.DuckDBPyConnection, most: int) -> tuple[list[list[Any]], bool]:
    """The first rows, and whether there are more than `most` or than fit into `MAX_CHARACTERS`."""
    rows: list[list[Any]] = []
    characters = 0
    while found := con.fetchmany(min(500, most + 1 - len(rows))):
        for row in found:
            plain = [_plain(value) for value in row]
            characters += sum(len(value) if isinstance(value, str) else 8 for value in plain)
            if len(rows) == most or characters > MAX_CHARACTERS:
                return rows, True
            rows.append(plain)
    return rows, False


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value)


def _refusal(error: Exception) -> UsageError:
    """DuckDB's words, as a message for whoever wrote the query."""
    text = str(error)
    if isinstance(error, MemoryError | duckdb.OutOfMemoryException):
        advice = "Narrow it with WHERE, join on cell_id, or aggregate before sorting."
        return UsageError("The query needs too much memory.", expected=f"less than {MEMORY}", do=advice)
    locked = ("configuration has been locked", "Too many open files")
    if isinstance(error, duckdb.PermissionException) or any(words in text for words in locked):
        got = f"The query asks for more than rows: {_first_line(text)}."
        return UsageError(got, expected="only the tables of the results file", do="Other files cannot be read here.")
    if "pytz" in text:
        return UsageError("A time with a zone.", expected="a time without one", do="Cast it: now()::TIMESTAMP.")
    return UsageError(f"{_first_line(text)}.", expected="a query that DuckDB understands", do=_where(text))


def _first_line(text: str) -> str:
    return reason(Exception(text.partition(" Error: ")[2] or text))


def _where(text: str) -> str:
    """The line and the mark with which DuckDB shows the place, if it does."""
    line = text.find("LINE ")
    return "\n" + text[line:].rstrip() if line >= 0 else ""


def main() -> None:
    """Read one question, write one answer."""
    asked = json.load(sys.stdin)
    try:
        said = answer(asked["path"], asked["query"], most_rows=asked["most_rows"], seconds=asked["seconds"])
    except (StoreError, UsageError) as error:
        said = {"refused": [error.got, error.expected, error.do]}
    json.dump(said, sys.stdout)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
