"""Opens the SQLite export of an Nsight Systems report that somebody else made, for reading only and within limits.

    with open_export(Path("report.sqlite")) as export:
        print(export.gpu(), export.private())

    nsys export --type sqlite --output report.sqlite report.nsys-rep

The schema is the one that NVIDIA documents ("SQLite Export Schema Reference"); an export lacks empty tables. Only plain
tables count, because a view or a virtual table would be executed. Limits: a text of TEXT_BYTES, SECONDS of reading, and
HEAP_BYTES of SQLite's own memory, for this process from then on. Standard library only.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

from runner.errors import UsageError

#: The longest text, the longest time of reading (s), and the most memory of SQLite.
TEXT_BYTES, SECONDS, HEAP_BYTES = 1_000_000, 300.0, 512 * 2**20
_NAME_LENGTH = 4_000

#: Tables about who recorded what, where and with what settings, under their names of 2022 and since; never read.
PRIVATE = (
    "TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE", "META_DATA_EXPORT", "EXPORT_META_DATA", "ANALYSIS_FILE", "PROCESSES",
    "PROCESS_STREAMS", "ProcessStreams", "ThreadNames", "DIAGNOSTIC_EVENT", "TARGET_INFO_NIC_INFO", "NIC_ID_MAP",
    "OSRT_API",
)  # fmt: skip


class Export:
    """An open export: its tables and their columns."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        plain = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
        self.columns = {
            name: [column for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", [name])]
            for (name,) in connection.execute(plain).fetchmany(2_000)
        }

    def list_views(self) -> list[str]:
        """Returns the tables of what ran that are no plain ones here, and so are not read."""
        known = "SELECT name FROM sqlite_master WHERE name LIKE 'CUPTI_ACTIVITY_KIND_%' ORDER BY name"
        return [
            clean_name(name) for (name,) in self.connection.execute(known).fetchmany(99) if name not in self.columns
        ]

    def has(self, table: str, *columns: str) -> bool:
        return table in self.columns and set(columns) <= set(self.columns[table])

    def private(self) -> list[str]:
        """Returns the tables of PRIVATE that have a row, with their columns and no value of theirs."""
        return [
            f"{name} ({', '.join(self.columns[name][:8])})"
            for name in PRIVATE
            if name in self.columns and self.connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone()
        ]

    def gpu(self) -> tuple[str | None, int | None]:
        """Returns the name and the memory (bytes) of the GPU, of several the one that ran the kernels; None where that
        is not exactly one kind."""
        if not self.has("TARGET_INFO_GPU", "name", "totalMemory"):
            return None, None
        ran = ""
        if self.has("TARGET_INFO_GPU", "id") and self.has("CUPTI_ACTIVITY_KIND_KERNEL", "deviceId"):
            ran = "WHERE id IN (SELECT deviceId FROM CUPTI_ACTIVITY_KIND_KERNEL)"
        gpus = self.connection.execute(f"SELECT DISTINCT name, totalMemory FROM TARGET_INFO_GPU {ran}").fetchmany(2)
        if len(gpus) != 1 or not isinstance(gpus[0][0], str):
            return None, None
        name, memory = gpus[0]
        return clean_name(name)[:200], memory if isinstance(memory, int) and 0 < memory < 2**62 else None


@contextlib.contextmanager
def open_export(path: Path) -> Iterator[Export]:
    """Yields the export at `path`. Raises UsageError when the file is no such export, also from within the block."""
    ends, uri = time.monotonic() + SECONDS, f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, TEXT_BYTES)
            connection.text_factory = lambda text: text.decode("utf-8", "replace")
            connection.set_progress_handler(lambda: time.monotonic() > ends, 100_000)
            limit = f"hard_heap_limit = {HEAP_BYTES}"
            for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", limit):
                connection.execute(f"PRAGMA {setting}")
            yield Export(connection)
    except MemoryError:
        raise refusal(path, f"a database that needs more than {HEAP_BYTES // 2**20} MiB") from None
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:  # a message may hold bytes of the file
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
    """Returns at most 4,000 characters of a name, with spaces in place of control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in name[:_NAME_LENGTH]).strip()
