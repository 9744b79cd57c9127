"""Loads the rows that can be audited with their findings, for `runner audit` and the page Trust.

    rows = load_audit(path, Selection(run=run_id))

Rows of every effort are audited, each round on its own. Where several runs on one machine measured a cell, the latest
run counts; where a round was tried again, the last try counts. A filter narrows the tables that have its column.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from runner.analysis.audit.findings import Audited
from runner.analysis.audit.report import AuditedRow
from runner.schema import TABLES, AttentionRow, MemoryRow, StepRow
from runner.store.database import open_reader
from runner.store.queries.fetch import fetch
from runner.store.queries.raw import fetch_rows
from runner.store.queries.selection import Selection, select_chosen, write_conditions
from runner.store.queries.trust import load_findings

#: The tables whose rows are audited.
AUDITED: tuple[type[Audited], ...] = (StepRow, AttentionRow, MemoryRow)
#: The most rows of a table that are audited, the newest, because every sample of theirs is read.
MAX_ROWS = 2_000


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The audited rows, the newest of each table first, and the number of rows beside them."""

    rows: tuple[AuditedRow, ...]
    not_read: int


@dataclass(frozen=True, kw_only=True)
class _Counted:
    """A row that counts, and the machine that it was measured on."""

    cell_id: UUID
    machine: str


def load_audit(path: Path, of: Selection) -> Audit:
    """Returns the rows of a selection with their findings."""
    rows: list[AuditedRow] = []
    not_read = 0
    for kind in AUDITED:
        table = next(name for name, table in TABLES.items() if table.row is kind)
        counted = _find_counted(path, table, of)
        not_read += max(0, len(counted) - MAX_ROWS)
        rows += _load_rows(path, kind, table, counted[:MAX_ROWS])
    return Audit(rows=tuple(rows), not_read=not_read)


def _find_counted(path: Path, table: str, of: Selection) -> list[_Counted]:
    """Returns the rows of a table that count and pass the filters, newest first."""
    query, parameters = select_chosen(table, replace(of, settled=False))
    filters, values = write_conditions((column, wanted) for column, wanted in of.asked() if column in TABLES[table].key)
    query = f"SELECT cell_id, machine FROM ({query}) WHERE {' AND '.join(filters) or 'true'} ORDER BY cell_id DESC"
    with open_reader(path) as reader:
        return fetch(reader, query, [*parameters, *values], kind=_Counted)


def _load_rows(path: Path, kind: type[Audited], table: str, counted: list[_Counted]) -> list[AuditedRow]:
    ids = tuple(found.cell_id for found in counted)
    if not ids:
        return []
    findings = load_findings(path, ids, table)
    with open_reader(path) as reader:
        source = f"{table} SEMI JOIN (SELECT unnest(?) AS cell_id) USING (cell_id)"
        rows = {row.cell_id: row for row in fetch_rows(reader, kind, source, [list(ids)])}
    return [
        AuditedRow(row=rows[one.cell_id], machine=one.machine, findings=tuple(findings.get(one.cell_id, ())))
        for one in counted
        if one.cell_id in rows
    ]
