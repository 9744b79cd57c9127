"""Connections that stay open between readers: opening one and making its views is most of what a short reader takes.

    with take_connection(path) as taken:               # one that nobody uses just now, or a new one
        with attach(taken.con, path, patience_s=2.0): ...

Each takes a limited memory, and what a query needs beyond that lies in a temporary file, so that ten readers of a large
file do not take ten times what one of them would like to. A connection is attached to the file only while somebody uses
it, so that a sweep gets its rows in between two readers, and the next one sees them. The last KEPT of a process stay
open. A process that was forked opens its own: DuckDB's threads are not in it. In one process AT_ONCE threads read at a
time (`take_turn`).

    mark(con, state=fingerprint(path), origin=survey(path).origin)      # whoever makes the views of a connection
    noise = remember(con, "noise of steps", lambda: ...)   # a query on it

What is computed from the rows of a state is remembered for that state, however many queries need it; what consists of
results of runs is computed anew for the runs alone that have got rows (`remember_runs`).
"""

import atexit
import contextlib
import os
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import UUID

import duckdb
from duckdb import DuckDBPyConnection

from runner.allowance import count_cpus
from runner.store.attached import CONFIG, connect
from runner.store.spool import Spool
from runner.store.sql import quote

KEPT = 4
#: The memory (MB) of a connection for each of its threads. A quarter of it was too little to read a million cells.
THREAD_MB = 128
T = TypeVar("T")

#: A query uses all cores, and Python builds rows on one: a second reader gains only where it has cores of its own. On
#: two cores ten readers waited as long one at a time, and the server took 518 MiB instead of 626.
AT_ONCE = 1 if count_cpus() < 4 else 2
_turns = threading.BoundedSemaphore(AT_ONCE)
_has_turn: ContextVar[bool] = ContextVar("_has_turn", default=False)

#: The part of its memory that a reader takes.
_share: ContextVar[float] = ContextVar("_share", default=1.0)


@dataclass(kw_only=True, eq=False)
class Taken:
    """A connection that can open `files`, its views by table, as SQL, and the state of the file that they show; None as
    long as it has none. `folder` and `limits` are as in `connect`; without limits it has those of `spilling`, with
    `share` of a reader's memory."""

    files: tuple[Path, ...]
    folder: Path | None = None
    limits: Sequence[str] = ()
    share: float = field(default_factory=lambda: _share.get())
    con: DuckDBPyConnection = field(init=False)
    opened: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    views: dict[str, str] = field(default_factory=dict)
    shown: object = None

    def __post_init__(self) -> None:
        self.reopen()

    def reopen(self) -> None:
        """Opens another connection in the place of one that an error has ended."""
        self.opened.close()
        self.con = self.opened.enter_context(connect(*self.files, folder=self.folder, limits=self.limits or spilling()))
        self.views, self.shown = {}, None


def spilling() -> Sequence[str]:
    """Returns the settings of a connection that takes THREAD_MB for each thread, or half of it (`read_sparingly`), and
    more in a folder of its own, which DuckDB makes and removes; none where there is no temporary folder."""
    try:
        folder = Path(tempfile.gettempdir(), f"stepscope-spill-{os.getpid()}-{secrets.token_hex(4)}")
    except OSError:
        return ()
    memory = THREAD_MB * int(str(CONFIG["threads"])) * _share.get()
    return f"SET memory_limit = '{memory:.0f}MB'", f"SET temp_directory = {quote(str(folder))}"


def read_sparingly(path: Path, read: Callable[[], T]) -> T:
    """Returns what `read` returns. Its readers have half of their memory until that is too little for this file."""
    if path not in _needy:
        token = _share.set(0.5)
        try:
            return read()
        except duckdb.OutOfMemoryException:
            _needy.add(path)
        finally:
            _share.reset(token)
    return read()


#: The files that are not read within half of the memory.
_needy: set[Path] = set()
#: The one that has not been used for longest comes first.
_idle: list[Taken] = []
_lock = threading.Lock()
#: What a forked process may not even close.
_of_parent: list[Taken] = []


