"""Which dtypes do parameters, layers, logits, loss and gradients have under autocast?"""

from collections.abc import Iterable, Sequence

from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose, verbatim
from runner.answers.shared import name_machines
from runner.answers.words import lacks, name_pass
from runner.formats import format_list, join_parts
from runner.results.rows import Precise, Rows
from runner.schema import DtypeRow

_SHORT = {"float64": "fp64", "float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
#: Parts of the model by the last part of a module's path; other modules go by their path.
_PARTS = {
    "embedding": "embedding",
    "attention_norm": "normalization",
    "feed_forward_norm": "normalization",
    "final_norm": "normalization",
    "query": "queries, keys and values",
    "key": "queries, keys and values",
    "value": "queries, keys and values",
    "attention": "attention's output",
    "gate": "gate and up products",
    "up": "gate and up products",
    "feed_forward": "feed-forward's output",
    "0": "residual stream",
    "first": "first linear's output",
    "relu": "ReLU's output",
    "layer_norm": "layer norm's output",
}
#: Modules whose output is another part already: the product at a part's end, and the logits.
_SAME = {"output", "down", "head", "last"}


def formats_of(rows: Iterable[DtypeRow]) -> dict[str, list[str]]:
    """Returns the formats in which each part was read, parts in the order of the pass."""
    found: dict[str, list[str]] = {}
    for row in rows:
        last, name = row.module.rsplit(".", 1)[-1], _SHORT.get(row.dtype, row.dtype)
        if row.part in ("logits", "loss", "parameter", "gradient"):
            part = row.part if row.part in ("logits", "loss") else f"{row.part}s"
        elif last in _SAME:
            continue  # another row covers it
        else:
            part = _PARTS.get(last, row.module)
        if name not in found.setdefault(part, []):
            found[part].append(name)
    return found


PART = Field("part", "Part")
PRECISION = Field.of("numerics", "precision")
FORMAT = Field("format", "dtype", role="value")
#: The models whose passes are recorded, as `dtypes.model` names them.
_MODELS = {"toy": "toy: linear, ReLU, layer norm, linear", "transformer": "Transformer", "own": "own model"}


def answer(rows: Rows, asked: Asked) -> Answer:
    passes = [one for one in rows.precise if one.dtypes and one.status == "ok"]
    if not passes:
        return Answer(missing=lacks("no pass under autocast was looked at"))
    names = {line.model: None for one in passes for line in one.dtypes}
    read = {_MODELS.get(name, name): name for name in (*_MODELS, *names) if name in names}
    model = choose(asked, "model", "Model", list(read))
    places = list(dict.fromkeys(name_pass(one) for one in passes))
    place = choose(asked, "pass", "Pass", places, default=places[-1])
    shown: dict[str, Precise] = {}
    for one in passes:
        if name_pass(one) == place.chosen:
            shown.setdefault(one.precision, one)
    lines = [
        Row.of(one, part, precision, " and ".join(formats))
        for precision, one in shown.items()
        for part, formats in formats_of(line for line in one.dtypes if line.model == read[model.chosen]).items()
    ]
    view = View(
        name="dtypes",
        title=f"Dtypes of a pass: {model.chosen}",
        about=join_parts(name_machines(shown.values()), place.chosen * (read[model.chosen] != "toy")),
        fields=(PART, PRECISION, FORMAT),
        rows=tuple(lines),
        draw=Draw("matrix", "format", down=("part",), across="precision"),
        note="Read by hooks, parts in the order of the pass. Autocast has other rules on a CPU than on CUDA.",
    )
    return Answer(
        sentence=_say(view, [one for one in ("bf16", "fp16") if one in shown]),
        views=(view,),
        choices=(model, place),
        cells={one.cell_id: one for one in shown.values()},
    )


def _say(view: View, precisions: Sequence[str]) -> str:
    """Says which parts stay wide under autocast, of the first precision that was read."""
    if not precisions:
        return "No pass under autocast was looked at: these are in full precision."
    precision = precisions[0]
    parts = {view.get(row, "part"): view.get(row, "format") for row in view.rows if row.values[1] == precision}
    wide = [verbatim(part) for part, name in parts.items() if name == "fp32"]
    narrow = [part for part, name in parts.items() if name == precision]
    if not wide:
        return f"Under {precision} autocast no part stays fp32; {len(narrow)} parts are {precision}."
    more = f" and {len(wide) - 6} more" if len(wide) > 6 else ""
    stay = f"**{format_list(wide[:6])}**{more} stay fp32"
    return f"Under {precision} autocast {stay}; {len(narrow)} parts are {precision}."


QUESTION = Question(answer=answer, needs=("precise",), course=("P2",))
