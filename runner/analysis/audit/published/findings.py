"""Defines a finding about a published table, and the rows that it touches.

    touching([reading], doubt("cold_step", "…", mean_ms=34.2, std_ms=34.4))     ->  PublishedFinding

Severities, grades and codes are those of measured rows, wherever a code means the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runner.analysis.audit.published.readings import Reading
from runner.results.findings import Finding
from runner.results.published import PublishedRow, PublishedTable


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishedFinding:
    """One thing about rows of one table that a reader should know."""

    table: PublishedTable
    rows: tuple[PublishedRow, ...]
    finding: Finding

    @property
    def lines(self) -> tuple[int, ...]:
        """The lines of the file that it touches, from 1."""
        return tuple(sorted({row.line for row in self.rows}))


Found = Iterator[PublishedFinding]


def touching(readings: Sequence[Reading], finding: Finding) -> PublishedFinding:
    """Returns the finding with the rows of these readings, which are of one table."""
    first = readings[0]
    rows = {reading.row.row_id: reading.row for reading in readings} if len(readings) > 1 else {0: first.row}
    return PublishedFinding(table=first.table, rows=tuple(rows.values()), finding=finding)


def format_lines(lines: Sequence[int]) -> str:
    """Returns lines as people write them: `2–5, 9`."""
    spans: list[list[int]] = []
    for line in sorted(set(lines)):
        if spans and line == spans[-1][1] + 1:
            spans[-1][1] = line
        else:
            spans.append([line, line])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in spans)
