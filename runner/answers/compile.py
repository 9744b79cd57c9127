"""How much faster is the compiled model than eager, and when has compiling paid?"""

from dataclasses import replace

from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View
from runner.answers.shared import place_of, sizes_of
from runner.answers.speedup import Compared, compare_steps
from runner.answers.words import CONTEXT, PHASES, SIZE, lacks
from runner.results.rows import Rows

SECONDS = replace(Field.of("steps", "compile_seconds", "value"), label="Compile time")
STEPS = Field("steps", "Paid after", unit="steps", role="note", doc="Compile time over the time saved in a step.")
SAVED = Field("saved_ms", "Saved in a step", unit="ms", role="note")
#: The compiled backends, the usual one first.
BACKENDS = ("compiled", "compiled-block", "compiled-reduce-overhead", "compiled-max-autotune", "cuda-graphs")


def answer(rows: Rows, asked: Asked) -> Answer:
    compared = compare_steps(rows, asked, name="compile", field="backend", base="eager", others=BACKENDS)
    if compared is None:
        return Answer(missing=lacks("no step was measured both eager and compiled"))
    cost = _draw_cost(compared)
    return compared.answer(compared.draw_matrix(), cost, words=_say_cost(cost))


def _draw_cost(compared: Compared) -> View:
    sizes, rows, threads = sizes_of(compared.sides), [], set[int]()
    for pair in compared.pairs:
        seconds, phase = pair.other.compile_seconds, PHASES[compared.phase]
        if seconds is None or pair.objection:
            continue
        times = [side.time(phase, compared.by) for side in pair.sides]
        ratio = pair.ratio(phase=phase, clock=compared.by)
        saved = times[0].ms - times[1].ms if times[0] and times[1] and ratio and ratio.outcome == "faster" else None
        paid = round(1000 * seconds / saved) if saved else None
        threads.add(pair.other.compile_threads or 1)
        rows.append(Row.of(pair.sides, *place_of(pair.base, sizes), seconds, saved, paid))
    return View(
        name="compile-cost",
        title="Time to compile, apart from every step",
        about=compared.about,
        fields=(SIZE, CONTEXT, SECONDS, SAVED, STEPS),
        rows=tuple(rows),
        draw=Draw("bars", "compile_seconds", down=("size", "context"), beside=("steps",)),
        note="Steps: where the compiled step is faster beyond its interval, compile time over the time it saves."
        + (
            " One thread compiles here; PyTorch's default is one for each core, up to 32."
            if threads <= {1}
            else f" The compiler could build {' or '.join(map(str, sorted(threads)))} kernels at once."
        ),
    )


def _say_cost(cost: View) -> str:
    paid = [row for row in cost.rows if cost.get(row, "steps") is not None]
    if not paid:
        return ""
    first, last = (pick(paid, key=lambda row: cost.get(row, "steps")) for pick in (min, max))
    ends = [f"**{cost.get(row, 'steps'):,}** steps ({row.values[0]})" for row in (first, last)]
    return f"Compiling has paid after {ends[0]} to {ends[1]}." if first is not last else f"It has paid after {ends[0]}."


QUESTION = Question(answer=answer, needs=("every_step",), course=("C2",))
