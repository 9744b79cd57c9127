"""Builds the rows of a table with their settings, figures and status.

    rows = build_rows(table.rows, columns, about)

A figure keeps the heading and the text of its cell even where no value could be read. Settings come from the row's
cells, else from the command that it states, else from the title, else from the mapping. Standard library only.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any
from uuid import UUID, uuid5

from runner.published.columns import PublishedColumn, PublishedColumns
from runner.published.headings import TIME, Meaning, parse_heading, parse_pass
from runner.published.settings import parse_setting
from runner.published.tables import TextRow
from runner.published.titles import TitleSays, read_title
from runner.published.values import CellValue, is_oom, parse_cell
from runner.results import PublishedFigure, PublishedRow, Quantity, Setting, Statistic
from runner.schema import Status

_STATUSES: Mapping[str, Status] = {
    **dict.fromkeys(("ok", "success", "passed", "pass", "done", "completed", "✓", "✅"), "ok"),
    **dict.fromkeys(("fail", "failed", "error", "✗", "❌"), "error"),
    **dict.fromkeys(("timeout", "timed out"), "timeout"),
    **dict.fromkeys(("crash", "crashed", "killed"), "crashed"),
    **dict.fromkeys(("skip", "skipped", "not run"), "skipped"),
}
OUT_OF_MEMORY = "Out of memory."


@dataclass(frozen=True, kw_only=True)
class AboutTable:
    """The facts that hold for every row: the table's id, its title, and the settings that a mapping states."""

    table_id: UUID
    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class _Reading:
    """One row while it is read."""

    settings: dict[str, Any] = field(default_factory=dict)
    of_command: dict[str, Any] = field(default_factory=dict)
    stated: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    figures: list[PublishedFigure] = field(default_factory=list)
    status: Status = "ok"
    is_oom: bool = False


def build_rows(rows: Sequence[TextRow], columns: PublishedColumns, about: AboutTable) -> list[PublishedRow]:
    """Returns the rows with everything that their cells say. An id follows from the table's and from the line, on which
    several rows may stand in LaTeX and Typst."""
    seen: Counter[int] = Counter()
    built = []
    for row in rows:
        name = f"{row.line}.{seen[row.line]}" if seen[row.line] else str(row.line)
        seen[row.line] += 1
        built.append(_build_row(row, columns, about, row_id=uuid5(about.table_id, name)))
    return built


def _build_row(row: TextRow, columns: PublishedColumns, about: AboutTable, *, row_id: UUID) -> PublishedRow:
    reading = _Reading()
    for column in columns.columns:
        if column.meaning.role not in ("figure", "value"):
            _read_text(column, row.cells[column.place], reading)
    title = read_title(reading.origins.get("title", about.title))
    _settle_settings(reading, title, columns, about)
    timed = _find_timed(row, columns, title)
    for column in columns.columns:
        text = row.cells[column.place]
        meaning = _find_value_meaning(row, columns) if column.meaning.role == "value" else column.meaning
        if meaning.role == "figure" and text:
            own = replace(meaning, quantity=timed if meaning.quantity == TIME else meaning.quantity)
            reading.figures += _build_figures(column.heading, text, own, columns)
    ran_out = reading.is_oom or _is_out_of_memory(reading.figures)
    origin = [reading.origins[name] for name in ("file", "line") if name in reading.origins]
    return PublishedRow(
        row_id=row_id,
        line=row.line,
        setting=Setting(**reading.settings),
        status="oom" if ran_out else reading.status,
        figures=tuple(reading.figures),
        stated=reading.stated,
        source=":".join(origin) or None,
        remarks=tuple(reading.remarks),
    )


def _read_text(column: PublishedColumn, text: str, reading: _Reading) -> None:
    """Reads a cell that is no figure."""
    if not text:
        return
    reading.stated[column.heading] = text
    meaning = column.meaning
    if meaning.role == "status":
        _read_status(text, reading)
    elif meaning.role == "oom":
        reading.is_oom = reading.is_oom or text.lower() in ("true", "yes", "1")
    elif meaning.role == "origin":
        reading.origins[meaning.setting] = text
    elif meaning.role == "setting":
        read = parse_setting(meaning.setting, text, unit=meaning.unit)
        known = reading.of_command if meaning.from_command else reading.settings
        if read.value is not None and known.setdefault(meaning.setting, read.value) != read.value:
            left = f"“{text[:40]}” was left out: another column says {known[meaning.setting]}."
            reading.remarks.append(f"{column.heading}: {left}")
        if read.remark:
            reading.remarks.append(f"{column.heading}: {read.remark}")
    reading.is_oom = reading.is_oom or (meaning.role != "origin" and "command" not in column.heading and is_oom(text))
    if meaning.role == "kept" and "nsys profile" in text:
        reading.settings.setdefault("is_profiled", True)
        reading.remarks.append("It was taken to be profiled, because its command runs under nsys.")


