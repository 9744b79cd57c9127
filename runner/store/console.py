"""A reader's own SQL on the results file, with limits, which can be stopped at any time.

    with run_query(path, "SELECT mode, count(*) FROM steps GROUP BY ALL") as query:
        while (answer := query.answer(wait_s=0.2)) is None:
            ...                                          # leaving the block stops the query
    print(answer.columns, answer.rows)

Every query runs in a process of its own, `python -m runner.store.console`, because DuckDB cannot interrupt everything,
and because a query of one line can exhaust the memory of its process; that costs about 0.2 s.

    {"path": "data/results.duckdb", "query": "SELECT …", "most_rows": 10000, "seconds": 10}      on stdin
    {"columns": [["mode", "VARCHAR"]], "rows": [["train"]], "cut": false, "seconds": 0.004}      on stdout
    {"refused": ["got", "expected", "do"]}                                                       or this

The process is limited three times: by the kinds of statement, by DuckDB's settings (no file, no extension, no setting,
no spilling), and by the system (no file can be opened or written, 1 GiB of memory, an end after the time limit even if
nobody waits). It is killed when its time is up or nobody waits for it any more. The query reads the file in place,
because copying tables first takes longer than most queries. While it reads, the finished cells of a sweep wait in the
spool. So beside a sweep a query gets no more time than any other reader. Its time begins when the file is open: how
long its process takes to start is not the query's fault. Limits: macOS does not enforce the limit of memory.
"""

import contextlib
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
from duckdb import DuckDBPyConnection

from runner.errors import StoreError, UsageError
from runner.places import absolute, list_files
from runner.store.attached import format_reason
from runner.store.database import READER_PATIENCE_S, look_through, open_reader
from runner.store.spool import STALE_S, Spool
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
#: The limits of a query: seconds on its own, seconds beside a sweep, rows, and the number of queries at once.
MAX_SECONDS, BESIDE_A_SWEEP_S, MAX_ROWS, AT_ONCE = 10.0, READER_PATIENCE_S, 10_000, 3

_ROOT = Path(__file__).parents[2]
_turns = threading.BoundedSemaphore(AT_ONCE)


