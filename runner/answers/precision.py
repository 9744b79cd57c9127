"""How much faster is bf16 than fp32, at each size and context?"""

from runner.answers.answer import Answer, Asked, Draw, Field, Guide, Power, Question, Row, View
from runner.answers.shared import sizes_of
from runner.answers.speedup import PARAMETERS, Compared, compare_steps, ratio_fields
from runner.answers.words import fit_power, lacks
from runner.formats import format_number
from runner.results.rows import Rows
from runner.schema import Model

SIZE = Field("size", "Size", role="note")


def answer(rows: Rows, asked: Asked) -> Answer:
    compared = compare_steps(
        rows, asked, name="precision", field="precision", base="fp32", others=("bf16", "tf32", "fp16")
    )
    if compared is None:
        return Answer(missing=lacks("no step was measured both in fp32 and in a lower precision"))
    trend, fit = _draw_trend(compared)
    return compared.answer(compared.draw_matrix(), trend, words=_say_trend(fit, compared.usual_context))


def _draw_trend(compared: Compared) -> tuple[View, Power | None]:
    """Own models are other architectures: a trend with size is one of Stepscope's Transformer."""
    sizes, context = sizes_of(compared.sides), compared.usual_context
    family = [
        pair
        for pair in compared.pairs
        if pair.base.cell.context == context and pair.base.cell.model_key is None and pair.base.parameters
    ]
    rows = tuple(
        Row.of(pair.sides, pair.base.parameters, sizes[Model.of(pair.base.cell)], *compared.values(pair))
        for pair in family
    )
    fit = fit_power((row.values[0], row.values[2]) for row in rows if row.values[2] is not None)
    guides = [Guide(words=f"{format_number(10**fit.exponent)}× per tenfold size", power=fit)] if fit else []
    view = View(
        name="precision-trend",
        title=f"Trend with size at {context:,} tokens, {compared.phase}",
        about=compared.about,
        fields=(PARAMETERS, SIZE, *ratio_fields(compared.base, compared.other)),
        rows=rows,
        draw=Draw("lines", "ratio", across="parameters", log="xy", guides=(*guides, Guide(words="as fast", at=1.0))),
    )
    return view, fit


def _say_trend(fit: Power | None, context: int) -> str:
    if fit is None or fit.low is None or fit.high is None:
        return ""
    interval = f"95% interval {format_number(10**fit.low)}–{format_number(10**fit.high)}×"
    reach = f"{interval}, {fit.points} sizes at {context:,} tokens"
    if fit.low <= 0 <= fit.high:
        return f"No trend with size is shown ({reach})."
    times = f"**{format_number(10 ** abs(fit.exponent))}×**"
    return f"The ratio {'grows' if fit.low > 0 else 'shrinks'} {times} per tenfold parameters ({reach})."


QUESTION = Question(answer=answer, needs=("every_step",), course=("P3",))
