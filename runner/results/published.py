"""Tables that other people published: what each row says it measured, and every figure with the text it was read from.

    table.rows[0].mean("forward")        # milliseconds, or None where the table does not state it

A table keeps the reader's path back: the file, the line, the heading and the text of the cell. Values are in base
units: milliseconds, bytes, FLOP/s, or plain numbers; a share is a fraction of 1. Unknown is None. Standard library and
the schema only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from runner.schema import FigureQuantity, FigureStatistic, PublishedSetting, Status, TableSubject

#: What a figure measures: the time of a phase or of a named kernel or range (ms), bytes of memory (by what the heading
#: calls them), a number without a unit, or a dtype (then `value` is None and `text` names it).
Quantity = FigureQuantity
Statistic = FigureStatistic
#: Ends the meaning of a column that says where a row was taken from, and nothing of what was measured.
ORIGIN = "that the row was taken from"
#: What counts as the mean of a quantity: the first of these that is stated.
MEANS: tuple[Statistic, ...] = ("mean", "median", "value")


@dataclass(frozen=True, kw_only=True)
class PublishedFigure:
    """One figure of a row. `heading` and `text` are the table's own; `remark` says what was assumed or repaired to read
    it, or why its value was refused. `variant` holds the settings that the heading states where they differ from the
    row's, as "bf16_mean_ms" does in a table with two precisions in one row. Its `part` says of which part a figure
    without a phase is: "forward" for forward_speedup, "model + forward" for model_plus_fwd_mem_mib."""

    heading: str
    text: str
    quantity: Quantity
    statistic: Statistic = "value"
    value: float | None = None
    remark: str | None = None
    variant: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """One row of a table. `line` is its line in the file, from 1. A row that ran out of memory has status "oom".

    `stated` holds every other cell that is not empty by its heading, as it is written: settings, the command, notes.
    `source` is the file and line that the row was transcribed from, where the table says so. `remarks` say what was
    assumed of the row, or where it contradicts itself."""

    row_id: UUID
    line: int
    setting: PublishedSetting
    status: Status = "ok"
    figures: Sequence[PublishedFigure] = ()
    stated: Mapping[str, str] = field(default_factory=dict)
    source: str | None = None
    remarks: Sequence[str] = ()

    def mean(self, quantity: Quantity, *, of: Sequence[Statistic] = MEANS, **variant: str | int) -> float | None:
        """Returns the mean of a quantity with exactly this variant; where the table states no mean, its median or its
        only value, or what else is asked of it."""
        found = {
            figure.statistic: figure.value
            for figure in reversed(self.figures)
            if figure.quantity == quantity and figure.variant == variant and figure.value is not None
        }
        return next((found[statistic] for statistic in of if statistic in found), None)


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """One table. `file` is the name of its file; `machine` what the table or its provenance says ran it.

    `provenance` holds what is known of how it was measured, by the columns of `provenance.csv`: `warmup_ran`,
    `std_kind`, `clock`, `memory_means`, `machine_is`. `meanings` say in words what each heading was understood to mean.
    `remarks` say what was assumed to read the table as a whole, and which rows were refused and why."""

    table_id: UUID
    title: str
    file: str
    subject: TableSubject
    rows: Sequence[PublishedRow]
    report: str | None = None
    machine: str | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    meanings: Mapping[str, str] = field(default_factory=dict)
    remarks: Sequence[str] = ()
