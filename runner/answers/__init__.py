"""Questions by name, and the one way to ask them: `ask("precision", rows, {"clock": "throughput"})`.

Every file of this folder that has a QUESTION is a question.
"""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from runner.answers.answer import Answer, Asked, Question
from runner.results.rows import Rows

_FILES = [import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__)]
#: Every question by its name, which is that of its file.
QUESTIONS: Mapping[str, Question] = {file.QUESTION.name: file.QUESTION for file in _FILES if hasattr(file, "QUESTION")}


def ask(name: str, rows: Rows, asked: Asked = MappingProxyType({})) -> Answer:
    """Returns the answer without views that have no row."""
    answer = QUESTIONS[name].answer(rows, asked)
    return replace(answer, views=tuple(view for view in answer.views if view.rows))
