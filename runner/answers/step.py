"""How long does a step take, and which phase takes it?

A whole step is shown as a time, as tokens per second or as MFU, by throughput unless another clock is chosen. Its
phases are shown by GPU time, where the device was traced: the host's clock also counts what the GPU waits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose
from runner.answers.shared import about, cells_of, clock_choice, lost_of, narrow, place_of, sizes_of, unmeasured
from runner.answers.words import CLOCKS, CONTEXT, HIGH, LOW, SIZE, STATUS, ended, lacks, plain_cells, write
from runner.formats import at_tokens, format_list, format_measured, format_share
from runner.results.cells import StepResult
from runner.results.rows import Rows
from runner.results.times import Clock
from runner.schema import Phase, StepCell
from runner.schema.sizes import WORDS

PHASE = Field.of("timings", "phase")
TIME = Field.of("timings", "median_ms", "value", label="Time")
RATE = replace(Field.of("steps", "tokens_per_s", "value", label="Throughput"), unit="tokens/s")
RATE_LOW, RATE_HIGH = (replace(RATE, name=f"tokens_per_s_{end}", role=end) for end in ("low", "high"))
MFU = replace(Field.of("steps", "mfu", "value"), unit="%")
MFU_LOW, MFU_HIGH = (replace(MFU, name=f"mfu_{end}", role=end) for end in ("low", "high"))
SHARE = Field("share", "Share of the phases", unit="%", role="note")
ROUNDS = Field.of("steps", "round", "note", label="Processes")
BOUND = Field.of("steps", "bound", "note")
MEAN, STD, N = (Field.of("timings", name, "note") for name in ("mean_ms", "std_ms", "n"))
METRICS = {"time": (TIME, LOW, HIGH), "tokens/s": (RATE, RATE_LOW, RATE_HIGH), "MFU": (MFU, MFU_LOW, MFU_HIGH)}
_PARTS: tuple[Phase, ...] = ("forward", "loss", "backward", "optimizer")
Keys = Mapping[UUID, tuple[str, int | None]]
Interval = tuple[float | None, float | None, float | None]


def answer(rows: Rows, asked: Asked) -> Answer:
    steps = [one for one in rows.steps if one.status != "skipped"]
    if not steps:
        return Answer(missing=lacks("no step was measured", plain_cells(StepCell)))
    shown, choices = narrow(steps, asked, drawn=("size", "context"))
    clock = clock_choice(asked, shown, default="throughput")
    known = [name for name in METRICS if name != "MFU" or any(one.mfu for one in shown)]
    metric = choose(asked, "metric", "Shown as", known)
    sizes = sizes_of(steps)
    keys = {one.cell_id: place_of(one, sizes) for one in shown}
    matrix = _draw_steps(shown, keys, clock.chosen, metric.chosen)
    traced = any(time.by("device") for one in shown for time in one.times.values())
    phases = _draw_phases(shown, keys, "GPU time" if traced and clock.chosen != "latency" else "latency")
    sentence, more = _say(shown, keys, matrix, phases, clock.chosen)
    views, choices = (matrix, phases, _draw_statistics(shown, keys)), [*choices, clock, metric]
    return Answer(sentence=sentence, more=more, views=views, choices=tuple(choices), cells=cells_of(shown))


def _measure(one: StepResult, clock: Clock, metric: str) -> Interval:
    """Returns the whole step as the metric with its interval; None where it is not known."""
    time = one.time("step", clock)
    if time is None:
        return None, None, None
    if metric == "time":
        return time.ms, time.low_ms, time.high_ms
    rates = (1000 * one.tokens / ms if ms else None for ms in (time.ms, time.high_ms, time.low_ms))
    rate, low, high = (one.mfu_at(rate) if rate and metric == "MFU" else rate for rate in rates)
    return rate, low, high


def _draw_steps(shown: Sequence[StepResult], keys: Keys, clock: str, metric: str) -> View:
    by, fields = CLOCKS[clock] if clock else "step", METRICS[metric]
    why = {one.cell_id: ended(one) or "not timed by this clock" for one in shown}
    lines = [
        Row.of(one, *keys[one.cell_id], *_measure(one, by, metric), one.rounds, one.bound, why[one.cell_id])
        for one in shown
    ]
    gaps = [
        Row(values=(keys[one.cell_id][0], column, None, None, None, None, None, ""), wanted=(cell,))
        for one, column, cell in unmeasured(shown, across="context")
    ]
    return View(
        name="step-by-size",
        title={"time": "Time of a whole step", "tokens/s": "Tokens per second", "MFU": "MFU of a whole step"}[metric],
        about=about(shown, more=[clock] if clock else []),
        fields=(SIZE, CONTEXT, *fields, ROUNDS, BOUND, STATUS),
        rows=(*lines, *gaps),
        draw=Draw("matrix", fields[0].name, down=("size",), across="context", log="x"),
        note="The median of a process's measured steps, over processes the geometric mean; small: its 95% interval.",
    )


def _draw_phases(shown: Sequence[StepResult], keys: Keys, clock: str) -> View:
    lines = []
    for one in shown:
        times = {phase: time for phase in (*_PARTS, "step") if (time := one.time(phase, CLOCKS[clock]))}
        whole = sum(time.ms for phase, time in times.items() if phase != "step")
        for phase, time in times.items():
            share = None if phase == "step" else time.ms / whole
            lines.append(Row.of(one, *keys[one.cell_id], phase, time.ms, time.low_ms, time.high_ms, share, ""))
        if not times:
            why = ended(one) or "not timed by this clock"
            lines.append(Row.of(one, *keys[one.cell_id], "step", None, None, None, None, why))
    return View(
        name="step-by-phase",
        title="Time of each phase",
        about=about(shown, more=[clock]),
        fields=(SIZE, CONTEXT, PHASE, TIME, LOW, HIGH, SHARE, STATUS),
        rows=tuple(lines),
        draw=Draw("bars", "median_ms", down=("size", "context"), series="phase", total="step"),
        note="The whole step has a median of its own: those of the phases need not add up to it.",
    )


def _draw_statistics(shown: Sequence[StepResult], keys: Keys) -> View:
    """Draws the whole statistics of each phase by latency, as the handout asks for them."""
    lines = []
    for one in shown:
        for phase, time in ((phase, one.times[phase]) for phase in (*_PARTS, "step") if phase in one.times):
            values = (time.step.ms, time.step.low_ms, time.step.high_ms, time.mean_ms, time.std_ms, time.n)
            lines.append(Row.of(one, *keys[one.cell_id], phase, *values))
    return View(
        name="step-statistics",
        title="Median, mean and standard deviation of each phase",
        about=about(shown, more=["latency"]),
        fields=(SIZE, CONTEXT, PHASE, TIME, LOW, HIGH, MEAN, STD, N),
        rows=tuple(lines),
        draw=Draw("table", "median_ms", down=("size", "context", "phase")),
        note="The standard deviation is that within a process, n over all processes.",
    )


def _say(shown: Sequence[StepResult], keys: Keys, matrix: View, phases: View, clock: str) -> tuple[str, str]:
    timed = [(time, one) for one in shown if clock and (time := one.time("step", CLOCKS[clock]))]
    if not timed:
        return "None of these cells has a time of a whole step.", ""
    time, longest = max(timed, key=lambda pair: pair[0].ms)
    size, context = keys[longest.cell_id]
    mine = [row for row in phases.rows if row.cells == (longest.cell_id,) and phases.get(row, "share")]
    mine.sort(key=lambda row: -phases.get(row, "share"))
    shares = [f"{WORDS[phases.get(row, 'phase')]} {format_share(phases.get(row, 'share'))}" for row in mine]
    number, known = write(time.ms, "ms"), ""
    if time.low_ms and time.high_ms:
        words, interval = format_measured(time.ms, time.low_ms, time.high_ms)
        number, known = f"{words} ms", f" (95% interval {interval})"
    text = f"The longest step, **{size}**{at_tokens(context or 0)}, takes **{number}**{known} by {clock}"
    text += f": {format_list(shares[:2])}." if shares else "."
    host, lost = sum(one.bound == "host" for one in shown), len(lost_of(matrix))
    more = f"CPU-bound, so that the GPU waits for work: {host} of {len(shown)} cells. " if host else ""
    return text, more + (f"{lost} {'has' if lost == 1 else 'have'} no time." if lost else "")


QUESTION = Question(answer=answer, needs=("steps",), course=("B1",))
