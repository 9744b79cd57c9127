"""Questions by name, and the one way to ask them: `ask("precision", rows, {"clock": "throughput"})`.

Every file of this folder that has a QUESTION is a question, and the first line of its docstring says it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from uuid import UUID

from runner.analysis.audit.findings import REMEDIES
from runner.answers.answer import Answer, Asked, Doubt, Question
from runner.errors import UsageError
from runner.results.findings import SEVERITIES, AuditedRow, Finding
from runner.results.rows import Rows

_FILES = [import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__)]
#: Every question by its name, which is that of its file.
QUESTIONS: Mapping[str, Question] = {file.QUESTION.name: file.QUESTION for file in _FILES if hasattr(file, "QUESTION")}


def ask(name: str, rows: Rows, asked: Asked = MappingProxyType({})) -> Answer:
    """Returns the answer without views that have no row, with its doubts where `rows` has audited rows and the question
    is not about them."""
    question = QUESTIONS[name]
    answer = question.answer(rows, asked)
    answer = replace(answer, question=name, views=tuple(view for view in answer.views if view.rows))
    return answer if "audited" in question.needs else replace(answer, doubts=find_doubts(answer, rows.audited))


def check_chosen(answer: Answer, asked: Asked, *, got: str = "{}={}.") -> None:
    """Raises UsageError for a choice that the answer does not have, or a value that it does not offer; `got` says how
    name and value are told."""
    options = {one.name: one for one in answer.choices}
    for name, value in asked.items():
        if name not in options:
            expected = ", ".join(f"--{known}" for known in options) or "no choice"
            raise UsageError(f"“{answer.question}” has no choice “{name}”.", expected=expected)
        if value not in options[name].options:
            one = options[name]
            raise UsageError(got.format(name, value), expected=one.takes or ", ".join(one.options))


def find_doubts(answer: Answer, audited: Sequence[AuditedRow]) -> tuple[Doubt, ...]:
    """Returns the findings about cells of the views, one a code, the most severe, then the most frequent first."""
    shown = {cell for view in answer.views for row in view.rows for cell in row.cells}
    rounds: dict[tuple[str, str], set[UUID]] = {}
    for one in audited:
        rounds.setdefault((one.machine, one.row.cell_key), set()).add(one.cell_id)
    groups: dict[str, tuple[Finding, set[UUID]]] = {}
    for one in audited:
        for finding in one.findings:
            cells = {one.cell_id} & shown or rounds[one.machine, one.row.cell_key] & shown
            if finding.severity != "note" and cells:
                groups.setdefault(finding.code, (finding, set()))[1].update(cells)
    doubts = [
        Doubt(code=code, severity=first.severity, words=first.sentence, remedy=REMEDIES[code], cells=frozenset(cells))
        for code, (first, cells) in groups.items()
    ]
    return tuple(sorted(doubts, key=lambda one: ([*SEVERITIES].index(one.severity), -len(one.cells), one.code)))
