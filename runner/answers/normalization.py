"""What in normalization needs more than 16 bits, and is bf16 different from fp16?"""

from dataclasses import replace

from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose
from runner.answers.words import lacks, name_pass
from runner.formats import format_share
from runner.results.rows import Precise, Rows

IN = Field.of("normalisation", "computed_in")
SCALE = replace(Field.of("normalisation", "scale"), digits=4)
ERROR = Field.of("normalisation", "error", "value")
OVER = Field.of("normalisation", "overflowed_share", "note")
UNDER = Field.of("normalisation", "underflowed_share", "note")
ENDED = Field("ended", "Without an error", role="status")
#: The order of the statistics: the first two need the range, the last what a model uses.
_STATISTICS = ("mean of squares", "variance", "mean", "output")


def answer(rows: Rows, asked: Asked) -> Answer:
    passes = [one for one in rows.precise if one.normalization]
    if not passes:
        return Answer(missing=lacks("no normalization was looked at"))
    places: dict[str, Precise] = {}
    for one in passes:  # of one pass every precision has them, of the same residual streams
        places.setdefault(name_pass(one), one)
    place = choose(asked, "pass", "Pass", list(places), default=[*places][-1])
    one = places[place.chosen]
    statistics = [name for name in _STATISTICS if any(line.statistic == name for line in one.normalization)]
    statistic = choose(asked, "statistic", "Statistic", statistics)
    lines = []
    for line in (line for line in one.normalization if line.statistic == statistic.chosen):
        lost = line.overflowed_share
        ended = "" if line.error is not None else f"{format_share(lost)} overflow" if lost else "not finite"
        values = (line.computed_in, line.scale, line.error, lost, line.underflowed_share, ended)
        lines.append(Row.of(one, *values))
    view = View(
        name="normalization",
        title=f"Error of the {statistic.chosen} by the scale of its input",
        about=f"{one.machine.split(' · ')[0]} · residual streams of {place.chosen}, times powers of two",
        fields=(IN, SCALE, ERROR, OVER, UNDER, ENDED),
        rows=tuple(lines),
        draw=Draw("lines", "error", across="scale", series="computed_in", log="xy"),
        note="Against fp64, the worst block. bf16 has the exponents of fp32, so it is coarse at every size.",
    )
    return Answer(
        sentence=_say(view, statistic.chosen),
        views=(view,),
        choices=(place, statistic),
        cells={one.cell_id: one},
    )


def _say(view: View, statistic: str) -> str:
    at_one = {row.values[0]: row.values[2] for row in view.rows if row.values[1] == 1}
    parts = [f"{name} **{at_one[name]:.0e}**" for name in ("bf16", "fp16") if at_one.get(name)]
    lost = [row for row in view.rows if row.values[0] == "fp16" and row.values[3]]
    text = f"The {statistic} is off by {' and '.join(parts)} at its own scale" if parts else f"The {statistic} is exact"
    if not lost:
        return f"{text}."
    scale, share = lost[0].values[1], lost[0].values[3]
    where = f"{format_share(share)} of the worst block's tokens"
    return f"{text}; in fp16 it **overflows from {scale:g} times** on ({where})."


QUESTION = Question(answer=answer, needs=("precise",), course=("P2",))
