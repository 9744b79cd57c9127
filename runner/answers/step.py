"""How long does a training step take, and which phase takes it?"""

from runner.answers.answer import Answer, Asked, Draw, Field, Missing, Question, Row, View
from runner.answers.shared import (
    CLOCKS,
    CONTEXT,
    SIZE,
    STATUS,
    about,
    best,
    cells_of,
    clock_choice,
    ended,
    lost_of,
    narrow,
    sizes_of,
    unmeasured,
    write,
)
from runner.formats import at_tokens, format_list, format_number, format_share
from runner.results import StepResult
from runner.results.rows import Rows
from runner.schema import Model, Phase
from runner.schema.titles import WORDS

PHASE = Field.of("timings", "phase")
TIME = Field.of("timings", "median_ms", "value", label="Time")
LOW, HIGH = Field.of("timings", "low_ms", "low"), Field.of("timings", "high_ms", "high")
SHARE = Field(name="share", label="Share of the phases", role="note")
ROUNDS = Field.of("steps", "round", "note", label="Processes")
BOUND = Field.of("steps", "bound", "note")
_PARTS: tuple[Phase, ...] = ("forward", "loss", "backward", "optimizer")


def answer(rows: Rows, asked: Asked) -> Answer:
    steps = [one for one in rows.steps if one.status != "skipped"]
    if not steps:
        return Answer(question="step", missing=(Missing(words="no step was measured"),))
    shown, choices = narrow(steps, asked, drawn=("size", "context"))
    clock = clock_choice(asked, shown)
    sizes, words = sizes_of(steps), about(shown, more=[clock.chosen] if clock.chosen else [])

    def values(one: StepResult, phase: Phase) -> tuple[float | None, float | None, float | None]:
        time = one.times[phase].by(CLOCKS[clock.chosen]) if phase in one.times else None
        return (time.ms, time.low_ms, time.high_ms) if time else (None, None, None)

    keys = {one.cell_id: (sizes[Model.of(one.cell)], one.cell.context or None) for one in shown}
    gaps = [
        Row(values=(keys[one.cell_id][0], column, None, None, None, None, None, ""), wanted=(cell,))
        for one, column, cell in unmeasured(shown, across="context")
    ]
    matrix = View(
        name="step-by-size",
        title="Time of a whole step",
        about=words,
        fields=(SIZE, CONTEXT, TIME, LOW, HIGH, ROUNDS, BOUND, STATUS),
        rows=(
            *(
                Row(
                    values=(*keys[one.cell_id], *values(one, "step"), one.rounds, one.bound, ended(one)),
                    cells=(one.cell_id,),
                )
                for one in shown
            ),
            *gaps,
        ),
        draw=Draw(
            kind="matrix", value="median_ms", low="low_ms", high="high_ms", down=("size",), across="context", log="x"
        ),
        note="Median over the measured steps and processes; small: the 95% interval of the next process.",
    )
    parts = []
    for one in shown:
        found = {phase: made for phase in (*_PARTS, "step") if (made := values(one, phase))[0] is not None}
        whole = sum(made[0] or 0 for phase, made in found.items() if phase != "step")
        parts += [
            Row(
                values=(*keys[one.cell_id], phase, *made, None if phase == "step" else (made[0] or 0) / whole, ""),
                cells=(one.cell_id,),
            )
            for phase, made in found.items()
        ] or [Row(values=(*keys[one.cell_id], "step", None, None, None, None, ended(one)), cells=(one.cell_id,))]
    phases = View(
        name="step-by-phase",
        title="Time of each phase",
        about=words,
        fields=(SIZE, CONTEXT, PHASE, TIME, LOW, HIGH, SHARE, STATUS),
        rows=tuple(parts),
        draw=Draw(
            kind="bars",
            value="median_ms",
            low="low_ms",
            high="high_ms",
            down=("size", "context"),
            series="phase",
            total="step",
        ),
        note="At the end of a bar the median of the whole step: medians of phases need not add up to it.",
    )
    sentence, more = _say(matrix, phases)
    return Answer(
        question="step",
        sentence=sentence,
        more=more,
        views=(matrix, phases),
        choices=(*choices, clock),
        cells=cells_of(shown),
    )


def _say(matrix: View, phases: View) -> tuple[str, str]:
    top = best(matrix)
    if top is None:
        return "None of these cells has a time of a whole step.", ""
    size, context, ms, low, high = top.values[:5]
    mine = [row for row in phases.rows if row.cells == top.cells and phases.get(row, "phase") != "step"]
    mine.sort(key=lambda row: -(phases.get(row, "median_ms") or 0))
    shares = [f"{WORDS[phases.get(row, 'phase')]} {format_share(phases.get(row, 'share'))}" for row in mine]
    known = f" (95% interval {format_number(low)}–{format_number(high)} ms)" if low else ""
    text = f"The longest step, **{size}**{at_tokens(context or 0)}, takes **{write(ms, 'ms')}**{known}"
    text += f": {format_list(shares[:2])}." if shares else "."
    measured = [row for row in matrix.rows if not row.wanted]
    host, lost = sum(matrix.get(row, "bound") == "host" for row in measured), len(lost_of(matrix))
    more = f"{host} of {len(measured)} cells are CPU-bound: the GPU waits for work. " if host else ""
    return text, more + (f"{lost} {'has' if lost == 1 else 'have'} no time." if lost else "")


QUESTION = Question(
    name="step",
    page="Step time",
    words="How long does a step take, and which phase takes it?",
    needs=("steps",),
    answer=answer,
    course=("B1",),
)
