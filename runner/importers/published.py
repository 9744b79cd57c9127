"""Turns tables that others published into runs with published rows.

    report = import_tables(Path("theirs.csv"), db=Path("data/results.duckdb"), mapping=Path("theirs.toml"))
    for line in report.lines:
        print(line)

One file is one run, whose id follows from its bytes and the mapping: the same file is in a results file once, even
where two that have it are merged. With another mapping it is another run, and the latest counts. Limits: those of
`runner.published`.
"""

import hashlib
import json
import re
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from runner.formats import format_count
from runner.importers.recordings import ImportReport, new_run, write_run
from runner.published.reading import OUT_OF_MEMORY, REFUSED, TableMapping, load_mapping, read_file
from runner.results.published import PublishedTable
from runner.schema import PublishedFigureRow, PublishedLineRow, PublishedTableRow
from runner.store.read.published import is_counted

#: How many refused cells and remarks a report names.
_MAX_NAMED = 12
_QUOTED = re.compile("“[^”]*”")


def import_tables(
    path: Path, *, db: Path, label: str | None = None, mapping: Path | None = None, is_alone: bool = True
) -> ImportReport:
    """Writes the tables of the file to the spool of `db`, unless it has them. Of a file alone it is reported how each
    column was read. Raises UsageError for a file without tables, and for a mapping that does not fit."""
    meant = load_mapping(mapping) if mapping else TableMapping()
    file = read_file(path, mapping=meant)
    tables = file.tables
    hashed = int.from_bytes(hashlib.sha256(f"{file.digest}:{meant.digest}".encode()).digest()[:10])
    # A UUIDv8 whose first 48 bits, the time in other ids, are 0: published runs come before every measured one.
    run_id = UUID(int=0x8 << 76 | 0b10 << 62 | (hashed >> 62 & 0xFFF) << 64 | hashed & (1 << 62) - 1)
    machines = {table.machine for table in tables}
    run = replace(
        new_run(path, label or (tables[0].title if len(tables) == 1 else None)),
        run_id=run_id,
        sweep_key=hashlib.sha256(file.digest.encode()).hexdigest()[:16],
        source="published",
        device=None,
        device_name=machines.pop() if len(machines) == 1 else None,
    )
    known = is_counted(db, run.run_id)
    if known is not None:
        again = "" if known else " A later import of it with another mapping counts."
        return ImportReport(lines=(f"{path.name}: nothing new: {db} has it already.{again}",))
    rows: dict[str, list[Any]] = {name: [] for name in ("table", "row", "figure")}
    for at, table in enumerate(tables):
        rows["table"].append(_make_row(PublishedTableRow, table, run_id=run_id, position=at))
        for place, row in enumerate(table.rows):
            ids = {"run_id": run_id, "table_id": table.table_id}
            rows["row"].append(_make_row(PublishedLineRow, row, **ids, position=place, **asdict(row.setting)))
            ids = {"run_id": run_id, "row_id": row.row_id}
            figures = enumerate(row.figures)
            rows["figure"] += [_make_row(PublishedFigureRow, one, **ids, position=number) for number, one in figures]
    write_run({"runs": [run], **{f"published_{name}s": of for name, of in rows.items()}}, run=run, db=db, where=path)
    refused = sum((figure.remark or "").startswith(("Refused", "What")) for figure in rows["figure"])
    said = f"; {format_count(refused, 'cell')} {'was' if refused == 1 else 'were'} refused" if refused else ""
    added = f"{path.name}: {', '.join(format_count(len(of), name) for name, of in rows.items())}{said}."
    details = (line for table in tables for line in describe_table(table)) if is_alone else ()
    return ImportReport(lines=(added, *details, *file.lost, *file.remarks), is_whole=not file.lost)


def describe_table(table: PublishedTable) -> list[str]:
    """Returns what was understood of a table, what was assumed and what was refused, one line each."""
    figures = [figure for row in table.rows for figure in row.figures]
    read = sum(figure.value is not None for figure in figures)
    rows = f"{format_count(len(table.rows), 'row')} of {table.subject}"
    lines = [f"{table.title}: {rows}, {format_count(read, 'figure')} with a value."]
    lines += [f"  {heading}: {meaning}" for heading, meaning in table.meanings.items() if "kept as text" not in meaning]
    remarks = [*(said for said in table.remarks if REFUSED not in said), *_collect_remarks(table)]
    lines += [f"  {remark}" for remark in remarks[:_MAX_NAMED]]
    if len(remarks) > _MAX_NAMED:
        lines.append(f"  and {len(remarks) - _MAX_NAMED:,} more remarks, which are stored with the rows.")
    return lines


def _collect_remarks(table: PublishedTable) -> list[str]:
    """Returns what was remarked of rows and cells; of those that are alike, the first and how many there are."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in table.rows:
        found = [("", remark) for remark in row.remarks if remark not in table.remarks]
        found += [(f", {figure.heading}", figure.remark) for figure in row.figures if figure.remark]
        for where, remark in found:
            if remark != OUT_OF_MEMORY:
                alike.setdefault((where, _QUOTED.sub("", remark)), []).append(f"Line {row.line}{where}: {remark}")
    return [same[0] + (f" And {len(same) - 1:,} more like it." if len(same) > 1 else "") for same in alike.values()]


def _make_row(kind: type, item: object, **more: Any) -> object:
    """Returns a stored row with the values of the fields that it shares with `item`, collections as JSON."""
    shared = {name: getattr(item, name) for field in fields(kind) if (name := field.name) not in more}
    for name, value in shared.items():
        if isinstance(value, dict | list | tuple):
            shared[name] = json.dumps(value, ensure_ascii=False)
    return kind(**shared, **more)
