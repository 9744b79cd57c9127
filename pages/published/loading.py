"""Published tables with what the audit says of them: those of the file, or those that come with Stepscope.

loaded = frame.ask(load_audited, "file")
loaded.of(table)            # the findings of one table
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal
from uuid import UUID

from runner.analysis.audit.findings import Grade
from runner.analysis.audit.published.audit import audit_published
from runner.analysis.audit.published.findings import PublishedFinding
from runner.analysis.audit.published.readings import Reading, read_tables
from runner.analysis.audit.published.report import grade_rows
from runner.results import PublishedTable
from runner.store.queries.published import list_shipped, load_published

#: Where the tables come from.
Origin = Literal["file", "shipped"]


@dataclass(frozen=True, kw_only=True)
class AuditedTables:
    """Tables in the order of their files, and everything that is to be said of them."""

    tables: Sequence[PublishedTable]
    findings: Sequence[PublishedFinding]

    @cached_property
    def names(self) -> dict[str, PublishedTable]:
        """The tables by a name for each: its report or its file, and its title."""
        found: dict[str, PublishedTable] = {}
        for table in self.tables:
            name = f"{table.report or table.file} · {table.title}"
            same = sum(other == name or other.startswith(f"{name} (") for other in found)
            found[f"{name} ({same + 1})" if same else name] = table
        return found

    @cached_property
    def readings(self) -> dict[UUID, list[Reading]]:
        """What the rows of each table say, by table."""
        return read_tables(self.tables)

    def of(self, table: PublishedTable) -> list[PublishedFinding]:
        return [found for found in self.findings if found.table.table_id == table.table_id]

    def grades(self, table: PublishedTable) -> dict[UUID, Grade | None]:
        """The grade of each row; None for one without a result or finding."""
        return grade_rows(table, self.of(table))


def load_audited(path: Path, origin: Origin) -> AuditedTables:
    """Returns the tables of the file, or those that are shipped, with their findings."""
    tables = load_published(path) if origin == "file" else list(list_shipped())
    return AuditedTables(tables=tables, findings=audit_published(tables))
