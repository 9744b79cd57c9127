"""Summarizes the audit of many published tables: the grade of each row, and every finding by its code.

    for group in group_published(audit_published(tables)):
        print(group.severity, group.code, group.rows, group.remedy)

The terminal and the page Published results both show this.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from runner.analysis.audit.published.findings import PublishedFinding
from runner.analysis.audit.published.remedies import PUBLISHED_REMEDIES
from runner.results.findings import SEVERITIES, Finding, Grade, Severity, grade
from runner.results.published import PublishedTable


@dataclass(frozen=True, kw_only=True)
class PublishedGroup:
    """All findings of one code and severity, and what a reader can do about them."""

    code: str
    severity: Severity
    found: tuple[PublishedFinding, ...]

    @property
    def remedy(self) -> str:
        return PUBLISHED_REMEDIES[self.code]

    @property
    def rows(self) -> int:
        """How many rows they touch."""
        return len({row.row_id for one in self.found for row in one.rows})


def group_published(findings: Sequence[PublishedFinding]) -> list[PublishedGroup]:
    """Returns the findings by severity and code: the most severe first, of those the ones that touch most rows."""
    groups: dict[tuple[Severity, str], list[PublishedFinding]] = defaultdict(list)
    for one in sorted(findings, key=lambda one: (one.table.file, one.lines)):
        groups[one.finding.severity, one.finding.code].append(one)
    made = [PublishedGroup(severity=key[0], code=key[1], found=tuple(found)) for key, found in groups.items()]
    return sorted(made, key=lambda group: ([*SEVERITIES].index(group.severity), -group.rows, group.code))


def findings_by_row(findings: Sequence[PublishedFinding]) -> dict[UUID, list[Finding]]:
    """Returns the findings that touch each row that any touches."""
    found: dict[UUID, list[Finding]] = defaultdict(list)
    for one in findings:
        for row in one.rows:
            found[row.row_id].append(one.finding)
    return dict(found)


def grade_rows(table: PublishedTable, findings: Sequence[PublishedFinding]) -> dict[UUID, Grade | None]:
    """Returns the grade of each row of a table, given its findings; None for one without a result of which nothing is
    said."""
    by_row = findings_by_row(findings)
    return {
        row.row_id: grade(by_row.get(row.row_id, [])) if row.status == "ok" or row.row_id in by_row else None
        for row in table.rows
    }


def count_published_grades(table: PublishedTable, findings: Sequence[PublishedFinding]) -> Counter[Grade | None]:
    """Returns how many rows of a table have each grade, None counting those without one."""
    own = [one for one in findings if one.table.table_id == table.table_id]
    return Counter(grade_rows(table, own).values())
