"""Finished cells on disk, safe from kill -9, until they are in the database file.

Beside `results.duckdb` lies the folder `results.duckdb.spool/` with one JSON file for each finished cell,
`{"steps": [{...}], "timings": [...], "samples": [...]}`, and `plan-<run>.json` for each sweep that is running.

    >>> spool = Spool("data/results.duckdb")
    >>> spool.write({"steps": [row], "samples": samples}, str(row.cell_id))

Limits: a local file system with `flock` (Linux, macOS). Values keep their type and text, except that NaN and infinity
become NULL. Standard library only.
"""

import contextlib
import errno
import fcntl
import json
import math
import operator
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from runner.errors import StoreError
from runner.places import explain_place
from runner.schema import TABLES

#: The pause between two attempts at a lock (s).
RETRY_S = 0.002
#: A write takes milliseconds, so a temporary file of this age is left over from a process that was killed (s).
LEFTOVER_AGE_S = 60.0
#: The age of a heartbeat after which a sweep counts as interrupted (s).
STALE_S = 15.0
_UNREAD = "Let this user read it (chmod a+rX), or run the sweep and the dashboard as one user."
_TEMPORARY, _PLAN, _TURN = ".tmp", "plan-", ".turn"
#: The ending of a file that cannot be read: it blocks no other file and is not lost.
SET_ASIDE = ".bad"


