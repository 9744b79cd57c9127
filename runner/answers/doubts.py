"""Which findings of the audit put the rows of an answer in doubt.

find_doubts(answer, rows.audited)

Notes, the mildest findings, count as none. A cell is in doubt where any of its rounds is, because its times are pooled
over the rounds of a run.
"""

from collections.abc import Sequence
from uuid import UUID

from runner.analysis.audit.findings import REMEDIES
from runner.answers.answer import Answer, Doubt
from runner.results.findings import SEVERITIES, AuditedRow, Finding


def find_doubts(answer: Answer, audited: Sequence[AuditedRow]) -> tuple[Doubt, ...]:
    """Returns the findings about cells that the views show, one a code, the most severe and then the most frequent
    first."""
    shown = {cell for view in answer.views for row in view.rows for cell in row.cells}
    rounds: dict[tuple[UUID, str], set[UUID]] = {}
    for one in audited:
        rounds.setdefault((one.row.run_id, one.row.cell_key), set()).add(one.cell_id)
    groups: dict[str, tuple[Finding, set[UUID]]] = {}
    for one in audited:
        for finding in one.findings:
            cells = rounds[one.row.run_id, one.row.cell_key] & shown
            if finding.severity != "note" and cells:
                groups.setdefault(finding.code, (finding, set()))[1].update(cells)
    doubts = [
        Doubt(
            code=code,
            severity=first.severity,
            words=first.sentence,
            remedy=REMEDIES[code],
            cells=frozenset(cells),
        )
        for code, (first, cells) in groups.items()
    ]
    return tuple(sorted(doubts, key=lambda one: ([*SEVERITIES].index(one.severity), -len(one.cells), one.code)))