def _read_status(text: str, reading: _Reading) -> None:
    lower = text.lower()
    if lower in _STATUSES:
        reading.status = _STATUSES[lower]
    elif not is_oom(text):
        reading.remarks.append(f"The status “{text[:40]}” is not known: taken as ok.")


def _settle_settings(reading: _Reading, title: TitleSays, columns: PublishedColumns, about: AboutTable) -> None:
    """Adds what the command, the title and the mapping say to what the row's own cells say."""
    for name, value in reading.of_command.items():
        own = reading.settings.setdefault(name, value)
        if own != value:
            reading.remarks.append(f"{name} is {own} in the row and {value} in its command: the row's was taken.")
    for name, value in about.settings.items():
        reading.settings.setdefault(name, value)
    for name, value in title.settings.items():
        if name not in columns.settings and name not in reading.settings and not columns.varies(name):
            reading.settings[name] = value
            reading.remarks.append(f"{name} {str(value).lower()} was taken from the title.")


def _find_timed(row: TextRow, columns: PublishedColumns, title: TitleSays) -> Quantity:
    """Returns what a time without a phase is of: the row's pass, else the title's, else "duration"."""
    passes = [row.cells[column.place] for column in columns.of("setting") if column.meaning.setting == "mode"]
    return (parse_pass(passes[0]) if passes else None) or title.timed or "duration"


def _find_value_meaning(row: TextRow, columns: PublishedColumns) -> Meaning:
    """Returns what the value of this row means, by the name of its quantity in another column."""
    names = [row.cells[column.place] for column in columns.of("quantity")]
    meaning = parse_heading(names[0]) if names else Meaning(role="unknown")
    return meaning if meaning.role == "figure" else Meaning(role="figure", quantity="other", understood=False)


def _build_figures(heading: str, text: str, meaning: Meaning, columns: PublishedColumns) -> list[PublishedFigure]:
    """Returns the figures of a cell: one, or a mean and its standard deviation."""
    quantity = meaning.quantity
    assert quantity != TIME
    statistics = meaning.statistics
    figure = PublishedFigure(
        heading=heading, text=text, quantity=quantity, statistic=statistics[0], variant=meaning.variant
    )
    if not meaning.understood:
        remark = "The cell says that memory ran out." if is_oom(text) else "What the column means is not known."
        return [replace(figure, statistic="value", remark=remark)]
    if quantity == "dtype":
        return [replace(figure, statistic="value")]
    read = parse_cell(
        text,
        dimension=meaning.dimension,
        unit=meaning.unit,
        pair=statistics == ("mean", "std"),
        commas=columns.commas,
    )
    return _split_statistics(figure, statistics, read)


def _split_statistics(
    figure: PublishedFigure, statistics: Sequence[Statistic], read: CellValue
) -> list[PublishedFigure]:
    remark = OUT_OF_MEMORY if read.is_oom else read.remark
    if len(read.values) < 2:
        value = read.values[0] if read.values else None
        missing = len(statistics) > 1 and value is not None
        alone = "The heading promises a standard deviation, the cell has none." if missing else None
        return [replace(figure, value=value, remark=" ".join(filter(None, (remark, alone))) or None)]
    if statistics[0] in ("std", "min", "max"):
        return [replace(figure, remark=f"Refused: “{figure.text[:60]}” has two numbers below a {statistics[0]}.")]
    first: Statistic = "mean" if statistics[0] == "value" else statistics[0]
    mean, std = read.values
    return [
        replace(figure, statistic=first, value=mean, remark=remark),
        replace(figure, statistic="std", value=std, remark=remark),
    ]


def _is_out_of_memory(figures: Sequence[PublishedFigure]) -> bool:
    """Returns whether the row ran out of memory: a figure without a variant did, or nothing else has a value. Where
    only one variant of several did, its own figure says so."""
    ran_out = [figure for figure in figures if figure.value is None and is_oom(figure.text)]
    if not ran_out:
        return False
    return any(not figure.variant for figure in ran_out) or all(figure.value is None for figure in figures)


SETTINGS = frozenset(item.name for item in fields(Setting))
