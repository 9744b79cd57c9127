"""The base classes of every table of cells: a cell, its row, the rows that belong to it; and the table itself.

    class StepRow(StepCell, Row): ...

    Table("steps", StepRow, words="training steps", timed=True)

Standard library only.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from typing import Self
from uuid import UUID

from runner.schema.choices import Bound, Phase, Status, StoppedBy
from runner.schema.columns import Column, Flag, column, columns_of, describe


def utc_now() -> datetime:
    """Returns the time of day as every table stores it: UTC, without a zone attached."""
    return datetime.now(UTC).replace(tzinfo=None)


#: The latest millisecond of an id of this process.
_latest = 0


def new_id() -> UUID:
    """Returns a UUIDv7, which sorts by the millisecond of its making (RFC 9562, section 5.7), and after all that this
    process made before, even where the clock was set back meanwhile."""
    global _latest
    milliseconds = time.time_ns() // 1_000_000
    _latest = milliseconds if milliseconds >= _latest else _latest + 1
    random = int.from_bytes(os.urandom(10), "big")
    version, variant = 0x7 << 76, 0b10 << 62
    high, low = random >> 62 & 0xFFF, random & (1 << 62) - 1
    return UUID(int=(_latest << 80) | version | (high << 64) | variant | low)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One combination of settings that is measured once. Its key rests on numbers, never on a name, because sizes of
    one name differ between editions.

    `TITLE` is the format of the first part of its title. `AXES` are the columns that vary slowest in a plan; the other
    columns follow in the order of the fields."""

    TITLE = ""
    AXES = tuple[str, ...]()

    @cached_property
    def key(self) -> str:
        """The cell's name as 16 hex digits. Only fields that differ from their default count, so that an axis added
        later leaves every older key as it was."""
        keyed = {*self.names()} - self.unkeyed()
        asked = {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if item.name in keyed and (item.default is MISSING or getattr(self, item.name) != item.default)
        }
        text = json.dumps([type(self).asked().__name__, asked], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Returns the names of the key's fields, for a row's class too."""
        return tuple(item.name for item in fields(cls.asked()))

    @classmethod
    def asked(cls) -> "type[Cell]":
        """Returns the class of the cell, for a row's class too."""
        return next(base for base in cls.__mro__ if issubclass(base, Cell) and not issubclass(base, Row))

    def unkeyed(self) -> frozenset[str]:
        """Returns the names of fields that follow from others and are no part of the key."""
        return frozenset()

    def normalized(self) -> Self:
        """Returns the same cell with default values in fields that do not affect it."""
        return self

    def remarks(self) -> list[str]:
        """Returns the parts of a title beside values."""
        return []


@dataclass(frozen=True, kw_only=True)
class Row(Cell):
    """The result of a cell, in every experiment. A failed cell keeps its whole key, the phase and the message."""

    run_id: UUID = field(metadata=describe("Run", "", "The sweep that measured this row."))
    cell_id: UUID = field(metadata=describe("Cell", "", "This row's own id (UUIDv7)."))
    cell_key: str = field(metadata=describe("Cell key", "", "Hash of what was asked for; repeats and rounds share it."))
    round: int = column("Round", "", "Which of the interleaved repetitions this is, from 0.", default=0)
    status: Status = field(metadata=describe("Status", "", "ok, or the way in which the cell ended without a result."))
    failed_phase: str | None = column("Failed in", "", "What the cell was doing when it failed.")
    message: str | None = column("Message", "", "Why the cell has no result, in one sentence or the error's own words.")
    started_at: datetime | None = column("Started", "", "When the cell's process was started (UTC).")
    cell_seconds: float | None = column("Cell time", "s", "From the start of the cell's process to its row.")
    ingested_at: datetime | None = column("Ingested", "", "When the row reached this file (UTC).")


@dataclass(frozen=True, kw_only=True)
class BuiltRow(Row):
    """A row whose cell was built and then measured."""

    predicted_peak_bytes: int | None = column("Predicted peak", "bytes", "Peak memory predicted before the run.")
    build_seconds: float | None = column("Build time", "s", "Making what was measured and its data.")
    measure_seconds: float | None = column("Measuring time", "s", "All that was measured.")


@dataclass(frozen=True, kw_only=True)
class TimedRow(BuiltRow):
    """A row whose cell was timed: how long, what set its time, and what the system did meanwhile."""

    steps: int | None = column("Measured steps", "steps", "Measured steps; warm-up not counted.")
    stopped_by: StoppedBy | None = column(
        "Stopped by", "", "Why measuring ended: the median's interval was narrow enough, or a limit was reached."
    )
    warmup_seconds: float | None = column("Warm-up time", "s", "The warm-up steps, compilation included.")
    unwaited_seconds: float | None = column("Loop's time", "s", "The steps of the loop, and the one that was traced.")
    compile_seconds: float | None = column("Compile time", "s", "First step minus the median one; compiled only.")
    compile_threads: int | None = column(
        "Compiled in parallel",
        "",
        "How many kernels the compiler could build at once: one for each core, up to 32, if "
        "`TORCHINDUCTOR_COMPILE_THREADS` does not say otherwise. Unknown in older rows, where it was 1; compiled only.",
    )
    bound: Bound | None = column(
        "Bound by",
        "",
        "What sets the time of a step in a loop: device, where the device works for 95% of it or more, else host, for "
        "which the device waits; CUDA only.",
    )
    device_share: float | None = column("Device share", "", "Device time over the time of a step in a loop; CUDA only.")
    page_faults: float | None = column("Page faults", "", "Pages that a measured step got from the system, on average.")
    context_switches: float | None = column(
        "Context switches", "", "Times that a measured step lost its core to others, on average."
    )
    peak_allocated_bytes: int | None = column("Peak allocated", "bytes", "Peak of live tensors (CUDA allocator).")
    peak_reserved_bytes: int | None = column("Peak reserved", "bytes", "Peak held by the CUDA caching allocator.")


@dataclass(frozen=True, kw_only=True)
class Detail:
    """A row that belongs to a cell, such as one of its times, samples or allocations."""

    run_id: UUID = field(metadata=describe("Run", "", "The run of the cell that it belongs to."))
    cell_id: UUID = field(metadata=describe("Cell", "", "The cell, or the imported timeline, that it belongs to."))


@dataclass(frozen=True)
class Table:
    """A table of the file, described by its row's docstring. `unique` are the columns that identify a row; `stored` is
    False for a table of the spool.

    The rest is for tables of cells. `words` is what links to the earlier Explore call the rows, empty where it did not
    show them. `numbers` names the columns that answers rest on, by default all numbers. `timed` tables have rows in
    `timings`, where the phase `whole` stands for a whole cell. `first` is an order in SQL where only the first of the
    rows with equal config fields counts, instead of every round. `named` are the cells that a flag sets by name. The
    rows of a `published` table were measured by others, and no filter of a page applies to them."""

    name: str
    row: type
    _: KW_ONLY
    unique: tuple[str, ...] = ("cell_id",)
    stored: bool = True
    words: str = ""
    numbers: str = ""
    timed: bool = False
    whole: Phase = "step"
    first: str = ""
    published: bool = False
    named: tuple[Flag, Mapping[str, Cell]] | None = field(default=None, compare=False)

    @property
    def doc(self) -> str:
        return " ".join((self.row.__doc__ or "").split())

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return columns_of(self.row)

    @property
    def cell(self) -> type[Cell]:
        """The class of the cells, for a table of cells."""
        assert issubclass(self.row, Cell)
        return self.row.asked()

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The names of the key's columns; empty for a table whose rows are not cells."""
        return self.row.names() if issubclass(self.row, Cell) else ()

    @cached_property
    def effort(self) -> tuple[Column, ...]:
        """The effort fields of the key: how long and how carefully a cell was measured."""
        return tuple(column for column in self.columns if column.effort)

    @cached_property
    def question(self) -> tuple[str, ...]:
        """The names of the config fields of the key: what was measured."""
        return tuple(name for name in self.key if not self.column(name).effort)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns)

    @cached_property
    def told(self) -> tuple[str, ...]:
        """The names of the columns that answers rest on, in the order of showing."""
        rest = {column.name for column in columns_of(Row)} | {*self.key}
        own = [column.name for column in self.columns if column.type in (int, float) and column.name not in rest]
        return tuple(self.numbers.split() or own)

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)
