"""Summarizes the audit of many rows: the number of rows with each grade, and every finding by its code, most severe
first.

    for group in group_findings(rows):
        print(group.severity, group.code, len(group.found), group.remedy)

The terminal and the page Trust both show this.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from runner.analysis.audit.remedies import REMEDIES
from runner.results.findings import GRADE_WORDS as GRADE_WORDS
from runner.results.findings import GRADES as GRADES
from runner.results.findings import SEVERITIES as SEVERITIES
from runner.results.findings import AuditedRow as AuditedRow
from runner.results.findings import Finding, Grade, Severity
from runner.results.findings import format_evidence as format_evidence


@dataclass(frozen=True, kw_only=True)
class FindingGroup:
    """All findings of one code and severity, each with its row, and what to do about them."""

    code: str
    severity: Severity
    found: tuple[tuple[AuditedRow, Finding], ...]

    @property
    def remedy(self) -> str:
        return REMEDIES[self.code]


def count_grades(
    rows: Sequence[AuditedRow], by: Callable[[AuditedRow], str] = lambda row: row.table
) -> dict[str, Counter[Grade | None]]:
    """Returns how many rows have each grade, None counting those without one: by table, or by what `by` returns, in the
    order in which that comes up."""
    counts: dict[str, Counter[Grade | None]] = defaultdict(Counter)
    for row in rows:
        counts[by(row)][row.grade] += 1
    return dict(counts)


def group_findings(rows: Sequence[AuditedRow]) -> list[FindingGroup]:
    """Returns the findings by severity and code: the most severe first, of those the most frequent. Within a group the
    rows keep the order of their tables and are sorted by title."""
    tables = list(dict.fromkeys(row.table for row in rows))
    groups: dict[tuple[Severity, str], list[tuple[AuditedRow, Finding]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (tables.index(row.table), row.title)):
        for finding in row.findings:
            groups[finding.severity, finding.code].append((row, finding))
    order = sorted(groups, key=lambda key: ([*SEVERITIES].index(key[0]), -len(groups[key]), key[1]))
    return [FindingGroup(severity=severity, code=code, found=tuple(groups[severity, code])) for severity, code in order]


def shorten_ids(ids: Sequence[UUID]) -> dict[UUID, str]:
    """Returns the beginning of each id that tells it from the others: the part that is its time, or more."""
    length = 13  # a UUIDv7 begins with its milliseconds: 12 digits and a dash
    while length < 36 and len({str(cell_id)[:length] for cell_id in ids}) < len(set(ids)):
        length += 1
    return {cell_id: str(cell_id)[:length] for cell_id in ids}
