"""Reads the tables of a file that others published.

    for table in read_published(Path("data/reference/004_e2e.csv")):
        print(table.title, table.rows[0].mean("forward"))

The same bytes give the same tables with the same ids. A `provenance.csv` beside the file says what is known of each
report; a report is what the file's name begins with, up to the first underscore. Standard library only.
"""

import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

from runner.errors import UsageError
from runner.places import explain_place
from runner.published.columns import PublishedColumns, understand_columns
from runner.published.formats import parse_tables
from runner.published.mapping import TableMapping
from runner.published.rows import AboutTable, build_rows
from runner.published.tables import FILE_BYTES, FORMATS, TableRefused, TextTable
from runner.published.titles import find_subject
from runner.results import PublishedRow, PublishedTable
from runner.visible import visible

#: Rises when the same file would be read differently, so that an import adds it again.
READER = 1
_WIDE = (b"\xff\xfe", b"\xfe\xff")
PROVENANCE = "provenance.csv"
#: How many headings an error names.
_MAX_NAMED = 8
_NAMESPACE = uuid5(NAMESPACE_URL, "stepscope:published")


def read_published(path: Path, *, mapping: TableMapping | None = None) -> list[PublishedTable]:
    """Returns every table of the file. Raises UsageError for a file that holds none, or is too large, and for a mapping
    that names a column which no table has."""
    mapping = mapping or TableMapping()
    content = read_content(path)
    tables = parse_content(content, path, headings=mapping.headings)
    digest = f"{content_digest(content)}:{mapping.digest}"
    report, provenance = _read_provenance(path)
    known = {heading for table in tables for heading in table.headings}
    missing = [name for name in mapping.columns if name not in known]
    if missing:
        raise UsageError(
            f"The mapping names the column “{visible(missing[0])[:60]}”, which no table of {path} has.",
            expected=f"one of {', '.join(sorted(known)[:20])}",
            do="Correct the mapping.",
        )
    read: list[PublishedTable] = []
    for number, table in enumerate(tables):
        columns = understand_columns(table, mapping.columns, decimal=mapping.decimal)
        if columns.has_figures:
            origin = _Origin(path, uuid5(_NAMESPACE, f"{digest}:{number}"), report, provenance)
            read.append(_build_table(table, columns, mapping, origin))
    readable = [table for table in read if any(_has_content(row) for row in table.rows)]
    if not readable:
        raise _refuse(path, tables, read)
    return readable


def _has_content(row: PublishedRow) -> bool:
    return row.status == "oom" or any(figure.value is not None or figure.quantity == "dtype" for figure in row.figures)


def _refuse(path: Path, tables: Sequence[TextTable], read: Sequence[PublishedTable]) -> UsageError:
    """Returns the error for a file in which nothing is understood or no cell could be read."""
    names = ", ".join(f"“{name[:40]}”" for name in tables[0].headings[:_MAX_NAMED])
    got = f"no heading that says what it measures: {names}"
    for figure in (figure for table in read for row in table.rows for figure in row.figures if figure.remark):
        got = f"no figure that can be read, such as below “{figure.heading[:40]}”: {(figure.remark or '').rstrip('.')}"
        break
    return UsageError(
        f"{path} holds no table that can be imported: got {got}.",
        expected="headings such as “forward (ms)” or “peak_memory_mib”, or a mapping",
        do=f"Write a first draft of one with `python -m runner import --explain {path.name}`.",
    )


def parse_content(content: bytes, path: Path, *, headings: bool | None = None) -> list[TextTable]:
    """Returns the tables of the bytes of a file, before anything is understood of them. Raises UsageError."""
    try:
        return parse_tables(decode(content), ending=path.suffix.lower(), headings=headings)
    except TableRefused as error:
        got = error.got.removeprefix("The file")
        raise UsageError(f"{path}{got}", expected=error.expected, do=error.do) from None


class _Origin(NamedTuple):
    """The origin of a table: its file, its id, its report and the provenance of that."""

    path: Path
    table_id: UUID
    report: str | None
    provenance: Mapping[str, str]


def read_content(path: Path) -> bytes:
    """Returns the bytes of the file. Raises UsageError for one that cannot be read or is too large."""
    try:
        if why := explain_place(path):
            raise UsageError(f"{path} cannot be read: {why}.", do="Name a file with tables.")
        size = path.stat().st_size
        if size > FILE_BYTES:
            raise UsageError(
                f"{path} holds {size:,} bytes.", expected=f"at most {FILE_BYTES:,}", do="Import it in pieces."
            )
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", do="Name a file with tables.") from None
    if b"\0" in content and not content.startswith(_WIDE):
        raise UsageError(f"{path} holds bytes that are no text.", expected=FORMATS, do="Name a file with tables.")
    return content


def decode(content: bytes) -> str:
    """Returns the text of the file; bytes that are no UTF-8 become U+FFFD."""
    text = content.decode("utf-16" if content.startswith(_WIDE) else "utf-8-sig", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def content_digest(content: bytes) -> str:
    """Returns the name of a reading: the reader's version and a hash of the bytes."""
    return f"{READER}:{hashlib.sha256(content).hexdigest()}"


def _build_table(table: TextTable, columns: PublishedColumns, mapping: TableMapping, origin: _Origin) -> PublishedTable:
    titles = _list_origins(table, columns, "title")
    title = visible(mapping.title or "; ".join(titles) or table.title or origin.path.stem)
    about = AboutTable(table_id=origin.table_id, title=title, settings=mapping.settings)
    rows = build_rows(table.rows, columns, about)
    machines = _list_origins(table, columns, "machine")
    quantities = {figure.quantity for row in rows for figure in row.figures}
    return PublishedTable(
        table_id=origin.table_id,
        title=title,
        file=visible(origin.path.name),
        subject=find_subject(title, quantities={*map(str, quantities)}, settings=columns.settings),
        rows=tuple(rows),
        report=origin.report,
        machine="; ".join(machines) or mapping.machine or origin.provenance.get("machine"),
        provenance=origin.provenance,
        meanings={column.heading: column.meaning.describe() for column in columns.columns},
        remarks=(*columns.remarks, *table.remarks, *_find_common_remarks(rows)),
    )


def _list_origins(table: TextTable, columns: PublishedColumns, name: str) -> list[str]:
    """Returns the different texts of a column of origin, in their order."""
    places = [column.place for column in columns.of("origin") if column.meaning.setting == name]
    return [*dict.fromkeys(cell for place in places for cell in table.column(place) if cell)]


def _find_common_remarks(rows: Sequence[PublishedRow]) -> list[str]:
    """Returns the remarks that every row has, which are the table's."""
    if not rows:
        return []
    return [remark for remark in dict.fromkeys(rows[0].remarks) if all(remark in row.remarks for row in rows)]


def _read_provenance(path: Path) -> tuple[str | None, Mapping[str, str]]:
    """Returns the report that a file belongs to and what `provenance.csv` says of it; nothing where there is none."""
    name, beside = path.stem.split("_")[0], path.parent / PROVENANCE
    if path.name == PROVENANCE or not beside.is_file() or beside.stat().st_size > FILE_BYTES:
        return None, {}
    try:
        rows = list(csv.DictReader(io.StringIO(decode(beside.read_bytes()), newline="")))
    except (csv.Error, OSError):
        return None, {}
    for row in rows:
        if row.get("report") == name and name:
            return name, {
                visible(key): visible(text) for key, text in row.items() if key and isinstance(text, str) and text
            }
    return None, {}
