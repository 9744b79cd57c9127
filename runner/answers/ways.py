"""What does another implementation of attention buy in a whole step?"""

from runner.answers.answer import Answer, Asked, Missing, Question
from runner.answers.shared import cells_of
from runner.answers.speedup import compare_steps
from runner.results.rows import Rows

#: Implementations beside the naive one.
WAYS = ("sdpa", "sdpa-cudnn", "sdpa-flash", "sdpa-efficient", "sdpa-math", "flex")


def answer(rows: Rows, asked: Asked) -> Answer:
    compared = compare_steps(rows, asked, name="ways", field="attention", base="naive", others=WAYS)
    if compared is None:
        words = "no step was measured with naive attention and with another implementation"
        return Answer(question="ways", missing=(Missing(words=words),))
    matrix = compared.draw_matrix()
    return Answer(
        question="ways",
        sentence=compared.say(matrix),
        views=(matrix, compared.draw_phases()),
        choices=compared.choices,
        cells=cells_of(compared.sides),
    )


QUESTION = Question(
    name="ways",
    page="Attention",
    words="How much faster is a whole step with another implementation of attention?",
    needs=("every_step",),
    answer=answer,
)
