"""Questions by name, and the one way to ask them: `ask("precision", rows, {"clock": "throughput"})`.

Every file of this folder that has a QUESTION is a question.
"""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from runner.answers.answer import Answer, Asked, Question
from runner.answers.doubts import find_doubts
from runner.errors import UsageError
from runner.results.rows import Rows

_FILES = [import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__)]
#: Every question by its name, which is that of its file.
QUESTIONS: Mapping[str, Question] = {file.QUESTION.name: file.QUESTION for file in _FILES if hasattr(file, "QUESTION")}


def ask(name: str, rows: Rows, asked: Asked = MappingProxyType({})) -> Answer:
    """Returns the answer without views that have no row, with its doubts where `rows` has audited rows and the question
    is not about them."""
    question = QUESTIONS[name]
    answer = question.answer(rows, asked)
    answer = replace(answer, views=tuple(view for view in answer.views if view.rows))
    return answer if "audited" in question.needs else replace(answer, doubts=find_doubts(answer, rows.audited))


def check_chosen(answer: Answer, asked: Asked) -> None:
    """Raises UsageError for a choice that the answer does not have, or a value that it does not offer."""
    options = {one.name: one.options for one in answer.choices}
    for name, value in asked.items():
        if name not in options:
            expected = ", ".join(f"--{known}" for known in options) or "no choice"
            raise UsageError(f"“{answer.question}” has no choice “{name}”.", expected=expected)
        if value not in options[name]:
            raise UsageError(f"{name}={value}.", expected=", ".join(options[name]))
