"""What every table of cells shares: a cell, the row that it becomes, and rows that came with it.

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
    """The time of day as every table stores it: UTC, without a zone attached."""
    return datetime.now(UTC).replace(tzinfo=None)


def new_id() -> UUID:
    """A UUIDv7: sorts by the millisecond it was made in (RFC 9562, section 5.7)."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    version, variant = 0x7 << 76, 0b10 << 62
    return UUID(
        int=(milliseconds << 80) | version | ((random >> 62 & 0xFFF) << 64) | variant | (random & (1 << 62) - 1)
    )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is asked for. Keyed on numbers, never on a name: sizes of one name differ between editions.

    `TITLE` is what a title begins with; `AXES` are the columns through which a plan goes first, the rest following as
    the fields do."""

    TITLE = ""
    AXES = tuple[str, ...]()

    @cached_property
    def key(self) -> str:
        """16 hex digits that name this question. Only fields that differ from their default count, so that an axis
        added later leaves every older key as it was."""
        asked = {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if item.name in self.names() and (item.default is MISSING or getattr(self, item.name) != item.default)
        }
        text = json.dumps([type(self).asked().__name__, asked], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of the key's fields, also when asked of a row."""
        return tuple(item.name for item in fields(cls.asked()))

    @classmethod
    def asked(cls) -> "type[Cell]":
        """The class of what was asked for, also when asked of a row."""
        return next(base for base in cls.__mro__ if issubclass(base, Cell) and not issubclass(base, Row))

    def normalized(self) -> Self:
        """The same cell without what means nothing to it."""
        return self

    def remarks(self) -> list[str]:
        """What a title says beside values."""
        return []


@dataclass(frozen=True, kw_only=True)
class Row(Cell):
    """What came of a cell, whichever experiment asked. A failure keeps its whole key, the phase and the message."""

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
            "What sets the time of a step in a loop: device, where the device works for 90% of it or more, else host, "
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
    """A row that belongs to a cell and came with it: its times, its samples, its allocations."""

    run_id: Annotated[UUID, Column("Run", "", "The run of the cell that it belongs to.")]
    cell_id: Annotated[UUID, Column("Cell", "", "The cell, or the imported timeline, that it belongs to.")]
