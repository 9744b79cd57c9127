"""Connections that stay open between readers: opening one and making its views is most of what a short reader takes.

    with take_connection(path) as taken:               # one that nobody uses just now, or a new one
        with attach(taken.con, path, access="READ_ONLY", deadline=deadline): ...

Each takes a limited memory, and what a query needs beyond that lies in a temporary file, so that ten readers of a large
file do not take ten times what one of them would like to. A connection is attached to the file only while somebody uses
it, so that a sweep gets its rows in between two readers, and the next one sees them. The last KEPT of a process stay
open. A process that was forked opens its own: DuckDB's threads are not in it.
"""

import atexit
import contextlib
import os
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import duckdb
from duckdb import DuckDBPyConnection

from runner.store.attached import CONFIG, connect, quote
from runner.store.spool import Spool

KEPT = 4
#: The memory (MB) of a connection for each of its threads. A quarter of it was too little to read a million cells.
THREAD_MB = 128
T = TypeVar("T")

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
    more in a folder of its own, which DuckDB makes when it needs it, and removes; none where there is no temporary
    folder."""
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
def take_connection(path: Path | None) -> Iterator[Taken]:
    """Yields a connection with nothing attached that can open this file; no other caller gets it meanwhile."""
    # A link that leads elsewhere by now is another file.
    files = (path, Spool(path).half, path.resolve()) if path else ()
    taken = _find(files) or Taken(files=files)
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


def _find(files: tuple[Path, ...]) -> Taken | None:
    with _lock:
        # The one that was used last has views of the latest rows.
        asked = (files, _share.get())
        places = reversed(range(len(_idle)))
        place = next((place for place in places if (_idle[place].files, _idle[place].share) == asked), None)
        return None if place is None else _idle.pop(place)


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
