"""Published rows as the rules see them: one reading for each cell that a row holds, with its times and what it is of.

    report = read_report(tables)                # all tables of one report
    report.readings[0].times["forward"]         # Time(mean=34.2, std=34.4), in ms

A row with two precisions, or with eager and compiled side by side, holds two readings. What a row leaves out and the
provenance states (batch, context) is filled in. Nothing is judged here.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from runner.analysis.audit.published.provenance import Provenance, read_provenance
from runner.analysis.audit.published.sizes import Edition, find_edition, find_shape
from runner.results.published import PublishedFigure, PublishedRow, PublishedTable, Quantity, Setting
from runner.schema.sizes import Size

#: The steps that the assignment asks for, which a table that does not state them is taken to have.
ASSUMED_STEPS = {"attention": 100}
#: Of so many readings, what several rules ask is kept: more than most reports have.
REMEMBERED = 2048
TIMES: tuple[Quantity, ...] = ("forward", "loss", "backward", "optimizer", "forward_backward", "step", "duration")
_IS_TIME = frozenset(TIMES)
MEMORY: tuple[Quantity, ...] = ("peak_memory", "allocated_memory", "reserved_memory", "memory")
_DIFFERENCE: tuple[Quantity, ...] = ("forward", "backward", "forward_backward")
_IS_MEMORY = frozenset(MEMORY)
_NO_VARIANT: tuple[tuple[str, str | int], ...] = ()


class Time(NamedTuple):
    """A mean and its standard deviation, in ms."""

    mean: float
    std: float | None


class CellKey(NamedTuple):
    """What two readings must share to be of the same cell. `shape` are the numbers of the shape or, where these are not
    known, the name of the size."""

    machine: str | None
    device: str | None
    shape: tuple[int, ...] | str | None
    part: str | None
    batch: int | None
    length: int | None
    width: int | None
    mode: str | None
    precision: str | None
    backend: str | None
    implementation: str | None
    warmup: int | None
    is_profiled: bool

    def without(self, *names: str) -> tuple[object, ...]:
        """The key of all cells that differ from this one in these fields alone."""
        return _all_but(names)(self)


@cache
def _all_but(names: tuple[str, ...]) -> Callable[[CellKey], tuple[object, ...]]:
    return itemgetter(*(place for place, name in enumerate(CellKey._fields) if name not in names))


@dataclass(kw_only=True, eq=False)
class Reading:
    """One cell of one row. `memory` holds bytes by quantity and the part they are of. `steps` are those that the row
    states or, failing that, those that the assignment asks for."""

    table: PublishedTable
    row: PublishedRow
    provenance: Provenance
    setting: Setting
    key: CellKey
    shape: Size | None
    steps: int
    times: Mapping[Quantity, Time]
    memory: Mapping[tuple[Quantity, str], PublishedFigure]
    figures: Sequence[PublishedFigure]
    is_ok: bool

    @cached_property
    def misfit(self) -> float:
        """How far backward is from the difference of two loops, and its spread from the root of the squares of theirs,
        as a share; infinite where one is missing."""
        forward, backward, both = (self.times.get(name) for name in _DIFFERENCE)
        if not forward or not backward or not both or not both.mean:
            return math.inf
        if not forward.std or not backward.std or not both.std:
            return math.inf
        difference = abs(both.mean - forward.mean - backward.mean) / abs(both.mean)
        return max(difference, abs(math.hypot(forward.std, both.std) / backward.std - 1))

    @property
    def words(self) -> str:
        """What the row is of, in a few words: `small at 128`, `16 × 256`."""
        key = self.key
        size = self.setting.name or (self.shape.name if self.shape else None) or key.part
        if key.width and key.length:
            return f"{key.length:,} tokens × {key.width:,} wide"
        return f"{size or 'a row'} at {key.length:,} tokens" if key.length else f"{size or 'a row'}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Report:
    """All tables of one report in the order of their files, each with the readings of all its rows."""

    by_table: Sequence[Sequence[Reading]]

    @cached_property
    def groups(self) -> Sequence[Sequence[Reading]]:
        """The readings with a result of each table that has any."""
        found = [[reading for reading in readings if reading.is_ok] for readings in self.by_table]
        return [readings for readings in found if readings]

    @cached_property
    def readings(self) -> Sequence[Reading]:
        """Those of rows that have a result."""
        return [reading for readings in self.groups for reading in readings]

    @cached_property
    def timed(self) -> Sequence[Reading]:
        """Those of steps and of attention that have times."""
        return [
            reading for reading in self.readings if reading.times and reading.table.subject in ("steps", "attention")
        ]


def name_time(quantity: Quantity) -> str:
    """Returns a time by the name that people use: `forward + backward`."""
    return quantity.replace("_", " + ")


def read_report(tables: Sequence[PublishedTable]) -> Report:
    """Returns the readings of the tables of one report. Their order is that of their files."""
    ordered = sorted(tables, key=lambda table: table.file)
    edition = find_edition(row.setting for table in ordered for row in table.rows)
    found = []
    for position, table in enumerate(ordered):
        provenance = read_provenance(table, position=position)
        found.append([reading for row in table.rows for reading in _read(table, row, provenance, edition)])
    return Report(by_table=found)


def read_tables(tables: Sequence[PublishedTable]) -> dict[UUID, list[Reading]]:
    """Returns the readings of each table, by its id; those of one report are read together."""
    reports = (read_report(own) for own in by_report(tables))
    return {readings[0].table.table_id: list(readings) for one in reports for readings in one.by_table if readings}


def by_report(tables: Sequence[PublishedTable]) -> list[list[PublishedTable]]:
    """Returns the tables of each report together, and each of no report alone."""
    reports: dict[str, list[PublishedTable]] = defaultdict(list)
    for table in tables:
        reports[table.report or str(table.table_id)].append(table)
    return list(reports.values())


def _read(
    table: PublishedTable, row: PublishedRow, provenance: Provenance, edition: Edition | None
) -> Iterator[Reading]:
    for variant, figures in _by_variant(row.figures).items():
        changes: dict[str, Any] = dict(variant)
        setting = replace(row.setting, **changes) if variant else row.setting
        shape = None if table.subject == "attention" else find_shape(setting, edition=edition)
        yield Reading(
            table=table,
            row=row,
            provenance=provenance,
            setting=setting,
            key=_key(table, setting, provenance, shape),
            shape=shape,
            steps=setting.steps or ASSUMED_STEPS.get(table.subject, 10),
            times=_times(figures),
            memory=_memory(figures),
            figures=figures,
            is_ok=row.status == "ok",
        )


def _by_variant(figures: Sequence[PublishedFigure]) -> dict[tuple[tuple[str, str | int], ...], list[PublishedFigure]]:
    """Returns the figures by the settings that their headings change; a part is no setting."""
    groups: dict[tuple[tuple[str, str | int], ...], list[PublishedFigure]] = {}
    for figure in figures:
        variant = _NO_VARIANT
        if figure.variant:
            variant = tuple((name, value) for name, value in figure.variant.items() if name != "part")
        groups.setdefault(variant, []).append(figure)
    return groups or {_NO_VARIANT: []}


def _times(figures: Sequence[PublishedFigure]) -> dict[Quantity, Time]:
    """Returns each time with its spread. A mean goes before a median, and that before a value of no kind."""
    means: dict[Quantity, float] = {}
    stds: dict[Quantity, float] = {}
    for figure in figures:
        quantity, statistic, value = figure.quantity, figure.statistic, figure.value
        if value is None or quantity not in _IS_TIME:
            continue
        if statistic == "std":
            stds[quantity] = value
        elif statistic == "mean" or (statistic in ("median", "value") and quantity not in means):
            means[quantity] = value
    return {quantity: Time(mean, stds.get(quantity)) for quantity, mean in means.items()} if means else {}


def _memory(figures: Sequence[PublishedFigure]) -> dict[tuple[Quantity, str], PublishedFigure]:
    """Returns the figures of memory by their quantity and the part that they are of."""
    found = [figure for figure in figures if figure.quantity in _IS_MEMORY and figure.value is not None]
    return {(figure.quantity, str(figure.variant.get("part", ""))): figure for figure in found} if found else {}


def _key(table: PublishedTable, setting: Setting, provenance: Provenance, shape: Size | None) -> CellKey:
    numbers = (shape.d_model, shape.d_ff, shape.layers, shape.heads, shape.vocabulary) if shape else None
    return CellKey(
        machine=table.machine,
        device=setting.device,
        shape=numbers or (setting.name or "").lower() or None,
        part=setting.part,
        batch=setting.batch or provenance.batch,
        length=setting.context or setting.seq_len or provenance.context,
        width=(setting.d_head or setting.d_model) if table.subject == "attention" else None,
        mode=setting.mode,
        precision=setting.precision,
        backend=setting.backend,
        implementation=setting.implementation,
        warmup=setting.warmup_steps,
        is_profiled=bool(setting.is_profiled),
    )