@dataclass(frozen=True, kw_only=True)
class QueryAnswer:
    """The result of a query. `columns` are names and DuckDB's types. Times are ISO texts, decimals are floats, and all
    values but numbers and truth values are texts. `cut` says that there are more rows. `seconds` does not count the
    start of the process."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Any, ...], ...]
    cut: bool
    seconds: float


class RunningQuery:
    """A query while it runs. The process closes its end of the pipe `opened` when it has opened the file."""

    def __init__(self, path: Path, process: "subprocess.Popen[str]", opened: int, *, seconds: float) -> None:
        self._path, self._process, self._opened, self._seconds = path, process, opened, seconds
        self._begun = time.monotonic()
        self._open_since: float | None = None

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._begun

    def answer(self, *, wait_s: float) -> QueryAnswer | None:
        """Returns the answer if it comes within `wait_s`, else None. Raises UsageError where the query is refused or
        takes too long."""
        try:
            output, _ = self._process.communicate(timeout=wait_s)
        except subprocess.TimeoutExpired:
            self._check_time()
            return None
        if not output:
            got = "The process that ran the query ended without an answer."
            raise UsageError(got, expected=f"a query that needs less than {MEMORY}", do="Ask for less at once.")
        reply = json.loads(output)
        if "refused" in reply:
            got, expected, do = reply["refused"]
            raise UsageError(got, expected=expected, do=do)
        columns, rows = (tuple(map(tuple, reply[name])) for name in ("columns", "rows"))
        return QueryAnswer(columns=columns, rows=rows, cut=reply["cut"], seconds=reply["seconds"])

    def _check_time(self) -> None:
        if self._open_since is None:
            if self.elapsed_s > START_SECONDS:
                got = f"The process for the query took more than {START_SECONDS:.0f} s to open the file."
                raise UsageError(got, expected="a machine with time for it", do="Try again when it is less busy.")
            if select.select([self._opened], [], [], 0.0)[0]:
                self._open_since = time.monotonic()
            return
        beats = []
        for plan in [plan for file in list_files(self._path) for plan in Spool(file).plans()]:
            with contextlib.suppress(FileNotFoundError):
                beats.append(plan.stat().st_mtime)
        beside = self._seconds > BESIDE_A_SWEEP_S and time.time() - max(beats, default=0.0) <= STALE_S
        most = BESIDE_A_SWEEP_S if beside else self._seconds
        if (taken := time.monotonic() - self._open_since) > most:
            why = " while a sweep writes into this file" if beside else ""
            got = f"The query was stopped after {taken:.0f} s."
            raise UsageError(got, expected=f"an answer within {most:.0f} s{why}", do="Narrow it with WHERE or LIMIT.")


@contextlib.contextmanager
def run_query(
    path: Path, query: str, *, seconds: float = MAX_SECONDS, most_rows: int = MAX_ROWS
) -> Iterator[RunningQuery]:
    """Starts the query and stops it on leaving. Raises UsageError where `AT_ONCE` others still run after `seconds`."""
    if not _turns.acquire(timeout=seconds):
        got = f"{AT_ONCE} other queries are running."
        raise UsageError(got, expected=f"at most {AT_ONCE} at once", do="Try again in a few seconds.")
    with contextlib.ExitStack() as ends:
        ends.callback(_turns.release)
        ours, theirs = os.pipe()
        ends.callback(os.close, ours)
        try:
            process = subprocess.Popen(
                [sys.executable, "-X", "utf8", "-m", "runner.store.console", str(theirs)],
                pass_fds=[theirs],
                cwd=_ROOT,
                env={"PYTHONPATH": os.pathsep.join(sys.path)},  # nothing of this process's secrets
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
            )
        finally:
            os.close(theirs)
        ends.callback(process.communicate)
        ends.callback(process.kill)
        assert process.stdin is not None
        question = {"path": str(absolute(path)), "query": query, "seconds": seconds, "most_rows": most_rows}
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps(question))
        process.stdin = None
        yield RunningQuery(path, process, ours, seconds=seconds)


def answer(path: str, query: str, *, most_rows: int, seconds: float, opened: Callable[[], None]) -> dict[str, Any]:
    """Returns the answer as JSON can hold it. Calls `opened` when the file is open, from when on the query has its
    `seconds`. Locks this process down for good. Raises UsageError, StoreError."""
    signal.alarm(int(START_SECONDS))
    os.nice(10)  # a sweep that measures on this CPU comes first
    known = look_through(path)
    with open_reader(path, limits=_SETTINGS) as con:
        signal.alarm(int(seconds) + 2)
        opened()
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        with contextlib.suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        _check(con, query)
        begun = time.monotonic()
        try:
            columns = _execute(con, query)
            rows, cut = _fetch(con, most_rows)
        except (duckdb.Error, MemoryError) as error:
            raise explain_damage(error, Path(path), known) or _refusal(error) from error
        return {"columns": columns, "rows": rows, "cut": cut, "seconds": time.monotonic() - begun}


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
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, bool | int | float | str | None) else str(value)


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
    line = text.find("LINE ")  # and the caret below it
    where = "\n" + text[line:].rstrip() if line >= 0 else ""
    return UsageError(f"{_first_line(text)}.", expected="a query that DuckDB understands", do=where)


def _first_line(text: str) -> str:
    return format_reason(Exception(text.partition(" Error: ")[2] or text))


def main() -> None:
    """Reads one request and writes one answer. Closes the file descriptor that its argument names when the results file
    is open."""
    try:
        reply = answer(**json.load(sys.stdin), opened=partial(os.close, int(sys.argv[1])))
    except (StoreError, UsageError) as error:
        reply = {"refused": [error.got, error.expected, error.do]}
    json.dump(reply, sys.stdout)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
