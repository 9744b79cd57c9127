"""A reader's own query, answered by a process that can do nothing else: `python -m runner.store.sandbox`.

    {"path": "data/results.duckdb", "query": "SELECT …", "most_rows": 10000, "seconds": 10}      on stdin
    {"columns": [["mode", "VARCHAR"]], "rows": [["train"]], "cut": false, "seconds": 0.004}      on stdout
    {"refused": ["got", "expected", "do"]}                                                       or this

`runner.store.read.console` starts and ends it. It is a process of its own because DuckDB cannot interrupt
everything, and because a query of one line can exhaust the memory of its process. It is limited three times: by the
kinds of statement, by DuckDB's settings (no file, no extension, no setting, no spilling), and by the system (no file
can be opened or written, 1 GiB of memory, an end after the time limit even if nobody waits). Limits: macOS does not
enforce the limit of memory.
"""

import contextlib
import json
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection

from runner.errors import StoreError, UsageError
from runner.store.attached import format_reason
from runner.store.database import look_through, open_reader
from runner.store.views import explain_damage

#: DuckDB's own limit of memory, and the system's, which includes what DuckDB does not count.
MEMORY, MEMORY_BYTES = "512MB", 1 << 30
#: How long the process may take to start and to open the file (s), which on a busy machine takes many times as long as
#: on an idle one, since a sweep's processes come before it.
START_SECONDS = 60.0
#: The most characters of an answer; a row that exceeds them is left out, and so are those after it.
MAX_CHARACTERS = 20_000_000

#: The statements that a query may be, in words.
ALLOWED = "one SELECT, WITH, FROM, VALUES, DESCRIBE, SUMMARIZE, SHOW or EXPLAIN"

_SETTINGS = (
    "SET temp_directory = ''",
    f"SET memory_limit = '{MEMORY}'",
    "SET threads = 2",
    "SET allow_community_extensions = false",
)
_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?(\([^)]*\)\s*)?", re.IGNORECASE)


def answer(path: str, query: str, *, most_rows: int, seconds: float, opened: Callable[[], None]) -> dict[str, Any]:
    """Returns the answer as JSON can hold it. Calls `opened` when the file is open, from when on the query has its
    `seconds`. Locks this process down for good. Raises UsageError, StoreError."""
    signal.alarm(int(START_SECONDS))
    os.nice(10)  # a sweep that measures on this CPU comes first
    known = look_through(path)
    with open_reader(path, limits=_SETTINGS) as con:
        signal.alarm(int(seconds) + 2)
        opened()
        _lock_down()
        _check(con, query)
        begun = time.monotonic()
        try:
            columns = _execute(con, query)
            rows, cut = _fetch(con, most_rows)
        except (duckdb.Error, MemoryError) as error:
            raise explain_damage(error, Path(path), known) or _refusal(error) from error
        return {"columns": columns, "rows": rows, "cut": cut, "seconds": time.monotonic() - begun}


def _lock_down() -> None:
    """Forbids this process to open or write any file from now on; open files stay open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))


def _check(con: DuckDBPyConnection, query: str) -> None:
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


def _execute(con: DuckDBPyConnection, query: str) -> list[list[str]]:
    """Runs the query and returns the names and types of its columns.

    Times are returned as DuckDB's text: Python has neither infinity nor years before 1 and after 9999, and needs a
    package for times with a zone."""
    (statement,) = con.extract_statements(query)
    if statement.type != duckdb.StatementType.SELECT:
        con.execute(query)
        return [[name, str(kind)] for name, kind, *_ in con.description or ()]
    relation = con.sql(query)  # bound, not run
    names, kinds = relation.columns, [str(kind) for kind in relation.types]
    if any(map(_is_time, kinds)):
        inside = statement.query.strip().removesuffix(";")
        aliases = [f"column{place}" for place in range(len(names))]
        texts = [f"{name}::VARCHAR" if _is_time(kind) else name for name, kind in zip(aliases, kinds, strict=True)]
        query = f"SELECT {', '.join(texts)} FROM (\n{inside}\n) AS answer({', '.join(aliases)})"
    con.execute(query)
    return [list(pair) for pair in zip(names, kinds, strict=True)]


def _is_time(kind: str) -> bool:
    return kind == "DATE" or kind.startswith("TIMESTAMP")


def _fetch(con: DuckDBPyConnection, max_rows: int) -> tuple[list[list[Any]], bool]:
    """Returns the first rows, and whether there are more than `max_rows` or than fit into MAX_CHARACTERS."""
    rows: list[list[Any]] = []
    characters = 0
    while page := con.fetchmany(min(500, max_rows + 1 - len(rows))):
        for row in page:
            plain = [_to_json(value) for value in row]
            characters += sum(len(value) if isinstance(value, str) else 8 for value in plain)
            if len(rows) == max_rows or characters > MAX_CHARACTERS:
                return rows, True
            rows.append(plain)
    return rows, False


def _to_json(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value)


def _refusal(error: Exception) -> UsageError:
    """Returns DuckDB's error as a message for the person who wrote the query."""
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
    return format_reason(Exception(text.partition(" Error: ")[2] or text))


def _where(text: str) -> str:
    """Returns the line and the caret with which DuckDB shows the place, if it does."""
    line = text.find("LINE ")
    return "\n" + text[line:].rstrip() if line >= 0 else ""


def main() -> None:
    """Reads one request and writes one answer. Closes the file descriptor that its argument names, if there is one,
    when the results file is open."""
    request = json.load(sys.stdin)
    signals = [int(word) for word in sys.argv[1:]]

    def opened() -> None:
        for descriptor in signals:
            os.close(descriptor)

    try:
        reply = answer(**request, opened=opened)
    except (StoreError, UsageError) as error:
        reply = {"refused": [error.got, error.expected, error.do]}
    json.dump(reply, sys.stdout)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
