"""What happens with 0, 1, 2 and 5 warm-up steps, and why?"""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median, stdev
from uuid import UUID

from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View
from runner.answers.shared import about, best, cells_of, narrow, sizes_of
from runner.answers.words import lacks, plain_cells
from runner.formats import format_count, format_number
from runner.results.cells import EarlyStep
from runner.results.rows import Rows
from runner.schema import Model, StepCell

COUNTS = (0, 1, 2, 5)
#: The number of warm-up steps that is no part of a title.
_USUAL = 5
AFTER = Field.of("steps", "warmup_steps", label="Warm-up steps")
STEP = Field("step", "Step", doc="Since the start of the process; the first is 1.")
TIME = Field.of("samples", "duration_ms", "value", label="Time of a whole step")
IS_WARMUP = Field.of("samples", "is_warmup", "note")
FIRST = Field(
    "first_ratio",
    "First measured step over the rest",
    unit="×",
    role="value",
    doc="The first measured step over the median of the measured steps after it, in one process.",
)
LEAST = Field("least_ratio", "Least", role="low", doc="Lower end of the reach of several processes.")
MOST = Field("most_ratio", "Most", role="high", doc="Upper end of the reach of several processes.")
PROCESSES = Field("processes", "Processes", role="note")
N = Field("n", "Measured steps", role="note")
MEAN, STD = Field.of("timings", "mean_ms", "note"), Field.of("timings", "std_ms", "note")
MEDIAN = Field.of("timings", "median_ms", "note")
FIRST_MS = Field("first_ms", "First measured", unit="ms", role="note")
REST = Field("rest_ms", "Median of the rest", unit="ms", role="note")
MEAN_CHANGE = Field("mean_change", "It moves the mean by", unit="% of the rest", role="note")
MEDIAN_CHANGE = Field("median_change", "It moves the median by", unit="% of the rest", role="note")
#: A first step that takes at least so many times the median of the others, and more than any of them, is cold.
COLD = 1.5


def answer(rows: Rows, asked: Asked) -> Answer:
    shown, choices = narrow(rows.early, asked, drawn=())
    families: dict[StepCell, list[EarlyStep]] = {}
    for one in shown:  # cells that also differ in how long they are measured
        families.setdefault(replace(one.cell, warmup_steps=0), []).append(one)
    if not families:
        (plain,) = plain_cells(StepCell)
        cells = tuple(replace(plain, min_steps=10, max_steps=10, warmup_steps=count) for count in COUNTS)
        return Answer(missing=lacks("no cell was measured after several of 0, 1, 2 and 5 warm-up steps", cells))
    family = max(families.values(), key=lambda found: (len(found), found[0].cell.max_seconds))
    family = sorted(family, key=lambda one: (one.cell.warmup_steps, one.step))
    usual = replace(family[0], cell=replace(family[0].cell, warmup_steps=_USUAL))
    size, words = sizes_of(rows.early)[Model.of(family[0].cell)], about([usual], more=["latency"])
    summary = _summarize(family, words)
    typical = {row.cells[0] for row in summary.rows} or {one.cell_id for one in family}
    every = View(
        name="warmup-steps",
        title="Every step since the start of the process",
        about=words,
        fields=(STEP, AFTER, TIME, IS_WARMUP),
        rows=tuple(
            Row.of(one, one.step + 1, one.cell.warmup_steps, one.step_ms, one.is_warmup)
            for one in family
            if one.cell_id in typical
        ),
        draw=Draw("strip", "duration_ms", across="step", series="warmup_steps", hollow="is_warmup"),
        note="One process for each number of warm-up steps, which are drawn hollow and in no summary.",
    )
    return Answer(
        sentence=_say(summary, size),
        more=_explain(summary),
        views=(summary, every),
        choices=tuple(choices),
        cells=cells_of(family),
    )


def _summarize(family: Sequence[EarlyStep], words: str) -> View:
    processes: dict[int, dict[UUID, list[float]]] = {}
    for one in family:
        if not one.is_warmup:
            processes.setdefault(one.cell.warmup_steps, {}).setdefault(one.cell_id, []).append(one.step_ms)
    lines = []
    for count, of_count in processes.items():
        ratios = {cell_id: times[0] / median(times[1:]) for cell_id, times in of_count.items() if len(times) > 2}
        ordered = sorted(ratios, key=lambda cell_id: ratios[cell_id])
        if not ordered:
            continue
        typical = ordered[(len(ordered) - 1) // 2]
        times, (first, *rest) = of_count[typical], of_count[typical]
        middle = median(rest)
        changes = 100 * (fmean(times) / fmean(rest) - 1), 100 * (median(times) / middle - 1)
        reach = (ratios[ordered[0]], ratios[ordered[-1]]) if len(ordered) > 1 else (None, None)
        values = (count, ratios[typical], *reach, first, fmean(times), stdev(times), median(times), *changes, middle)
        cells = (typical, *(cell_id for cell_id in ordered if cell_id != typical))
        lines.append(Row(values=(*values, len(times), len(ordered)), cells=cells))
    among = ": of several the one in the middle, in brackets the least and the most of them"
    among = among if any(row.values[2] for row in lines) else ""
    return View(
        name="warmup",
        title="First measured step after each number of warm-up steps",
        about=words,
        fields=(AFTER, FIRST, LEAST, MOST, FIRST_MS, MEAN, STD, MEDIAN, MEAN_CHANGE, MEDIAN_CHANGE, REST, N, PROCESSES),
        rows=tuple(lines),
        draw=Draw("dots", "first_ratio", down=("warmup_steps",), log="x"),
        note=f"A line is one process{among}. The standard deviation is that of its steps.",
    )


def _say(view: View, size: str) -> str:
    if not view.rows:
        return "No process has three measured steps."
    row = min(view.rows, key=lambda row: view.get(row, "warmup_steps"))
    count = view.get(row, "warmup_steps")
    begins = f"After {format_count(count, 'warm-up step')}" if count else "Without warm-up"
    ratio, mean, middle = (view.get(row, name) for name in ("first_ratio", "mean_change", "median_change"))
    return (
        f"{begins} the first measured step of **{size}** takes **{format_number(ratio)}×** the median of those after "
        f"it (latency); it moves the mean by **{_signed(mean)}**, the median by {_signed(middle)}."
    )


def _signed(percent: float) -> str:
    return f"{'−' if percent < 0 else '+'}{abs(percent):.0f}%"


def _explain(view: View) -> str:
    """Says why the first step is slow, if it is, and how many warm-up steps are enough."""
    worst = best(view)
    if worst is None:
        return ""
    if view.get(worst, "first_ratio") < COLD:
        return f"No first step takes {COLD:g} times as long as those after it: these processes found most things ready."
    mean, std, rest, n = (view.get(worst, name) for name in ("mean_ms", "std_ms", "rest_ms", "n"))
    warm = [row for row in view.rows if view.get(row, "first_ratio") < COLD]
    least = min(warm, key=lambda row: view.get(row, "warmup_steps"), default=None)
    enough = (
        f" After {format_count(view.get(least, 'warmup_steps'), 'warm-up step')} it takes "
        f"{format_number(view.get(least, 'first_ratio'))}×."
        if least
        else ""
    )
    return (
        "The first step of a process pays for what later ones find ready: memory from the allocator, loaded kernels, "
        "the optimizer's state. One cold step of n moves the mean by about std/√n: mean − std/√n is "
        f"{format_number(mean - std / math.sqrt(n))} ms, the median of the rest {format_number(rest)} ms.{enough}"
    )


QUESTION = Question(answer=answer, needs=("early",), course=("B3",))
