"""Opens the SQLite export of an Nsight Systems report that somebody else made: for reading only, for so long, so much.

    with opened(Path("report.sqlite")) as export:
        print(export.gpu(), export.private())

    nsys export --type sqlite --output report.sqlite report.nsys-rep

The schema is the one that NVIDIA documents ("SQLite Export Schema Reference"); tables are there when they hold
something. Only plain tables count: a view or a virtual table of a table's name is somebody's program. Limits: a text of
TEXT_BYTES, SECONDS of reading, and HEAP_BYTES of SQLite's own memory, which this process keeps to from then on.
Standard library only.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from runner.errors import UsageError

#: How long a text may be, how long reading may take, and how much memory SQLite may take.
TEXT_BYTES, SECONDS, HEAP_BYTES = 1_000_000, 300.0, 512 * 2**20
_NAME_LENGTH = 4_000

#: Tables that say who recorded what, where and with what settings: they are not read, only counted. What a process
#: printed and how the file was made have other names in exports of 2022 than in later ones.
PRIVATE = (
    "TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE", "META_DATA_EXPORT", "EXPORT_META_DATA", "ANALYSIS_FILE",
    "PROCESSES", "PROCESS_STREAMS", "ProcessStreams", "ThreadNames", "DIAGNOSTIC_EVENT", "TARGET_INFO_NIC_INFO",
    "NIC_ID_MAP", "OSRT_API",
)  # fmt: skip


class Export:
    """An export that has been opened: its tables and their columns."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        plain = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
        self.columns = {
            name: [column for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", [name])]
            for (name,) in connection.execute(plain).fetchmany(2_000)
        }

    def has(self, table: str, *columns: str) -> bool:
        return set(columns) <= set(self.columns.get(table, ())) and table in self.columns

    def private(self) -> list[str]:
        """The tables of `PRIVATE` that hold something, with their columns; no value of theirs."""
        held = (name for name in PRIVATE if name in self.columns)
        return [f"{name} ({', '.join(self.columns[name][:8])})" for name in held if self._first(name)]

    def gpu(self) -> tuple[str | None, int | None]:
        """The name and the memory (bytes) of the GPU, where the export names exactly one kind."""
        if not self.has("TARGET_INFO_GPU", "name", "totalMemory"):
            return None, None
        found = self.connection.execute("SELECT DISTINCT name, totalMemory FROM TARGET_INFO_GPU").fetchmany(2)
        if len(found) != 1 or not isinstance(found[0][0], str):
            return None, None
        name, memory = found[0]
        return clean_name(name)[:200], memory if isinstance(memory, int) and 0 < memory < 2**62 else None

    def _first(self, table: str) -> bool:
        return self.connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None


@contextlib.contextmanager
def open_export(path: Path) -> Iterator[Export]:
    """The export at `path`, for reading only. Raises UsageError when it is none, within and afterwards."""
    ends = time.monotonic() + SECONDS
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
                                ) as connection:  # fmt: skip
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, TEXT_BYTES)
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            connection.set_progress_handler(lambda: time.monotonic() > ends, 100_000)
            limit = f"hard_heap_limit = {HEAP_BYTES}"
            for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", limit):
                connection.execute(f"PRAGMA {setting}")
            yield Export(connection)
    except MemoryError:
        raise refusal(path, f"a database that needs more than {HEAP_BYTES // 2**20} MiB") from None
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:  # its own words may hold bytes of the file
        slow = f"more than {SECONDS:.0f} s of reading" if str(error) == "interrupted" else str(error)
        raise refusal(path, slow) from None


def refusal(path: Path, got: str, *, expected: str = "the SQLite export of a report with CUDA kernels") -> UsageError:
    return UsageError(
        f"{path} is not an export of Nsight Systems that can be read: got {got}.",
        expected=expected,
        do="Record with `nsys profile --trace=cuda,nvtx …`, then `nsys export --type sqlite --output FILE REPORT`.",
    )


@lru_cache(maxsize=16_384)
def clean_name(name: str) -> str:
    """A name without control characters, and not longer than anybody reads."""
    return "".join(letter if letter.isprintable() else " " for letter in name[:_NAME_LENGTH]).strip()
