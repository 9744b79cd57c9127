"""Where a finished cell waits, safe from kill -9, until it is in the database file.

Beside `results.duckdb` lies the folder `results.duckdb.spool/` with one JSON file for each finished cell,
`{"steps": [{...}], "timings": [...], "samples": [...]}`, and `plan-<run>.json` for each sweep that is running.

    >>> spool = Spool("data/results.duckdb")
    >>> spool.write({"steps": [row], "samples": samples}, str(row.cell_id))

Limits: a local file system with `flock` (Linux, macOS). A value keeps its type and its text, except that NaN and
infinity become NULL. Standard library only.
"""

import contextlib
import fcntl
import json
import math
import operator
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Literal
from uuid import UUID

from runner.schema import TABLES

#: How long one waits between two attempts at a lock.
RETRY_S = 0.002

_TEMPORARY, _PLAN, _BAD, _TURN = ".tmp", "plan-", ".bad", ".turn"


class Spool:
    """The folder of finished cells that belongs to one database file. Making a `Spool` touches no file."""

    def __init__(self, db_path: Path | str) -> None:
        path = Path(db_path).absolute()
        self.folder = path.with_name(path.name + ".spool")

    def write(self, rows: Mapping[str, Sequence[object]], name: str) -> Path:
        """Keep the rows of one finished cell. When this returns they survive a crash of the process or the machine.

        `rows` maps names of stored tables to their rows; `name` names the file, such as the cell's id. Raises
        OSError when the disk is full, and then leaves nothing behind.
        """
        assert rows, "a finished cell has rows"
        assert all(TABLES[table].stored for table in rows), f"not stored tables: {list(rows)}"
        assert not name.startswith((".", _PLAN)), f"a name the spool keeps for itself: {name}"
        self.folder.mkdir(parents=True, exist_ok=True)
        target = self.folder / f"{name}.json"
        self._replace(target, _encoded(rows), durable=True)
        sync_folder(self.folder)
        return target

    def files(self) -> list[Path]:
        """The finished cells, oldest name first."""
        return sorted(path for path in self._json() if not path.name.startswith(_PLAN))

    def write_plan(self, rows: Sequence[object], run_id: UUID) -> Path:
        """Replace the `plan` rows of one sweep. Readers see the old rows or the new ones, never half."""
        self.folder.mkdir(parents=True, exist_ok=True)
        target = self._plan(run_id)
        self._replace(target, _encoded({"plan": rows}), durable=False)
        return target

    def remove_plan(self, run_id: UUID) -> None:
        """Forget the plan of a sweep that has ended."""
        self._plan(run_id).unlink(missing_ok=True)

    def plans(self) -> list[Path]:
        """The plans of the sweeps that are running or were interrupted."""
        return sorted(path for path in self._json() if path.name.startswith(_PLAN))

    def set_aside(self, path: Path) -> Path:
        """Rename a file that cannot be read to `*.bad`, so that it blocks no other and is not lost either."""
        return path.rename(path.with_name(path.name + _BAD))

    def remove_leftovers(self, *, older_than_s: float = 60.0) -> int:
        """Remove what writers that were killed left half-written; a write takes milliseconds, so old means dead."""
        removed = 0
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self.folder):
                with contextlib.suppress(FileNotFoundError):
                    if entry.name.endswith(_TEMPORARY) and time.time() - entry.stat().st_mtime > older_than_s:
                        os.unlink(entry)
                        removed += 1
        return removed

    @contextlib.contextmanager
    def lock(self, kind: Literal["shared", "exclusive"], *, patience_s: float) -> Iterator[bool]:
        """Hold the folder: readers share it, whoever ingests has it alone. Yields whether it could be had in time.

        DuckDB's own lock is not enough: it is POSIX's, which a process loses for all its threads as soon as one of
        them closes the file. This one (`flock` on the folder) belongs to the open folder and dies with its holder.
        Whoever waits for it holds the turn, so that readers who come and go without pause still let a writer in.
        A reader without a folder has nothing to hold and gets True.
        """
        operation = fcntl.LOCK_SH if kind == "shared" else fcntl.LOCK_EX
        deadline = time.monotonic() + patience_s
        if kind == "exclusive":
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / _TURN).touch()
        with _opened(self.folder) as folder:
            with _opened(self.folder / _TURN) as turn:
                held = _flock(turn, operation, deadline) and _flock(folder, operation, deadline)
            yield held

    def _plan(self, run_id: UUID) -> Path:
        return self.folder / f"{_PLAN}{run_id}.json"

    def _json(self) -> list[Path]:
        try:
            names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [self.folder / name for name in names if name.endswith(".json") and not name.startswith(".")]

    def _replace(self, target: Path, content: bytes, *, durable: bool) -> None:
        temporary = target.with_name(f".{target.name}.{os.getpid()}{_TEMPORARY}")
        try:
            with open(temporary, "wb") as file:
                _write(file, content, durable=durable)
            os.replace(temporary, target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def sync_folder(folder: Path) -> None:
    """Make the names of its files survive a crash of the machine, as fsync does for what is in them."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write(file: IO[bytes], content: bytes, *, durable: bool) -> None:
    file.write(content)
    file.flush()
    if durable:
        os.fsync(file.fileno())


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """A file descriptor to lock, None if there is nothing to open. Closing it gives the lock back."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
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


def _encoded(rows: Mapping[str, Sequence[object]]) -> bytes:
    return json.dumps(plain(rows), separators=(",", ":"), allow_nan=False).encode("ascii")


def plain(rows: Mapping[str, Sequence[object]]) -> dict[str, list[dict[str, object]]]:
    """Rows by table as a spool file holds them."""
    return {name: _plain_rows(name, table_rows) for name, table_rows in rows.items()}


def _plain_rows(name: str, rows: Sequence[object]) -> list[dict[str, object]]:
    """The rows as JSON can hold them. A value of the wrong type raises here, in the process that made the mistake."""
    table = TABLES[name]
    assert all(type(row) is table.row for row in rows), f"not all rows of {name} are {table.row.__name__}"
    encoders = [(column.name, _ENCODERS[column.type]) for column in table.columns]
    return [
        {key: encode(value) for key, encode in encoders if (value := getattr(row, key)) is not None} for row in rows
    ]


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _integer(value: Any) -> int:
    number = operator.index(value)
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"{number} does not fit into 64 bits")
    return number


def _text(value: str) -> str:
    """File names and messages of other programs may hold bytes that are no Unicode; JSON readers refuse them."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


_ENCODERS: Mapping[type, Callable[[Any], object]] = {
    UUID: str,
    int: _integer,
    float: _finite,
    str: _text,
    bool: bool,
    datetime: datetime.isoformat,
}
