"""Can these rows be trusted, and why not? The audit's grades of the cells on a page, and of one cell in full.

draw_trust(frame, cells)
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID

import streamlit as st

from pages.parts.frame import Frame
from runner.analysis.audit import Finding, Grade, grade
from runner.store.queries.steps import Measured
from runner.store.queries.trust import audited

#: More cells than this are not read in full for one sentence.
MOST = 200
_COLORS: dict[Grade, str] = {"A": "green", "B": "blue", "C": "orange", "D": "red"}


def draw_trust(frame: Frame, cells: Sequence[Measured]) -> None:
    """One line that grades the cells of a page; it opens to every finding with the cells it is about."""
    measured = {cell.cell_id: cell for cell in cells if cell.status == "ok"}
    if not measured or len(measured) > MOST:
        return
    findings = frame.ask(audited, tuple(measured))
    grades = Counter(grade(found) for found in findings.values())
    counts = " · ".join(f":{_COLORS[letter]}[**{letter}**] {grades[letter]}" for letter in _COLORS if grades[letter])
    if set(grades) == {"A"}:
        st.caption(f"Can these rows be trusted? {counts}: the audit found nothing against any of them.")
        return
    with st.expander(f"Can these rows be trusted? {counts}"):
        st.caption("A: nothing against it. B: a note. C: in doubt. D: it does not mean what it says.")
        for code, said in _by_code(findings).items():
            st.markdown(
                f"**{code.replace('_', ' ')}**, {len(said)} of {len(findings)} cells. For one: {said[0].sentence}"
            )


def draw_grade(frame: Frame, cell: Measured) -> None:
    """The grade of one cell and every sentence that led to it."""
    found = frame.ask(audited, (cell.cell_id,)).get(cell.cell_id, [])
    letter = grade(found)
    sentences = " ".join(finding.sentence for finding in found) or "The audit found nothing against this row."
    st.markdown(f":{_COLORS[letter]}-badge[Grade {letter}] {sentences}")


def _by_code(findings: Mapping[UUID, list[Finding]]) -> dict[str, list[Finding]]:
    """Findings of a kind together, the most frequent kind first."""
    said = [finding for found in findings.values() for finding in found]
    return {
        code: [finding for finding in said if finding.code == code]
        for code, _ in Counter(finding.code for finding in said).most_common()
    }
