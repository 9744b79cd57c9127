"""How far can these numbers be trusted? Grades by table, run and machine; every finding and what would mend it; what
varies between processes and drifts over a sweep."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from pages.figures.grades import NO_RESULT, GradeBar, grade_bars
from pages.trust.answers import answer
from pages.trust.findings import draw_findings
from pages.trust.headline import TOPICS, describe_among
from pages.trust.noise import draw_canary, draw_noise
from pages.ui.card import Card, draw
from pages.ui.chosen import chosen
from pages.ui.evidence import LoadEvidence, of_rows, say
from pages.ui.filters import run_name
from pages.ui.frame import Frame, Page
from pages.ui.heading import draw_title
from pages.ui.markdown import restrict
from pages.ui.states import no_rows
from runner.analysis.audit.findings import Grade
from runner.analysis.audit.report import GRADE_WORDS, GRADES, AuditedRow, count_grades, group_findings
from runner.store.queries.audit import MAX_ROWS, Audit, load_audit

#: More bars than these are not one picture any more.
MAX_BARS = 24
UNKNOWN_RUN = "a run of which nothing is known"


def page(frame: Frame) -> None:
    draw_title(frame, "Trust: grades, findings and noise", question="How far can these numbers be trusted?")
    audit = frame.ask(load_audit, replace(frame.selection, mode=None))
    if not audit.rows:
        no_rows("No row of steps, attention or memory matches these filters.", "Clear some of them, or measure some.")
        return
    groups = group_findings(audit.rows)
    words = answer(audit.rows, groups, among=describe_among(frame))
    say(frame, words, *_load_evidence(frame, audit.rows))
    if audit.not_read:
        text = f"The newest {MAX_ROWS:,} rows of each table are graded; {audit.not_read:,} older rows are not."
        st.caption(restrict(text))
    _draw_grades(frame, audit)
    draw_findings(frame, groups)
    draw_noise(frame)
    draw_canary(frame)


def _load_evidence(frame: Frame, rows: Sequence[AuditedRow]) -> list[LoadEvidence | None]:
    """Returns what loads the rows of each table."""
    tables = dict.fromkeys(row.table for row in rows)
    return [of_rows(frame, [row.row for row in rows if row.table == table]) for table in tables]


def _draw_grades(frame: Frame, audit: Audit) -> None:
    """Draws the grades as one bar a table, a run or a machine."""
    by = chosen("trust-by", "One bar for each", _list_ways(frame, audit))
    counts = _count_by(frame, audit, by)
    shown = [GradeBar(name=name, counts=dict(numbers.items())) for name, numbers in counts.items()][:MAX_BARS]
    cut = f" The first {MAX_BARS} of {len(counts)} are drawn: filter, or see the table."
    where = " Rows of every machine, regardless of the sidebar's machine and run." if by == "machine" else ""
    card = Card(
        key="grades",
        title=f"Grades by {by}",
        note=f"{GRADE_WORDS} All modes; each round counts as a row.{where}{cut if len(counts) > MAX_BARS else ''}",
        alt=f"Rows by grade. {'; '.join(_describe_bar(bar) for bar in shown)}",
        rows=[_make_row(by, name, numbers) for name, numbers in counts.items()],
        cells=[row.cell for row in audit.rows],
    )
    draw(frame, card, lambda: grade_bars(shown, meanings=dict(GRADES.items()), state=f"grades-{by}"))


def _list_ways(frame: Frame, audit: Audit) -> list[str]:
    runs = len({row.row.run_id for row in audit.rows})
    return ["table", *(["run"] if runs > 1 else []), *(["machine"] if len(frame.contents.machines) > 1 else [])]


def _count_by(frame: Frame, audit: Audit, by: str) -> Mapping[str, Counter[Grade | None]]:
    """Returns the number of rows of each grade by table, by run, newest first, or by machine."""
    if by == "machine":
        everywhere = frame.ask(load_audit, replace(frame.selection, mode=None, machine=None, run=None))
        counts = count_grades(everywhere.rows, by=lambda row: row.machine)
        return {machine: counts[machine] for machine in frame.contents.machines if machine in counts}
    if by == "run":
        names = {run.run_id: run_name(run) for run in frame.contents.runs}
        counts = count_grades(audit.rows, by=lambda row: names.get(row.row.run_id, UNKNOWN_RUN))
        return {name: counts[name] for name in (*names.values(), UNKNOWN_RUN) if name in counts}
    return count_grades(audit.rows)


def _make_row(by: str, name: str, counts: Counter[Grade | None]) -> dict[str, Any]:
    return {by.capitalize(): name, **{grade: counts[grade] for grade in GRADES}, NO_RESULT.capitalize(): counts[None]}


def _describe_bar(bar: GradeBar) -> str:
    numbers = [f"{grade or NO_RESULT} {bar.counts[grade]:,}" for grade in (*GRADES, None) if bar.counts.get(grade)]
    return f"{bar.name}: {', '.join(numbers)}"


PAGE = Page(
    title="Trust",
    address="trust",
    icon=":material/verified:",
    draw=page,
    topics=TOPICS,
    filters=("machine", "run", "size", "context", "precision", "backend"),
)
