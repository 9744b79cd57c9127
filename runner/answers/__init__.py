"""Questions by name, and the one way to ask them: `ask("precision", rows, {"clock": "loop"})`."""

from dataclasses import replace
from types import MappingProxyType

from runner.answers import attention, compare, kernels, memory, overview, precision, step
from runner.answers.answer import Answer, Asked, Question
from runner.results.rows import Rows

QUESTIONS: dict[str, Question] = {
    one.QUESTION.name: one.QUESTION for one in (overview, step, precision, memory, attention, kernels, compare)
}


def ask(name: str, rows: Rows, asked: Asked = MappingProxyType({})) -> Answer:
    """Returns the answer without views that have no row."""
    if asked is None:
        asked = {}
    answer = QUESTIONS[name].answer(rows, asked)
    return replace(answer, views=tuple(view for view in answer.views if view.rows))
