"""How much faster is a whole step with another implementation of attention?"""

from runner.answers.answer import Answer, Asked, Question
from runner.answers.shared import cells_of, lacks
from runner.answers.speedup import compare_steps
from runner.results.rows import Rows

#: Implementations beside the naive one.
WAYS = ("sdpa", "sdpa-cudnn", "sdpa-flash", "sdpa-efficient", "sdpa-math", "flex")


def answer(rows: Rows, asked: Asked) -> Answer:
    compared = compare_steps(rows, asked, name="ways", field="attention", base="naive", others=WAYS)
    if compared is None:
        return Answer(missing=lacks("no step was measured with naive attention and with another implementation"))
    matrix = compared.draw_matrix()
    return Answer(
        sentence=compared.say(matrix),
        views=(matrix, compared.draw_phases()),
        choices=compared.choices,
        cells=cells_of(compared.sides),
    )


QUESTION = Question(answer=answer, page="Attention", needs=("every_step",))
