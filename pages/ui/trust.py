"""Whether rows can be trusted, and why not: the audit's grades of the cells on a page, and of one cell in full.

draw_trust(frame, cells)          # cells of steps, attention or memory, of one kind
draw_grade(frame, cell)
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID

import streamlit as st

from pages.ui.evidence import of_cells, say
from pages.ui.frame import Frame
from pages.ui.markdown import literal, restrict
from pages.ui.notes import draw_cell_notes
from runner.analysis.audit.grades import Finding, Grade, grade
from runner.analysis.audit.report import GRADE_WORDS
from runner.results import AttentionResult, Peak, StepResult
from runner.schema import table_of
from runner.schema.titles import title
from runner.store.queries.trust import load_findings

Graded = StepResult | AttentionResult | Peak
#: Loading the findings of more cells than these takes too long for one sentence.
MAX_CELLS = 200
#: The colors of grades, as Markdown names them.
COLORS: dict[Grade, str] = {"A": "green", "B": "blue", "C": "orange", "D": "red"}


def draw_trust(frame: Frame, cells: Sequence[Graded]) -> None:
    """Draws what was said of the cells of a page, and one line that grades them; it opens to every finding with its
    cells."""
    draw_cell_notes(frame, cells)
    shown = {cell.cell_id: cell for cell in cells if cell.status in ("ok", "oom")}
    if not shown:
        return
    if len(shown) > MAX_CELLS:
        st.caption(f"Can these rows be trusted? Filter them to {MAX_CELLS} or fewer to see their grades.")
        return
    loaded = frame.ask(load_findings, tuple(shown), table_of(next(iter(shown.values())).cell).name)
    # A cell without a result has no grade, but may have something to say.
    findings = {cell_id: of_cell for cell_id, of_cell in loaded.items() if of_cell or shown[cell_id].status == "ok"}
    if not findings:
        return
    grades = Counter(grade(of_cell) for of_cell in findings.values())
    counts = " · ".join(f":{COLORS[letter]}[**{letter}**] {grades[letter]}" for letter in COLORS if grades[letter])
    rows = of_cells(frame, list(shown.values()))
    if set(grades) == {"A"}:
        words = f"Can these rows be trusted? {counts}: the audit found nothing against any of them."
        say(frame, words, rows, key="trust", drawn_by=st.caption)
        return
    with st.expander(restrict(f"Can these rows be trusted? {counts}")):
        st.caption(restrict(GRADE_WORDS))
        sentences = [
            f"**{code.replace('_', ' ')}**, {len(of_code)} of {len(findings)} cells. "
            f"For one, {title(shown[of_code[0][0]].cell)}: {literal(of_code[0][1].sentence)}"
            for code, of_code in _group_by_code(findings).items()
        ]
        say(frame, "\n\n".join(sentences), rows, key="trust")


def draw_grade(frame: Frame, cell: Graded) -> None:
    """Draws what was said of one cell, its grade and every finding that led to it."""
    draw_cell_notes(frame, [cell])
    of_cell = frame.ask(load_findings, (cell.cell_id,), table_of(cell.cell).name).get(cell.cell_id, [])
    letter = grade(of_cell)
    sentences = (
        " ".join(literal(finding.sentence) for finding in of_cell) or "The audit found nothing against this row."
    )
    words = f":{COLORS[letter]}-badge[Grade {letter}] {sentences}"
    say(frame, words, of_cells(frame, [cell], among="all"), key="grade")


def _group_by_code(findings: Mapping[UUID, list[Finding]]) -> dict[str, list[tuple[UUID, Finding]]]:
    """Groups findings by their code, each with its cell; the most frequent first."""
    loaded = [(cell_id, finding) for cell_id, of_cell in findings.items() for finding in of_cell]
    return {
        code: [(cell_id, finding) for cell_id, finding in loaded if finding.code == code]
        for code, _ in Counter(finding.code for _, finding in loaded).most_common()
    }