@contextlib.contextmanager
def take_connection(*paths: Path, folder: Path | None = None, limits: Sequence[str] = ()) -> Iterator[Taken]:
    """Yields a connection with nothing attached that can open these files; no other caller gets it meanwhile. One that
    reaches further, into a folder, or has limits of its own does not stay open."""
    # A link that leads elsewhere by now is another file.
    files = tuple(file for path in paths for file in (path, Spool(path).half, Path(os.path.realpath(path))))
    if folder is not None or limits:
        own = Taken(files=files, folder=folder, limits=limits)
        with own.opened:
            yield own
        return
    with _lock:
        # The one that was used last has views of the latest rows.
        fitting = [one for one in _idle if (one.files, one.share) == (files, _share.get())]
        for one in fitting[-1:]:
            _idle.remove(one)
    taken = fitting[-1] if fitting else Taken(files=files)
    try:
        yield taken
    except BaseException:
        taken.opened.close()  # an error may have ended it
        raise
    with _lock:
        _idle.append(taken)
        surplus = [_idle.pop(0) for _ in range(len(_idle) - KEPT)]
    for one in surplus:
        one.opened.close()


@atexit.register
def close_all() -> None:
    """Closes what nobody uses just now."""
    while _idle:
        _idle.pop().opened.close()


def _leave_to_parent() -> None:
    global _lock
    _of_parent.extend(_idle)
    _idle.clear()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_leave_to_parent)


@contextlib.contextmanager
def take_turn() -> Iterator[None]:
    """Waits until fewer than AT_ONCE threads of this process read. A reader within a reader has its turn already."""
    if _has_turn.get():
        yield
        return
    with _turns:
        token = _has_turn.set(True)
        try:
            yield
        finally:
            _has_turn.reset(token)


#: How many results are remembered.
KEPT_RESULTS = 32
_known: dict[tuple[str, str], Any] = {}


def mark(con: DuckDBPyConnection, **states: str) -> None:
    """Says which `state` of which rows the views of a connection show, and since which earlier one, the `origin`, rows
    have only been added."""
    for name, state in states.items():
        con.execute(f"SET VARIABLE rows_{name} = {quote(state)}")


def remember(con: DuckDBPyConnection, name: str, compute: Callable[[], T]) -> T:
    """Returns the result that `compute` had for the same rows; computes it where there is none, and where nobody has
    marked the state."""
    if (key := _find_key(con, "state", name)) is None:
        return compute()
    if key not in _known:
        _keep(key, compute())
    return cast(T, _known[key])


def remember_runs(
    con: DuckDBPyConnection, name: str, states: Mapping[UUID, object], compute: Callable[[list[UUID]], Mapping[UUID, T]]
) -> dict[UUID, T]:
    """Returns a result for each of the runs in `states`, in their order. `compute` gets those whose state is another
    than the last time, and all where rows may have been changed in place since."""
    if (key := _find_key(con, "origin", name)) is None:
        return dict(compute(list(states)))
    known: Mapping[UUID, tuple[object, T]] = _known.get(key, {})
    missing = [run for run, state in states.items() if run not in known or known[run][0] != state]
    computed = compute(missing) if missing else {}
    found = {run: (state, computed[run] if run in computed else known[run][1]) for run, state in states.items()}
    _keep(key, found)
    return {run: result for run, (_, result) in found.items()}


def _find_key(con: DuckDBPyConnection, marked: str, name: str) -> tuple[str, str] | None:
    """Returns by what a result is remembered; None where nobody has marked that state."""
    (state,) = con.execute(f"SELECT getvariable('rows_{marked}')").fetchone() or (None,)
    return None if state is None else (str(state), name)


def _keep(key: tuple[str, str], found: object) -> None:
    _known.pop(key, None)
    while len(_known) >= KEPT_RESULTS:
        _known.pop(next(iter(_known)), None)
    _known[key] = found
