"""The whole report: every question with its answer, and at the end those that stay open.

report = make_report(Rows(path, Scope(edition="2025")))
[one.id for one in report.open]
"""

from dataclasses import replace
from pathlib import Path

from runner.formats import format_count
from runner.report.document import Answer, Answered, Open, Question, Report
from runner.report.head import facts
from runner.report.questions import QUESTIONS
from runner.report.rows import Rows, Scope
from runner.report.text import MAX_LINES
from runner.report.wanted import commands


def load_report(path: Path, scope: Scope) -> Report:
    """Returns the report of a file."""
    return make_report(Rows(path, scope))


def make_report(rows: Rows) -> Report:
    """Answers every question as far as the rows do."""
    answered: list[Answered] = []
    still_open: list[Open] = []
    for question in QUESTIONS:
        answer = _cut(question.answer(rows))
        if answer.tables:
            answered.append(_close(rows, question, answer))
        if lacking := _find_lacking(rows, question, answer):
            still_open.append(lacking)
    return Report(
        title=f"Stepscope report: {rows.machine or rows.path.name}",
        facts=facts(rows),
        answered=tuple(answered),
        open=tuple(still_open),
    )


def _cut(answer: Answer) -> Answer:
    """Returns the answer with no table longer than MAX_LINES; its note says how much was left out."""
    tables = tuple(
        replace(
            table,
            lines=table.lines[:MAX_LINES],
            note=f"The first {MAX_LINES} of {len(table.lines):,} lines. {table.note}",
        )
        if len(table.lines) > MAX_LINES
        else table
        for table in answer.tables
    )
    return replace(answer, tables=tables)


def _close(rows: Rows, question: Question[Rows], answer: Answer) -> Answered:
    again = commands(rows, dict.fromkeys(row.cell for row in answer.behind), fresh=True)
    return Answered(id=question.id, text=question.text, page=question.page, answer=answer, commands=again)


def _find_lacking(rows: Rows, question: Question[Rows], answer: Answer) -> Open | None:
    """Returns what is missing for a whole answer; None where nothing is. With an edition, that is also every cell of
    its grid without a row."""
    wanted = list(question.wanted(rows))
    words = [answer.lacks] if answer.lacks else []
    unmeasured = [cell for cell in wanted if not rows.lists(cell)] if rows.scope.edition and not words else []
    if unmeasured:
        words.append(
            f"{len(unmeasured):,} of {format_count(len(wanted), 'cell')} of edition {rows.scope.edition} not measured"
        )
    if not words:
        return None
    again = commands(rows, dict.fromkeys(wanted))
    return Open(id=question.id, text=question.text, lacks="; ".join(words), commands=again)
