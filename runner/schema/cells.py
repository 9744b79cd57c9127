"""The base classes of every table of cells: a cell, its row, and the rows that belong to it.

    class StepRow(StepCell, Row): ...

Standard library only.
"""

import hashlib
import json
import os
import time
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Self
from uuid import UUID

from runner.schema.choices import Bound, Status
from runner.schema.columns import Column


def utc_now() -> datetime:
    """Returns the time of day as every table stores it: UTC, without a zone attached."""
    return datetime.now(UTC).replace(tzinfo=None)


#: The latest millisecond of an id of this process.
_latest = 0


def _next_millisecond(milliseconds: int) -> int:
    global _latest
    _latest = milliseconds if milliseconds >= _latest else _latest + 1
    return _latest


def new_id() -> UUID:
    """Returns a UUIDv7, which sorts by the millisecond of its making (RFC 9562, section 5.7), and after all that this
    process made before, even where the clock was set back meanwhile."""
    milliseconds = _next_millisecond(time.time_ns() // 1_000_000)
    random = int.from_bytes(os.urandom(10), "big")
    version, variant = 0x7 << 76, 0b10 << 62
    high, low = random >> 62 & 0xFFF, random & (1 << 62) - 1
    return UUID(int=(milliseconds << 80) | version | (high << 64) | variant | low)


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

    run_id: Annotated[UUID, Column("Run", "", "The sweep that measured this row.")]
    cell_id: Annotated[UUID, Column("Cell", "", "This row's own id (UUIDv7).")]
    cell_key: Annotated[str, Column("Cell key", "", "Hash of what was asked for; repeats and rounds share it.")]
    round: Annotated[int, Column("Round", "", "Which of the interleaved repetitions this is, from 0.")] = 0
    status: Annotated[Status, Column("Status", "", "ok, or the way in which the cell ended without a result.")]
    failed_phase: Annotated[str | None, Column("Failed in", "", "What the cell was doing when it failed.")] = None
    message: Annotated[
        str | None, Column("Message", "", "Why the cell has no result, in one sentence or the error's own words.")
    ] = None
    started_at: Annotated[datetime | None, Column("Started", "", "When the cell's process was started (UTC).")] = None
    cell_seconds: Annotated[
        float | None, Column("Cell time", "s", "From the start of the cell's process to its row.")
    ] = None
    ingested_at: Annotated[datetime | None, Column("Ingested", "", "When the row reached this file (UTC).")] = None


@dataclass(frozen=True, kw_only=True)
class TimedRow(Row):
    """A row whose cell was timed: what set its time, and what the system did meanwhile."""

    bound: Annotated[
        Bound | None,
        Column(
            "Bound by",
            "",
            "What sets the time of a step in a loop: device, where the device works for 95% of it or more, else host, "
            "for which the device waits; CUDA only.",
        ),
    ] = None
    device_share: Annotated[
        float | None, Column("Device share", "", "Device time over the time of a step in a loop; CUDA only.")
    ] = None
    page_faults: Annotated[
        float | None,
        Column("Page faults", "", "Pages that the system gave the process in a measured step, on average."),
    ] = None
    context_switches: Annotated[
        float | None,
        Column(
            "Context switches", "", "Times that the process lost its core to another in a measured step, on average."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Detail:
    """A row that belongs to a cell, such as one of its times, samples or allocations."""

    run_id: Annotated[UUID, Column("Run", "", "The run of the cell that it belongs to.")]
    cell_id: Annotated[UUID, Column("Cell", "", "The cell, or the imported timeline, that it belongs to.")]
