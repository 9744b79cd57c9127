"""A reader's own SQL on the results file, with limits, which can be stopped at any time.

    with run_query(path, "SELECT mode, count(*) FROM steps GROUP BY ALL") as query:
        while (answer := query.answer(wait_s=0.2)) is None:
            ...                                          # leaving the block stops the query
    print(answer.columns, answer.rows)

Every query runs in its own process, which costs about 0.2 s and keeps the app alive whatever the query does
(`runner.store.sandbox` holds its limits). The process is killed when its time is up or nobody waits for it any more.
The query reads the file in place, because copying tables first takes longer than most queries. While it reads, the
finished cells of a sweep wait in the spool. So beside a sweep a query gets no more time than any other reader. Its time
begins when the file is open: how long its process takes to start is not the query's fault.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import UsageError
from runner.store.database import READER_PATIENCE_S
from runner.store.fleet import absolute, list_files
from runner.store.read.runs import STALE_S
from runner.store.sandbox import MEMORY, START_SECONDS
from runner.store.spool import Spool

#: The limits of a query: seconds on its own, seconds beside a sweep, rows, and the number of queries at once.
MAX_SECONDS, BESIDE_A_SWEEP_S, MAX_ROWS, AT_ONCE = 10.0, READER_PATIENCE_S, 10_000, 3

_ROOT = Path(__file__).parents[3]
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
        beside = self._seconds > BESIDE_A_SWEEP_S and sweep_is_alive(self._path)
        most = BESIDE_A_SWEEP_S if beside else self._seconds
        if (taken := time.monotonic() - self._open_since) > most:
            why = " while a sweep writes into this file" if beside else ""
            got = f"The query was stopped after {taken:.0f} s."
            raise UsageError(got, expected=f"an answer within {most:.0f} s{why}", do="Narrow it with WHERE or LIMIT.")


@contextlib.contextmanager
def run_query(
    path: Path, query: str, *, seconds: float = MAX_SECONDS, most_rows: int = MAX_ROWS
) -> Iterator[RunningQuery]:
    """Starts the query and stops it on leaving. Raises UsageError where `AT_ONCE` other queries are still running after
    `seconds`."""
    if not _turns.acquire(timeout=seconds):
        got = f"{AT_ONCE} other queries are running."
        raise UsageError(got, expected=f"at most {AT_ONCE} at once", do="Try again in a few seconds.")
    with contextlib.ExitStack() as ends:
        ends.callback(_turns.release)
        ours, theirs = os.pipe()
        ends.callback(os.close, ours)
        try:
            process = _start(path, query, seconds=seconds, most_rows=most_rows, opened=theirs)
        finally:
            os.close(theirs)
        ends.callback(process.communicate)
        ends.callback(process.kill)
        yield RunningQuery(path, process, ours, seconds=seconds)


def _start(path: Path, query: str, *, seconds: float, most_rows: int, opened: int) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-X", "utf8", "-m", "runner.store.sandbox", str(opened)],
        pass_fds=[opened],
        cwd=_ROOT,
        env={},  # nothing of this process's secrets
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )
    assert process.stdin is not None
    question = {"path": str(absolute(path)), "query": query, "seconds": seconds, "most_rows": most_rows}
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(question))
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdin = None
    return process


def sweep_is_alive(path: Path) -> bool:
    """Returns whether a sweep into this file, or one of these, has sent a heartbeat within STALE_S. Opens no file."""
    for plan in [plan for file in list_files(path) for plan in Spool(file).plans()]:
        with contextlib.suppress(FileNotFoundError):
            if time.time() - plan.stat().st_mtime <= STALE_S:
                return True
    return False
