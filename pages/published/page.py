"""Which published results survive? What others' tables claim, what is wrong with them, what they would have shown, and
each beside the reader's own rows of the same cells."""

from collections import Counter, defaultdict
from functools import partial
from typing import Any

import streamlit as st

from pages.figures.grades import NO_RESULT, FindingBar, GradeBar, finding_bars, grade_bars
from pages.published.answers import name_code, say_claim, say_overview, say_verdict
from pages.published.loading import AuditedTables, Origin, load_audited
from pages.published.table import draw_table, find_first
from pages.ui.card import Card, draw
from pages.ui.chosen import chosen, select_one
from pages.ui.evidence import LoadEvidence, say
from pages.ui.formats import shorten, table
from pages.ui.frame import Frame, Page
from pages.ui.heading import draw_title
from pages.ui.sections import draw_heading
from runner.analysis.audit.findings import Grade
from runner.analysis.audit.published.findings import format_lines
from runner.analysis.audit.published.report import PublishedGroup, count_published_grades, group_published
from runner.analysis.audit.report import GRADE_WORDS, GRADES, SEVERITIES, format_evidence
from runner.formats import cut_text
from runner.store.queries.printed import of_printed
from runner.store.queries.published import load_published

#: More bars than these are not one picture any more; letters of a table's name beside its bar.
MAX_BARS, _LABEL = 40, 36
_WHERE: dict[Origin, str] = {"file": "in this file", "shipped": "that come with Stepscope"}
_CHOICES: dict[str, Origin] = {"In this file": "file", "Shipped with Stepscope": "shipped"}


def page(frame: Frame) -> None:
    draw_title(
        frame,
        "Published results: which claims survive",
        question="What is wrong with tables that others published, and what holds?",
    )
    origin = _choose_origin(frame)
    loaded = frame.ask(load_audited, origin)
    if not loaded.tables:
        st.markdown("No tables come with this installation of Stepscope, and none are in the file.")
        st.code("python -m runner import path/to/table.csv", language="bash")
        return
    say(frame, say_overview(loaded.tables, loaded.findings, where=_WHERE[origin]), _load_severities(frame, loaded))
    st.caption(
        "Others measured these on their machines; no other page shows them beside measured rows. The audit has only "
        "their means and spreads: a row without a finding may still be wrong."
    )
    _draw_claims(frame, loaded)
    _draw_grades(frame, loaded)
    _draw_findings(frame, loaded)
    draw_heading(frame, "One table", anchor="one-table")
    name = select_one("published-table", "Table", list(loaded.names), default=find_first(frame, loaded))
    draw_table(frame, loaded, loaded.names[name])


def _load_severities(frame: Frame, loaded: AuditedTables) -> LoadEvidence:
    """Returns a function that loads how many findings of each severity each table has."""
    counts = {one.table_id: Counter(found.finding.severity for found in loaded.of(one)) for one in loaded.tables}
    rows = tuple(
        (one.file, one.title, len(one.rows), *(counts[one.table_id][severity] for severity in SEVERITIES))
        for one in loaded.tables
    )
    columns = ("file", "title", "lines", *(f"{severity}s" for severity in SEVERITIES))
    return partial(frame.ask, of_printed, "published tables", columns, rows)


def _choose_origin(frame: Frame) -> Origin:
    """Returns where the tables come from: the file where it has any, unless the reader asks for the shipped ones."""
    if not frame.ask(load_published):
        return "shipped"
    return _CHOICES[chosen("published-from", "Published tables", list(_CHOICES))]


def _draw_claims(frame: Frame, loaded: AuditedTables) -> None:
    draw_heading(frame, "Which claims survive?", anchor="claims")
    rows = [_describe(name, loaded) for name in loaded.names]
    st.dataframe(
        shorten(table(rows)),
        hide_index=True,
        height=min(640, 38 + 35 * len(rows)),
        column_config={
            "Table": st.column_config.TextColumn(width="medium"),
            "Verdict": st.column_config.TextColumn(width="large"),
        },
        key="published-claims",
        alt="Every published table with what it claims and whether that survives the audit.",
    )


def _describe(name: str, loaded: AuditedTables) -> dict[str, Any]:
    one = loaded.names[name]
    counts = count_published_grades(one, loaded.of(one))
    return {
        "Report": one.report or "",
        "Table": one.title,
        "Verdict": say_verdict(loaded.of(one), list(loaded.grades(one).values())),
        "Claim": say_claim(one, loaded.readings.get(one.table_id, [])),
        "Machine": one.machine or "not stated",
        "About": one.subject,
        "Rows": len(one.rows),
        **{grade: counts[grade] for grade in GRADES},
        "File": one.file,
    }


def _draw_grades(frame: Frame, loaded: AuditedTables) -> None:
    by = chosen("published-by", "One bar for each", ["report", "table"])
    counts: dict[str, Counter[Grade | None]] = defaultdict(Counter)
    for name, one in loaded.names.items():
        of = f"report {one.report}" if one.report else one.file
        label = of if by == "report" else cut_text(name, longest=_LABEL)
        counts[label].update(count_published_grades(one, loaded.of(one)))
    bars = [GradeBar(name=name, counts=dict(numbers.items())) for name, numbers in counts.items()][:MAX_BARS]
    rest = f" The first {MAX_BARS} of {len(counts):,} are drawn." if len(counts) > MAX_BARS else ""
    card = Card(
        key="published-grades",
        title=f"Published rows by grade and {by}",
        note=f"{GRADE_WORDS} Of published tables, by what they print.{rest}",
        alt=f"Published rows by grade. {'; '.join(f'{name}: {_say_counts(n)}' for name, n in counts.items())}",
        rows=[_describe(name, loaded) for name in loaded.names],
    )
    draw(frame, card, lambda: grade_bars(bars, meanings=dict(GRADES.items()), state=f"published-grades-{by}"))


def _say_counts(counts: Counter[Grade | None]) -> str:
    return ", ".join(f"{grade or NO_RESULT} {number:,}" for grade, number in counts.items())


def _draw_findings(frame: Frame, loaded: AuditedTables) -> None:
    groups = group_published(loaded.findings)
    if not groups:
        return
    bars = [
        FindingBar(
            name=name_code(group.code), severity=group.severity, grade=SEVERITIES[group.severity], rows=group.rows
        )
        for group in groups
    ]
    card = Card(
        key="published-findings",
        folded=True,
        title=f"Published rows by finding, {len(groups)} kinds",
        note="The most severe first; a row may have several. A fault makes the grade D, a doubt C, a note B.",
        alt="Published rows by finding: "
        + ", ".join(f"{name_code(group.code)} ({group.severity}) {group.rows:,}" for group in groups),
        rows=[row for group in groups for row in _list_group(group)],
    )
    draw(frame, card, lambda: finding_bars(bars, state="published-findings"))


def _list_group(group: PublishedGroup) -> list[dict[str, Any]]:
    return [
        {
            "Finding": name_code(group.code),
            "Severity": group.severity,
            "Table": found.table.title,
            "File": found.table.file,
            "Lines": format_lines(found.lines),
            "What was found": found.finding.sentence,
            "Evidence": format_evidence(found.finding),
            "What to do": group.remedy,
        }
        for found in group.found
    ]


PAGE = Page(
    title="Published results", address="published", icon=":material/menu_book:", draw=page, filters=("machine", "run")
)
