"""How much faster is a whole step with another implementation of attention?"""

from runner.answers.answer import Answer, Asked, Question
from runner.answers.speedup import compare_steps
from runner.answers.words import lacks
from runner.results.rows import Rows

#: Implementations beside the naive one.
WAYS = ("sdpa", "sdpa-cudnn", "sdpa-flash", "sdpa-efficient", "sdpa-math", "flex")


def answer(rows: Rows, asked: Asked) -> Answer:
    compared = compare_steps(rows, asked, name="ways", field="attention", base="naive", others=WAYS)
    if compared is None:
        return Answer(missing=lacks("no step was measured with naive attention and with another implementation"))
    return compared.answer(compared.draw_matrix())


QUESTION = Question(answer=answer, needs=("every_step",))
