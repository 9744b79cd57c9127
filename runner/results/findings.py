"""What the audit says of a row: findings with their severity, and the grade that follows from several.

    grade([Finding(code="drifting", severity="doubt", sentence="The steps went from 10.0 to 11.2 ms.", evidence={})])
    ->  "C"

`runner.analysis.audit` has the rules. Standard library and the schema only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from runner.schema import AttentionRow, MemoryRow, StepRow, table_of
from runner.schema.sizes import title

Severity = Literal["note", "doubt", "fault"]
Grade = Literal["A", "B", "C", "D"]
Audited = StepRow | AttentionRow | MemoryRow

#: The grades from best to worst, and what each means.
GRADES: Mapping[Grade, str] = {
    "A": "nothing against it",
    "B": "a note",
    "C": "in doubt",
    "D": "it does not mean what it says",
}
#: The same in one line.
GRADE_WORDS = ". ".join(f"{letter}: {words}" for letter, words in GRADES.items()) + "."
#: The severities from worst to least, and the grade that each gives a row.
SEVERITIES: Mapping[Severity, Grade] = {"fault": "D", "doubt": "C", "note": "B"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing about a row that its reader should know. `evidence` are the numbers behind the sentence."""

    code: str
    severity: Severity
    sentence: str
    evidence: Mapping[str, float | int | str]


def grade(findings: Sequence[Finding]) -> Grade:
    """Returns A without findings, B with notes only, C with a doubt, D where the row does not mean what it says."""
    severities = {finding.severity for finding in findings}
    return next((SEVERITIES[severity] for severity in SEVERITIES if severity in severities), "A")


def format_evidence(finding: Finding) -> str:
    """Returns the numbers that a finding rests on: `first_ms 30.1, median_ms 12.2`."""
    return ", ".join(f"{name} {_format_value(value)}" for name, value in finding.evidence.items())


def _format_value(value: float | int | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else value


@dataclass(frozen=True, kw_only=True)
class AuditedRow:
    """A row of steps, attention or memory, the machine that it was measured on, and its findings."""

    row: Audited
    machine: str
    findings: tuple[Finding, ...]

    @property
    def cell_id(self) -> UUID:
        return self.row.cell_id

    @property
    def table(self) -> str:
        return table_of(self.row).name

    @property
    def title(self) -> str:
        """The cell in words, with its round where there are several."""
        return title(self.row) + (f" · round {self.row.round}" if self.row.round else "")

    @property
    def grade(self) -> Grade | None:
        """The grade; None for a row without a result and without findings."""
        return grade(self.findings) if self.findings or self.row.status == "ok" else None
