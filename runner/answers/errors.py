"""What does each precision cost in accuracy?"""

from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose
from runner.answers.words import lacks, name_pass
from runner.formats import format_list
from runner.results.rows import Rows

PASS = Field("pass", "Pass")
PRECISION = Field.of("numerics", "precision")
WHAT = Field("what", "Error of")
ERROR = Field("error", "Relative error", role="value", doc="‖x − reference‖ / ‖reference‖ over all elements.")
LOST = Field.of("numerics", "zero_gradient_share", "note")
UNSCALED = Field.of("numerics", "unscaled_zero_gradient_share", "note")
_ERRORS = {"gradients": "gradient_error", "logits": "logits_error", "loss": "loss_error"}


def answer(rows: Rows, asked: Asked) -> Answer:
    passes = [one for one in rows.precise if one.gradient_error is not None]
    if not passes:
        return Answer(missing=lacks("the errors of no precision were measured"))
    what = choose(asked, "error-of", "Error of", list(_ERRORS))
    lines: dict[tuple[str, str], Row] = {}
    for row in passes:
        if (error := getattr(row, _ERRORS[what.chosen])) is not None:
            place, lost = name_pass(row), (row.zero_gradient_share, row.unscaled_zero_gradient_share)
            lines.setdefault((place, row.precision), Row.of(row, place, row.precision, error, *lost))
    matrix = View(
        name="errors-by-size",
        title=f"Relative error of the {what.chosen}",
        about=f"{passes[-1].machine.split(' · ')[0]} · one forward and backward pass, same weights and tokens",
        fields=(PASS, PRECISION, ERROR, LOST, UNSCALED),
        rows=tuple(lines.values()),
        draw=Draw("matrix", "error", down=("pass",), across="precision", log="y"),
        note="Beside fp64, or fp32 where fp64 is too much. The largest model last.",
    )
    place = name_pass(passes[-1])
    last = [one for one in passes if name_pass(one) == place]
    by_part = View(
        name="errors-by-part",
        title=f"Errors of loss, logits and gradients: {place}",
        about=matrix.about,
        fields=(WHAT, PRECISION, ERROR),
        rows=tuple(
            Row.of(one, words, one.precision, error)
            for words, name in _ERRORS.items()
            for one in last
            if (error := getattr(one, name)) is not None
        ),
        draw=Draw("dots", "error", down=("what", "precision"), series="precision", log="x"),
    )
    sentence, more = _say(matrix, place)
    cells = {one.cell_id: one for one in passes}
    return Answer(sentence=sentence, more=more, views=(matrix, by_part), choices=(what,), cells=cells)


def _say(matrix: View, place: str) -> tuple[str, str]:
    mine = [row for row in matrix.rows if row.values[0] == place]
    parts = [f"{matrix.get(row, 'precision')} **{matrix.get(row, 'error'):.1e}**" for row in mine]
    text = f"of {place}: {format_list(parts)}." if parts else "is known for no precision."
    scaled = [row for row in mine if matrix.get(row, UNSCALED.name)]
    plain = next((matrix.get(row, LOST.name) for row in mine if matrix.get(row, "precision") == "fp32"), None)
    beside = "" if plain is None else f" (fp32: {100 * plain:.2g}%)"
    more = "".join(
        f"Without its gradient scaler {matrix.get(row, 'precision')} would lose "
        f"**{100 * matrix.get(row, UNSCALED.name):.2g}%** of the gradients to zero; with it "
        f"{100 * (matrix.get(row, LOST.name) or 0):.2g}%{beside}."
        for row in scaled
    )
    return f"{matrix.title} {text}", more


QUESTION = Question(answer=answer, needs=("precise",))
