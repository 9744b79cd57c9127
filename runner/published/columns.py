"""Finds what each column of a table means, by its heading and its cells.

    columns = understand_columns(table)
    [column.meaning.describe() for column in columns.columns]

Cells decide only between meanings that a heading leaves open: "compiled" above times is a figure, above True and False
a setting; "dtype" is a figure where the table has no other. Standard library only.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from runner.published.headings import Meaning, parse_figure, parse_heading
from runner.published.markup import strip_markup
from runner.published.settings import WHOLE, parse_setting
from runner.published.tables import TextTable
from runner.published.values import Commas, is_decimal_comma, normalize_unit, parse_cell

_TIMES = "ms|msec|milliseconds|s|sec|seconds|us|μs|µs|microseconds|ns"
_UNIT_OF_TITLE = re.compile(
    rf"[(\[,]\s?(?:all )?(?:times? )?(?:in )?({_TIMES})\s?[)\]]|\bin ({_TIMES})\b", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True)
class PublishedColumn:
    """One column: its place from 0, its heading and what that means."""

    place: int
    heading: str
    meaning: Meaning


@dataclass(frozen=True, kw_only=True)
class PublishedColumns:
    """The columns of a table, the assumptions about them, and the meaning of commas in its numbers."""

    columns: tuple[PublishedColumn, ...]
    remarks: tuple[str, ...]
    commas: Commas

    def of(self, role: str) -> list[PublishedColumn]:
        return [column for column in self.columns if column.meaning.role == role]

    @property
    def settings(self) -> set[str]:
        """The names of the settings that columns state."""
        return {column.meaning.setting for column in self.of("setting")}

    @property
    def has_figures(self) -> bool:
        """Whether some column is understood to hold figures."""
        return any(column.meaning.understood for column in (*self.of("figure"), *self.of("value")))

    def varies(self, setting: str) -> bool:
        """Returns whether headings state this setting, so that it differs within a row."""
        return any(setting in column.meaning.variant for column in self.of("figure"))


def understand_columns(
    table: TextTable, given: Mapping[str, Meaning] | None = None, *, decimal: str = "."
) -> PublishedColumns:
    """Returns the meaning of each column. A mapping gives those that it states, by heading, and says whether the comma
    is the decimal point."""
    given = given or {}
    meanings = [given.get(heading) or _understand(table, place) for place, heading in enumerate(table.headings)]
    _settle_open_ones(table, meanings, given)
    columns = tuple(
        PublishedColumn(place=place, heading=heading, meaning=meaning)
        for place, (heading, meaning) in enumerate(zip(table.headings, meanings, strict=True))
    )
    doubtful = decimal != "," and any(is_decimal_comma(cell) for row in table.rows for cell in row.cells)
    remarks = [f"“{c.heading}”: {c.meaning.assumed}" for c in columns if c.meaning.assumed]
    if doubtful:
        remarks.append("Some numbers have a comma for a decimal point; none with a comma was read.")
    commas: Commas = "doubtful" if doubtful else "decimal" if decimal == "," else "thousands"
    return PublishedColumns(columns=columns, remarks=tuple(remarks), commas=commas)


def _understand(table: TextTable, place: int) -> Meaning:
    """Returns what a heading means above its cells."""
    heading, cells = table.headings[place], [cell for cell in table.column(place) if cell]
    if not table.has_headings:
        assumed = "not understood without a heading: a mapping can say what it is."
        return _make_unknown(cells, assumed)
    if heading.startswith("column ") and cells == [str(number) for number in range(len(cells))]:
        return Meaning(role="kept", assumed="kept as text: it numbers the rows.")
    meaning = parse_heading(heading)
    if meaning.role == "setting" and meaning.setting in WHOLE and cells:
        read = [parse_setting(meaning.setting, cell, unit=meaning.unit) for cell in cells]
        if all(one.remark and one.value is None for one in read):
            return Meaning(role="kept", assumed="kept as text, because its cells are no whole numbers.")
    if meaning.role == "setting" and meaning.setting in ("backend", "precision", "implementation", "name"):
        figure = parse_figure(heading)
        if figure and cells and all(_is_measured(cell) for cell in cells):
            return figure
    if meaning.role == "unknown":
        return _make_unknown(cells, "not understood: a mapping can say what it is.")
    return meaning


def _is_measured(cell: str) -> bool:
    """Returns whether a cell is a number with a decimal point, a time, a pair, or no result."""
    cell = strip_markup(cell)
    if cell.lower() in ("0", "1") or not cell:
        return False
    read = parse_cell(cell, dimension="time", unit="ms")
    return read.is_oom or bool(read.values)


def _make_unknown(cells: Sequence[str], assumed: str) -> Meaning:
    """Returns the meaning of a column that is not understood: figures without values if it has numbers, else text."""
    has_numbers = any(parse_cell(cell, dimension="time", unit="ms").values for cell in cells)
    return Meaning(role="figure" if has_numbers else "kept", quantity="other", assumed=assumed, understood=False)


def _settle_open_ones(table: TextTable, meanings: list[Meaning], given: Mapping[str, Meaning]) -> None:
    """Decides what only the other columns can decide: whose name a "name" is, and whether a dtype is a figure."""
    quantities = {meaning.quantity for meaning in meanings if meaning.role == "figure"}
    has_figures = bool(quantities) or any(meaning.role == "value" for meaning in meanings)
    for place, heading in enumerate(table.headings):
        meaning = meanings[place]
        if heading in given or meaning.role != "setting":
            continue
        if heading.strip().lower() == "name" and "calls" not in quantities:
            meanings[place] = replace(meaning, setting="name")
        if meaning.setting == "precision" and not has_figures:
            meanings[place] = Meaning(role="figure", quantity="dtype")
    for place, heading in enumerate(table.headings):
        meaning = meanings[place]
        if heading not in given and meaning.role == "figure" and meaning.dimension == "time" and not meaning.unit:
            meanings[place] = _borrow_unit(table, meanings, meaning)


def _borrow_unit(table: TextTable, meanings: Sequence[Meaning], meaning: Meaning) -> Meaning:
    """Returns the meaning of a time without a unit, with that of another statistic of the same time, or of the
    title."""
    for other, heading in zip(meanings, table.headings, strict=True):
        if other.unit and (other.quantity, other.variant) == (meaning.quantity, meaning.variant):
            return replace(meaning, unit=other.unit, assumed=f"in {other.unit}, as “{heading}” is.")
    found = _UNIT_OF_TITLE.search(table.title or "")
    if found and meaning.quantity != "loss":  # which may be the loss itself
        unit = normalize_unit(found[1] or found[2])
        return replace(meaning, unit=unit, assumed=f"in {unit}, as the title says.")
    return meaning
