"""How long a sequence, how large a context or batch fits in memory?"""

from dataclasses import replace

from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose
from runner.answers.shared import name_machines
from runner.answers.words import format_value, lacks
from runner.formats import format_bytes, format_number, join_parts
from runner.results.rows import FrontierResult, Rows
from runner.schema import FrontierCell
from runner.schema.sizes import shape_name

WHERE = Field("where", "Where")
WAY = Field("way", "Way")
LARGEST = Field.of("frontier", "largest", "value")
PREDICTED = replace(Field.of("frontier", "predicted", "note"), label="Predicted")
FAILS = Field.of("frontier", "smallest_failing", "note")
PEAK = Field.of("frontier", "largest_peak_bytes", "note")
TRIALS = Field.of("frontier", "trials", "note")
#: What grows: its words, its unit, and the cell that asks for it where nothing was searched.
_GROWS = {
    "seq_len": ("sequence length of attention", "tokens"),
    "context": ("context of a model", "tokens"),
    "batch": ("batch of a model", "sequences"),
}


def answer(rows: Rows, asked: Asked) -> Answer:
    known = [one for one in rows.frontiers if one.status == "ok" and one.largest]
    if not known:
        return Answer(missing=lacks("no largest size that fits was searched for"))
    there = [words for name, (words, _) in _GROWS.items() if any(one.limited == name for one in known)]
    grows = choose(asked, "grows", "What grows", there)
    name, unit = next((name, unit) for name, (words, unit) in _GROWS.items() if words == grows.chosen)
    mine = [one for one in known if one.limited == name]
    limit = choose(asked, "limit", "Memory", list(dict.fromkeys(format_bytes(one.limit_bytes) for one in mine)))
    mine = [one for one in mine if format_bytes(one.limit_bytes) == limit.chosen]
    shown: dict[tuple[str, str], FrontierResult] = {}
    for one in mine:
        batch = f"batch {one.batch}" if name == "seq_len" else ""
        way = join_parts(one.implementation, one.precision, batch, "" if one.causal else "not causal")
        shown.setdefault((_where(one), way), one)
    view = View(
        name="frontier",
        title=f"Largest {grows.chosen} that fits ({unit})",
        about=join_parts(name_machines(shown.values()), f"in {limit.chosen}, by real allocations in fresh processes"),
        fields=(WHERE, WAY, LARGEST, PREDICTED, FAILS, PEAK, TRIALS),
        rows=tuple(
            Row.of(one, *key, one.largest, one.predicted, one.smallest_failing, one.largest_peak_bytes, one.trials)
            for key, one in shown.items()
        ),
        draw=Draw("bars", "largest", down=("where", "way"), beside=("predicted",)),
        note="Predicted by closed formulas, then searched by bisection; sizes tried are multiples of the resolution.",
    )
    return Answer(
        sentence=_say(view, unit, limit.chosen),
        views=(view,),
        choices=(grows, limit),
        cells={one.cell_id: one for one in shown.values()},
    )


def _where(cell: FrontierCell) -> str:
    if cell.limited == "seq_len":
        return f"head width {cell.d_head}"
    other = f"batch {cell.batch}" if cell.limited == "context" else f"context {format_value(cell.context)}"
    return join_parts(shape_name(cell), cell.mode, other)


def _say(view: View, unit: str, limit: str) -> str:
    top = max(view.rows, key=lambda row: view.get(row, "largest"))
    text = f"In {limit}, **{top.values[1]}** at {top.values[0]} fits **{view.get(top, 'largest'):,} {unit}**"
    known = [row for row in view.rows if view.get(row, "predicted")]
    off = [abs(view.get(row, "predicted") / view.get(row, "largest") - 1) for row in known]
    if not off:
        return f"{text}."
    words = f"at most {format_number(100 * max(off))}%" if max(off) >= 0.001 else "less than 0.1%"
    return f"{text}; predictions were off by {words}."


QUESTION = Question(answer=answer, needs=("frontiers",))
