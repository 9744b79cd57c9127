"""The card of all findings, and below it each code with its cells and what would mend it.

draw_findings(frame, group_findings(rows))
"""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from pages.figures.grades import FindingBar, finding_bars
from pages.trust.answers import name_code
from pages.ui.card import Card, draw
from pages.ui.formats import shorten, table
from pages.ui.frame import Frame
from pages.ui.markdown import restrict
from pages.ui.sections import draw_heading
from pages.ui.trust import COLORS
from runner.analysis.audit.findings import Finding
from runner.analysis.audit.report import SEVERITIES, AuditedRow, FindingGroup, format_evidence
from runner.formats import format_count
from runner.schema import AttentionRow, StepRow


def draw_findings(frame: Frame, groups: Sequence[FindingGroup]) -> None:
    """Draws how many rows have each finding, and which."""
    draw_heading(frame, "What did the audit find, and what would fix it?", anchor="findings")
    if not groups:
        st.caption("The audit has no findings for these rows.")
        return
    card = Card(
        key="findings",
        title="Rows by finding",
        note="The most severe first; a row may have several. A fault makes the grade D, a doubt C, a note B.",
        alt="Rows by finding: "
        + ", ".join(f"{name_code(group.code)} ({group.severity}) {len(group.found):,}" for group in groups),
        rows=[_make_row(group, row, finding) for group in groups for row, finding in group.found],
        cells=[row.cell for group in groups for row, _ in group.found],
    )
    bars = [
        FindingBar(name=_name(group), severity=group.severity, grade=SEVERITIES[group.severity], rows=len(group.found))
        for group in groups
    ]
    draw(frame, card, lambda: finding_bars(bars, state="findings"))
    for group in groups:
        _draw_group(group)


def _name(group: FindingGroup) -> str:
    return name_code(group.code)


def _make_row(group: FindingGroup, row: AuditedRow, finding: Finding) -> dict[str, Any]:
    return {
        "Finding": _name(group),
        "Severity": group.severity,
        **_describe(row, finding),
        "What would fix it": group.remedy,
    }


def _describe(row: AuditedRow, finding: Finding) -> dict[str, Any]:
    return {
        "Table": row.table,
        "Cell": row.title,
        "What was found": finding.sentence,
        "Evidence": format_evidence(finding),
        "Id": str(row.cell_id),
    }


def _draw_group(group: FindingGroup) -> None:
    """Draws one code, closed: it opens to its remedy, its cells with their evidence and the command for one of them."""
    color, count = COLORS[SEVERITIES[group.severity]], format_count(len(group.found), "row")
    label = f":{color}-badge[{group.severity}] **{_name(group)}**, {count}"
    opened = st.expander(restrict(label), key=f"_finding-{group.severity}-{group.code}", on_change="rerun")
    if not opened.open:
        return
    with opened:
        st.markdown(restrict(f"**What would fix it:** {group.remedy}"))
        st.dataframe(
            shorten(table([_describe(row, finding) for row, finding in group.found])),
            hide_index=True,
            height=min(320, 38 + 35 * len(group.found)),
            key=f"_finding-rows-{group.severity}-{group.code}",
            alt=f"Rows with the finding {_name(group)}.",
        )
        timed = next((row for row, _ in group.found if isinstance(row.row, StepRow | AttentionRow)), None)
        if timed:
            st.caption("Measure one of them again, on that machine, and see whether its time lands where the file says")
            st.code(f"python -m runner replay {timed.cell_id}", language="bash", wrap_lines=True)