class Spool:
    """The folder of finished cells of one database file. Making a `Spool` touches no file."""

    def __init__(self, db_path: Path | str) -> None:
        path = Path(db_path).absolute()
        self.folder = path.with_name(path.name + ".spool")
        #: Where a new results file is made, so that a kill never leaves half of one.
        self.half = self.folder / ".new.duckdb"

    def write(self, rows: Mapping[str, Sequence[object]], name: str) -> None:
        """Writes the rows of one finished cell. On return they survive a crash of the process or the machine.

        `rows` maps names of stored tables to their rows; `name` names the file, such as the cell's id. Raises OSError
        when the disk is full, and then leaves nothing behind."""
        self.write_document(to_document(rows), name)

    def write_document(self, document: Mapping[str, Sequence[object]], name: str) -> None:
        """As `write`, for what `to_document` made of the rows."""
        assert document, "a finished cell has rows"
        assert all(TABLES[table].stored for table in document), f"not stored tables: {list(document)}"
        assert not name.startswith((".", _PLAN)), f"a name the spool keeps for itself: {name}"
        self._replace(self.folder / f"{name}.json", document, durable=True)
        sync_folder(self.folder)

    def files(self) -> list[Path]:
        """Returns the finished cells' files, oldest name first."""
        return [path for path in self._json() if not path.name.startswith(_PLAN)]

    def write_plan(self, rows: Sequence[object], run_id: UUID) -> None:
        """Replaces the `plan` rows of one sweep. Readers see the old rows or the new ones, never half of them."""
        self._replace(self._plan(run_id), to_document({"plan": rows}), durable=False)

    def remove_plan(self, run_id: UUID) -> None:
        self._plan(run_id).unlink(missing_ok=True)

    def plans(self) -> list[Path]:
        """Returns the plans' files of sweeps that are running or were interrupted."""
        return [path for path in self._json() if path.name.startswith(_PLAN)]

    def find_unreadable(self) -> dict[str, str]:
        """Returns what this user cannot read here, by name, and why: the folder or files. Readers leave it out."""
        denied, found = f"{os.strerror(errno.EACCES)}. {_UNREAD}", {}
        if os.path.isdir(self.folder) and not os.access(self.folder, os.R_OK | os.X_OK):
            return {self.folder.name: denied}
        if os.path.lexists(self.folder) and not os.path.isdir(self.folder):
            return {self.folder.name: explain_place(self.folder) or "it is a file"}
        for file in self._json():
            if why := explain_place(file):
                found[file.name] = why
            elif not os.access(file, os.R_OK) and file.exists():
                found[file.name] = denied
        return found

    def check_readable(self) -> None:
        """Raises StoreError where finished cells cannot be read, for whoever needs all of them."""
        for name, why in self.find_unreadable().items():
            if not name.startswith(_PLAN):
                raise StoreError(f"{name} beside {self.folder.stem} cannot be read: {why.removesuffix('.')}.")

    def leftovers(self) -> list[Path]:
        """Returns half-written files of writers that were killed."""
        found = []
        for path in sorted(self.folder.glob(f"*{_TEMPORARY}")):
            with contextlib.suppress(FileNotFoundError):
                if abs(time.time() - path.stat().st_mtime) > LEFTOVER_AGE_S:  # the clock may have been set back
                    found.append(path)
        return found

    def remove_leftovers(self) -> None:
        for path in self.leftovers():
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def lock(self, kind: Literal["shared", "exclusive"], *, patience_s: float) -> Iterator[bool]:
        """Locks the folder: readers share it, an ingest has it alone. Yields whether it got the lock in time.

        DuckDB's own POSIX lock is not enough: a process loses it for all its threads as soon as one of them closes the
        file. This `flock` belongs to the open folder and ends with its holder. Whoever waits for it holds `.turn`, so
        that a writer gets in between readers that come and go. Without a folder a reader has nothing to lock and gets
        True."""
        operation = fcntl.LOCK_SH if kind == "shared" else fcntl.LOCK_EX
        deadline = time.monotonic() + patience_s
        if kind == "exclusive":
            self.folder.mkdir(parents=True, exist_ok=True)
            if not (self.folder / _TURN).exists():
                (self.folder / _TURN).touch()
        with _open(self.folder) as folder:
            with _open(self.folder / _TURN) as turn:
                locked = _flock(turn, operation, deadline) and _flock(folder, operation, deadline)
            yield locked

    def _plan(self, run_id: UUID) -> Path:
        return self.folder / f"{_PLAN}{run_id}.json"

    def _json(self) -> list[Path]:
        with contextlib.suppress(OSError):
            names = sorted(os.listdir(self.folder))
            return [self.folder / name for name in names if name.endswith(".json") and not name.startswith(".")]
        return []

    def _replace(self, target: Path, document: Mapping[str, Sequence[object]], *, durable: bool) -> None:
        content = json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii")
        self.folder.mkdir(parents=durable, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{os.getpid()}{_TEMPORARY}")
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            temporary.replace(target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a crash of the machine, as fsync does for the content of its files."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[int | None]:
    """Yields a file descriptor to lock, None if there is nothing that can be opened. Closing it releases the lock."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


def _flock(handle: int | None, operation: int, deadline: float) -> bool:
    while handle is not None:
        try:
            fcntl.flock(handle, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(RETRY_S)
        except OSError:
            break  # some network file systems lock no folder; DuckDB's own lock remains
        else:
            break
    return True


def to_document(rows: Mapping[str, Sequence[object]]) -> dict[str, list[dict[str, object]]]:
    """Returns rows by table as a spool file holds them. Raises for a value of another type than its column's, in the
    process that made the mistake."""
    document = {}
    for name, table_rows in rows.items():
        table = TABLES[name]
        assert all(type(row) is table.row for row in table_rows), f"not all rows of {name} are {table.row.__name__}"
        encoders = [
            (c.name, partial(_encode_text, longest=c.longest) if c.type is str else _ENCODERS[c.type])
            for c in table.columns
        ]
        document[name] = [
            {key: encode(value) for key, encode in encoders if (value := getattr(row, key)) is not None}
            for row in table_rows
        ]
    return document


def _encode_integer(value: Any) -> int:
    number = operator.index(value)
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"{number} does not fit into 64 bits")
    return number


def _encode_text(value: str, *, longest: int) -> str:
    """Escapes bytes that are no Unicode, as file names and other programs' messages may hold; JSON readers refuse them.
    Cuts a text that is too long for its column, but none that is itself JSON: that is refused later."""
    content = value.encode("utf-8", "backslashreplace")
    if len(content) <= longest or value[:1] in ("{", "["):
        return content.decode("utf-8")
    return content[: longest - 3].decode("utf-8", "ignore") + "…"


_ENCODERS: Mapping[type, Callable[[Any], object]] = {
    UUID: lru_cache(1000)(str),  # many rows share the ids of their run and cell
    int: _encode_integer,
    float: lambda value: float(value) if math.isfinite(value) else None,
    bool: bool,
    datetime: datetime.isoformat,
}
