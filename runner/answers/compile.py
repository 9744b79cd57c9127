"""How much faster is the compiled model than eager, and when has compiling paid?"""

from dataclasses import replace

from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View
from runner.answers.shared import best, place_of, sizes_of
from runner.answers.speedup import Compared, compare_steps
from runner.answers.words import CLOCKS, CONTEXT, SIZE, lacks
from runner.formats import at_tokens
from runner.results.rows import Rows

SECONDS = replace(Field.of("steps", "compile_seconds", "value"), label="Compile time")
STEPS = Field("steps", "Paid after", unit="steps", role="value", doc="Compile time over the time saved in a step.")
LOW, HIGH = (replace(STEPS, name=f"steps_{end}", label=f"Paid after, {end}", role=end) for end in ("low", "high"))
SAVED = Field("saved_ms", "Saved in a step", unit="ms", role="note")
#: The compiled backends, the usual one first.
BACKENDS = ("compiled", "compiled-block", "compiled-reduce-overhead", "compiled-max-autotune", "cuda-graphs")


def answer(rows: Rows, asked: Asked) -> Answer:
    compared = compare_steps(rows, asked, name="compile", field="backend", base="eager", others=BACKENDS)
    if compared is None:
        return Answer(missing=lacks("no step was measured both eager and compiled"))
    cost, paid = _draw_cost(compared)
    return compared.answer(compared.draw_matrix(), *((paid,) if paid.rows else ()), cost, words=_say_paid(paid))


def _draw_cost(compared: Compared) -> tuple[View, View]:
    """Returns the time to compile and the steps that pay for it. Nobody waits for GPU time alone: throughput counts."""
    sizes, costs, paid, threads = sizes_of(compared.sides), list[Row](), list[Row](), set[int]()
    clock = "throughput" if compared.by == "device" else compared.clock
    for pair in compared.pairs:
        seconds, place = pair.other.compile_seconds, place_of(pair.base, sizes)
        if seconds is None or pair.objection:
            continue
        threads.add(pair.other.compile_threads or 1)
        costs.append(Row.of(pair.sides, *place, seconds))
        time, ratio = pair.other.time("step", CLOCKS[clock]), pair.ratio(clock=CLOCKS[clock])
        if time and ratio and ratio.low and ratio.high and ratio.outcome == "faster":
            saved = [time.ms * (one - 1) for one in (ratio.ratio, ratio.high, ratio.low)]
            # Two digits: what is saved is a small difference.
            steps = [int(float(f"{1000 * seconds / ms:.2g}")) for ms in saved]
            paid.append(Row.of(pair.sides, *place, *steps, saved[0]))
    cost = View(
        name="compile-cost",
        title="Time to compile, apart from every step",
        about=compared.about,
        fields=(SIZE, CONTEXT, SECONDS),
        rows=tuple(costs),
        draw=Draw("bars", "compile_seconds", down=("size", "context")),
        note="One thread compiles here; PyTorch's default is one for each core, up to 32."
        if threads <= {1}
        else f"The compiler could build {' or '.join(map(str, sorted(threads)))} kernels at once.",
    )
    return cost, View(
        name="compile-paid",
        title="Steps after which compiling has paid",
        about=compared.about.replace(compared.clock, clock),
        fields=(SIZE, CONTEXT, STEPS, LOW, HIGH, SAVED),
        rows=tuple(paid),
        draw=Draw("dots", "steps", down=("size", "context"), log="x"),
        note="Compile time, as it was measured once, over the time saved in a step, by the ratio and both ends of its "
        "99% interval, where that is above 1.",
    )


def _say_paid(paid: View) -> str:
    ends = [row for largest in (False, True) if (row := best(paid, largest=largest))]
    said = [
        f"**{steps:,}** steps ({low:,}–{high:,}; {size}{at_tokens(context or 0)})"
        for size, context, steps, low, high, *_ in (row.values for row in dict.fromkeys(ends))
    ]
    return f"Compiling has paid after {' to '.join(said)}." if said else ""


QUESTION = Question(answer=answer, needs=("every_step",), course=("C2",))
