"""What do a thousand additions of 0.01 give in fp32, fp16 and both mixed?"""

from collections.abc import Mapping
from dataclasses import replace

from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose
from runner.answers.shared import name_machines
from runner.answers.words import lacks
from runner.results.cells import AccumulationResult
from runner.results.rows import Rows
from runner.schema import SUMS

#: What the course's handout prints, by the names of `--sums`: read on a CPU in nine digits.
EXPECTED: Mapping[str, float] = {
    "fp32": 10.0001335,
    "fp16": 9.953125,
    "fp16-in-fp32": 10.0021362,
    "fp16-upcast-in-fp32": 10.0021362,
}
SUM = Field("sum", "Addition")
#: As many digits as the handout prints.
TOTAL = replace(Field.of("accumulation", "total", "value"), digits=9)
ERROR = Field.of("accumulation", "error", "note")
_FIELDS = (
    SUM,
    TOTAL,
    Field("expected", "Expected", role="note", doc="What CS336's assignment 2 prints.", digits=9),
    Field("agrees", "Agrees", role="note", doc="In the nine digits that are printed."),
    ERROR,
    replace(Field.of("accumulation", "rounded_value", "note"), digits=9),
    Field.of("accumulation", "spacing", "note"),
    Field.of("accumulation", "slips_at", "note"),
)
_NAMES = {cell.key: name for name, cell in SUMS.items()}


def answer(rows: Rows, asked: Asked) -> Answer:
    known = [one for one in rows.sums if one.total is not None]
    if not known:
        return Answer(missing=lacks("no sum was measured", tuple(SUMS.values())))
    sums = [f"{one.addends:,} × {one.value:g}" for one in known]
    added = choose(asked, "added", "Added", list(dict.fromkeys(sums)))
    shown: dict[str, AccumulationResult] = {}
    for one, words in zip(known, sums, strict=True):
        if words == added.chosen:
            shown.setdefault(_write(one), one)
    view = View(
        name="sums",
        title=f"{added.chosen}, added one after the other",
        about=name_machines(shown.values()),
        fields=_FIELDS,
        rows=tuple(_make_row(words, one) for words, one in shown.items()),
        draw=Draw("table", "total", down=("sum",)),
        note="One process is enough: the sums are the same each time. Error: against the exact product.",
    )
    drift = View(
        name="sums-on-the-way",
        title="Error on the way to the sum",
        about=view.about,
        fields=(SUM, Field("addend", "Addends so far"), Field("drift", "Sum less the exact one", role="value")),
        rows=tuple(
            Row.of(one, words, addend, total - addend * one.value)
            for words, one in shown.items()
            for addend, total in one.on_the_way
        ),
        draw=Draw("lines", "drift", across="addend", series="sum"),
        note="0 is the exact sum. Lines that lie on each other are the same to the last bit.",
    )
    measured = {one.key for one in shown.values()}
    lacking = {name: cell for name, cell in SUMS.items() if cell.key not in measured}
    return Answer(
        sentence=_say(view, next(iter(shown.values())).exact),
        views=(view, drift),
        choices=(added,),
        cells={one.cell_id: one for one in shown.values()},
        missing=lacks(f"no sum by {', '.join(lacking)}", lacking.values()) if lacking else (),
    )


def _write(one: AccumulationResult) -> str:
    """Returns a sum as code writes it: `fp32 += fp16, upcast first`."""
    return f"{one.accumulator} += {one.addend}" + (", upcast first" if one.upcast else "")


def _make_row(words: str, one: AccumulationResult) -> Row:
    expected = EXPECTED.get(_NAMES.get(one.key, ""))
    agrees = None if expected is None else f"{one.total:.9g}" == f"{expected:.9g}"
    return Row.of(one, words, one.total, expected, agrees, one.error, one.rounded_value, one.spacing, one.slips_at)


def _say(view: View, exact: float | None) -> str:
    worst = max(view.rows, key=lambda row: abs(view.get(row, "error") or 0.0))
    compared = [row for row in view.rows if view.get(row, "agrees") is not None]
    right = sum(view.get(row, "agrees") for row in compared)
    text = f"**{view.get(worst, 'sum')}** ends at **{view.get(worst, 'total'):.9g}** instead of {exact:g}"
    return f"{text}; {right} of {len(compared)} sums are as CS336's assignment 2 prints." if compared else f"{text}."


QUESTION = Question(answer=answer, needs=("sums",), course=("P1",))
