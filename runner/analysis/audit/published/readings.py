"""Reads published rows for the rules: one reading for each cell that a row holds, with its times and its key.

    report = read_report(tables)                # all tables of one report
    report.readings[0].times["forward"]         # Time(mean=34.2, std=34.4), in ms

A row with two precisions, or with eager and compiled side by side, holds two readings. What a row leaves out and the
provenance states (batch, context) is filled in; what several rules ask of its times is worked out once. Nothing is
judged here.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from runner.analysis.audit.published.provenance import Provenance, read_provenance
from runner.analysis.audit.published.sizes import Edition, find_edition, find_shape
from runner.analysis.audit.published.times import ColdTimes, Time, Times, compute_misfit, compute_ratio, find_cold
from runner.results.published import PublishedFigure, PublishedRow, PublishedTable, Quantity, Setting, Subject
from runner.schema.sizes import Size

#: The steps that the assignment asks for, which a table that does not state them is taken to have.
ASSUMED_STEPS = {"attention": 100}
TIMES: tuple[Quantity, ...] = ("forward", "loss", "backward", "optimizer", "forward_backward", "step", "duration")
MEMORY: tuple[Quantity, ...] = ("peak_memory", "allocated_memory", "reserved_memory", "memory")
_IS_MEMORY = frozenset(MEMORY)
#: The times of a row that no warm-up ran before, and of one before which only forward ran.
_ALL, _UNWARMED = frozenset(TIMES), frozenset(TIMES) - {"forward"}
Variant = tuple[tuple[str, str | int], ...]


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
        """Returns the key without these fields, which cells share that differ in these alone."""
        return _key_without(names)(self)


@cache
def _key_without(names: tuple[str, ...]) -> Callable[[CellKey], tuple[object, ...]]:
    return itemgetter(*(place for place, name in enumerate(CellKey._fields) if name not in names))


@dataclass(kw_only=True, eq=False, slots=True)
class Reading:
    """One cell of one row. `memory` has bytes by quantity and part. `steps` are those that the row states or else those
    that the assignment asks for. `cold` are the means that one cold step explains, `misfit` says how far backward is
    from the difference of two loops, and `ratio` how many times forward it takes."""

    table: PublishedTable
    row: PublishedRow
    provenance: Provenance
    setting: Setting
    key: CellKey
    shape: Size | None
    steps: int
    times: Times
    cold: ColdTimes
    misfit: float
    ratio: float | None
    memory: Mapping[tuple[Quantity, str], PublishedFigure]
    figures: Sequence[PublishedFigure]
    is_ok: bool

    @property
    def words(self) -> str:
        """The cell in a few words: `small at 128`, `16 × 256`."""
        key = self.key
        size = self.setting.name or (self.shape.name if self.shape else None) or key.part
        if key.width and key.length:
            return f"{key.length:,} tokens × {key.width:,} wide"
        return f"{size or 'a row'} at {key.length:,} tokens" if key.length else f"{size or 'a row'}"


@dataclass(frozen=True, kw_only=True, eq=False)
class PublishedReport:
    """All tables of one report in the order of their files, each with the readings of all its rows."""

    by_table: Sequence[Sequence[Reading]]

    @cached_property
    def groups(self) -> Sequence[Sequence[Reading]]:
        """The readings with a result of each table that has any."""
        found = [[reading for reading in readings if reading.is_ok] for readings in self.by_table]
        return [readings for readings in found if readings]

    @cached_property
    def readings(self) -> Sequence[Reading]:
        """The readings of rows that have a result."""
        return [reading for readings in self.groups for reading in readings]

    @cached_property
    def timed(self) -> Sequence[Reading]:
        """The readings of steps and of attention that have times."""
        return [reading for reading in self.of("steps", "attention") if reading.times]

    def of(self, *subjects: Subject) -> list[Reading]:
        """Returns the readings with a result of the tables about these subjects."""
        return [reading for found in self.groups if found[0].table.subject in subjects for reading in found]


def name_time(quantity: Quantity) -> str:
    """Returns a time by the name that people use: `forward + backward`."""
    return quantity.replace("_", " + ")


def read_report(tables: Sequence[PublishedTable]) -> PublishedReport:
    """Returns the readings of the tables of one report. Their order is that of their files."""
    ordered = sorted(tables, key=lambda table: table.file)
    edition = find_edition(row.setting for table in ordered for row in table.rows)
    found = []
    for position, table in enumerate(ordered):
        provenance = read_provenance(table, position=position)
        found.append([reading for row in table.rows for reading in _read(table, row, provenance, edition)])
    return PublishedReport(by_table=found)


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
        times, memory = _split_figures(figures)
        steps = setting.steps or ASSUMED_STEPS.get(table.subject, 10)
        unwarmed = _ALL if setting.warmup_steps == 0 else _UNWARMED if provenance.warms_forward_only else ()
        cold = find_cold(times, steps=steps, is_sample=not provenance.has_population_std, unwarmed=unwarmed)
        misfit = compute_misfit(times)
        yield Reading(
            table=table,
            row=row,
            provenance=provenance,
            setting=setting,
            key=_make_key(table, setting, provenance, shape),
            shape=shape,
            steps=steps,
            times=times,
            cold=cold,
            misfit=misfit,
            ratio=compute_ratio(times, cold, misfit=misfit),
            memory=memory,
            figures=figures,
            is_ok=row.status == "ok",
        )


def _by_variant(figures: Sequence[PublishedFigure]) -> Mapping[Variant, Sequence[PublishedFigure]]:
    """Returns the figures by the settings that their headings change; a part is no setting."""
    if not [one for one in figures if one.variant and (len(one.variant) > 1 or "part" not in one.variant)]:
        return {(): figures}
    groups: dict[Variant, list[PublishedFigure]] = defaultdict(list)
    for figure in figures:
        groups[tuple((name, value) for name, value in figure.variant.items() if name != "part")].append(figure)
    return groups


def _split_figures(
    figures: Sequence[PublishedFigure],
) -> tuple[dict[Quantity, Time], dict[tuple[Quantity, str], PublishedFigure]]:
    """Returns each time with its spread, and the figures of memory by their quantity and the part that they are of.
    A mean goes before a median, and that before a value of no kind."""
    means: dict[Quantity, float] = {}
    stds: dict[Quantity, float] = {}
    memory: dict[tuple[Quantity, str], PublishedFigure] = {}
    for figure in figures:
        quantity, value = figure.quantity, figure.value
        if value is None:
            continue
        if quantity in _IS_MEMORY:
            memory[quantity, str(figure.variant.get("part", ""))] = figure
        elif quantity in _ALL:
            statistic = figure.statistic
            if statistic == "mean":
                means[quantity] = value
            elif statistic == "std":
                stds[quantity] = value
            elif statistic in ("median", "value"):
                means.setdefault(quantity, value)
    return {quantity: Time(mean, stds.get(quantity)) for quantity, mean in means.items()}, memory


def _make_key(table: PublishedTable, setting: Setting, provenance: Provenance, shape: Size | None) -> CellKey:
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
