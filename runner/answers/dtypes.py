"""Which dtypes do the parts of a model have under autocast? Read from the tensors of a pass, not written down."""

from collections.abc import Sequence

from runner.analysis.dtypes import formats_of
from runner.answers.answer import Answer, Asked, Draw, Field, Missing, Question, Row, View, choose
from runner.answers.shared import name_pass, pass_cell
from runner.formats import format_list
from runner.results.rows import Precise, Rows

PART = Field(name="part", label="Part")
PRECISION = Field.of("numerics", "precision")
FORMAT = Field(name="format", label="dtype", role="value")
#: The models whose passes are recorded, as `dtypes.model` names them.
_MODELS = {"toy": "toy: linear, ReLU, layer norm, linear", "transformer": "Transformer", "own": "own model"}


def answer(rows: Rows, asked: Asked) -> Answer:
    passes = [one for one in rows.precise if one.dtypes and one.row.status == "ok"]
    if not passes:
        return Answer(question="dtypes", missing=(Missing(words="no pass under autocast was looked at"),))
    read = [
        words for name, words in _MODELS.items() if any(line.model == name for one in passes for line in one.dtypes)
    ]
    model = choose(asked, "model", "Model", read)
    places = list(dict.fromkeys(name_pass(one.row) for one in passes))
    place = choose(asked, "pass", "Pass", places, default=places[-1])
    shown: dict[str, Precise] = {}
    for one in passes:
        if name_pass(one.row) == place.chosen:
            shown.setdefault(one.row.precision, one)
    name = next(name for name, words in _MODELS.items() if words == model.chosen)
    lines = [
        Row(values=(part, precision, " and ".join(formats)), cells=(one.row.cell_id,))
        for precision, one in shown.items()
        for part, formats in formats_of(line for line in one.dtypes if line.model == name).items()
    ]
    view = View(
        name="dtypes",
        title=f"dtypes of a pass: {model.chosen}",
        about=f"{next(iter(shown.values())).machine.split(' · ')[0]} · {place.chosen}",
        fields=(PART, PRECISION, FORMAT),
        rows=tuple(lines),
        draw=Draw(kind="table", value="format", down=("part",), series="precision"),
        note="Read by hooks, parts in the order of the pass. Autocast has other rules on a CPU than on CUDA.",
    )
    return Answer(
        question="dtypes",
        sentence=_say(view, [one for one in ("bf16", "fp16") if one in shown]),
        views=(view,),
        choices=(model, place),
        cells={one.row.cell_id: pass_cell(one.row) for one in shown.values()},
    )


def _say(view: View, precisions: Sequence[str]) -> str:
    """Says which parts stay wide under autocast, of the first precision that was read."""
    if not precisions:
        return "No pass under autocast was looked at: these are in full precision."
    precision = precisions[0]
    parts = {view.get(row, "part"): view.get(row, "format") for row in view.rows if row.values[1] == precision}
    wide = [part for part, name in parts.items() if name == "fp32"]
    narrow = [part for part, name in parts.items() if name == precision]
    more = f" and {len(wide) - 6} more" if len(wide) > 6 else ""
    return (
        f"Under {precision} autocast **{format_list(wide[:6])}**{more} stay fp32; {len(narrow)} parts are {precision}."
    )


QUESTION = Question(
    name="dtypes",
    page="Mixed precision",
    words="Which dtypes do parameters, layers, logits, loss and gradients have under autocast?",
    needs=("precise",),
    answer=answer,
    course=("P2",),
)
