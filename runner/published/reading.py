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
from uuid import NAMESPACE_URL, UUID, uuid5

from runner.errors import UsageError
from runner.published.columns import Columns, understand_columns
from runner.published.formats import parse_tables
from runner.published.rows import About, build_row
from runner.published.tables import FILE_BYTES, TableRefused, TextTable
from runner.published.titles import find_subject
from runner.results import PublishedRow, PublishedTable
from runner.visible import visible

#: Rises when the same file would be read differently, so that an import adds it again.
READER = 1
PROVENANCE = "provenance.csv"
_NAMESPACE = uuid5(NAMESPACE_URL, "stepscope:published")


def read_published(path: Path) -> list[PublishedTable]:
    """Returns every table of the file. Raises UsageError for a file that holds none, or is too large."""
    content = read_content(path)
    try:
        tables = parse_tables(decode(content), ending=path.suffix.lower())
    except TableRefused as error:
        got = error.got.removeprefix("The file")
        raise UsageError(f"{path}{got}", expected=error.expected, do=error.do) from None
    digest = content_digest(content)
    report, provenance = _read_provenance(path)
    return [
        _build_table(
            table, path=path, table_id=uuid5(_NAMESPACE, f"{digest}:{number}"), report=report, known=provenance
        )
        for number, table in enumerate(tables)
    ]


def read_content(path: Path) -> bytes:
    """Returns the bytes of the file. Raises UsageError for one that cannot be read or is too large."""
    try:
        size = path.stat().st_size
        if size > FILE_BYTES:
            raise UsageError(
                f"{path} holds {size:,} bytes.", expected=f"at most {FILE_BYTES:,}", do="Import it in pieces."
            )
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", do="Name a file with tables.") from None


def decode(content: bytes) -> str:
    """Returns the text of the file; bytes that are no UTF-8 become U+FFFD."""
    wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = content.decode("utf-16" if wide else "utf-8-sig", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def content_digest(content: bytes) -> str:
    """Returns the name of a reading: the reader's version and a hash of the bytes."""
    return f"{READER}:{hashlib.sha256(content).hexdigest()}"


def _build_table(
    table: TextTable, *, path: Path, table_id: UUID, report: str | None, known: Mapping[str, str]
) -> PublishedTable:
    columns = understand_columns(table)
    title = _find_title(table, columns) or table.title or path.stem
    about = About(table_id=table_id, title=title)
    rows = [build_row(row, columns, about) for row in table.rows]
    machines = _texts_of_origin(table, columns, "machine")
    quantities = {figure.quantity for row in rows for figure in row.figures}
    return PublishedTable(
        table_id=table_id,
        title=title,
        file=visible(path.name),
        subject=find_subject(title, quantities={*map(str, quantities)}, settings=columns.settings),
        rows=tuple(rows),
        report=report,
        machine="; ".join(machines) or known.get("machine"),
        provenance=known,
        meanings={column.heading: column.meaning.describe() for column in columns.columns},
        remarks=(*columns.remarks, *table.remarks, *_common_remarks(rows)),
    )


def _find_title(table: TextTable, columns: Columns) -> str | None:
    return "; ".join(_texts_of_origin(table, columns, "title")) or None


def _texts_of_origin(table: TextTable, columns: Columns, name: str) -> list[str]:
    """Returns the different texts of a column of origin, in their order."""
    places = [column.place for column in columns.of("origin") if column.meaning.setting == name]
    return [*dict.fromkeys(cell for place in places for cell in table.column(place) if cell)]


def _common_remarks(rows: Sequence[PublishedRow]) -> list[str]:
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
