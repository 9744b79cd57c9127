"""B3: what happens with 0, 1, 2 and 5 warm-up steps, and why."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median, stdev

from runner.answers.keys import make_keys
from runner.formats import format_count, format_ms, format_number
from runner.report.document import Answer, Line, Question, ReportTable, behind
from runner.report.rows import Rows
from runner.report.text import NONE, format_optional, format_spread
from runner.report.wanted import wanted_cells
from runner.results import EarlyStep
from runner.schema import StepCell
from runner.schema.titles import title

#: The counts of warm-up steps of the question.
COUNTS = (0, 1, 2, 5)


def _answer_warmup(rows: Rows) -> Answer:
    families = group_by_cell(rows.early)
    if not families:
        return Answer(lacks="no cell was measured after several of 0, 1, 2 and 5 warm-up steps")
    tables = [table for name, family in families.items() for table in _make_tables(name, family)]
    return Answer(
        sentence=" ".join(_describe_effect(name, family) for name, family in families.items()),
        tables=tuple(tables),
        behind=behind(rows.early),
    )


def group_by_cell(steps: Sequence[EarlyStep]) -> dict[str, list[EarlyStep]]:
    """Returns the steps by the cell in words, without its warm-up steps."""
    groups: dict[str, list[EarlyStep]] = {}
    for step in steps:
        groups.setdefault(title(replace(step.cell, warmup_steps=5)), []).append(step)
    return groups


def _group_measured(family: Sequence[EarlyStep]) -> dict[int, list[float]]:
    """Returns the times of the measured steps in order, by warm-up count (ms)."""
    groups: dict[int, list[float]] = {}
    for step in sorted(family, key=lambda step: (step.cell.warmup_steps, step.step)):
        if not step.is_warmup:
            groups.setdefault(step.cell.warmup_steps, []).append(step.step_ms)
    return groups


def _describe_effect(name: str, family: Sequence[EarlyStep]) -> str:
    """Says what the first measured step costs in the process with the least warm-up, and what it does to mean and
    median there. Only steps of one process are compared: processes differ by themselves."""
    by_count = _group_measured(family)
    least, most = by_count[min(by_count)], by_count[max(by_count)]
    first, later = least[0], least[1:]
    begins = f"After {format_count(min(by_count), 'warm-up step')}" if min(by_count) else "Without warm-up"
    if len(later) < 2:
        steps = format_count(len(least), "step")
        return f"{begins} only {steps} of {name} {'was' if len(least) == 1 else 'were'} measured."
    steady = median(later)
    start = f"{begins} the first measured step of {name} takes {format_ms(first)}, "
    start += (
        f"{format_number(first / steady)} times the median of the steps after it in the same process. It moves the "
    )
    mean, middle = _format_change(fmean(least), fmean(later)), _format_change(median(least), steady)
    start += f"mean by {mean} and the median by {middle}."
    after = f" After {format_count(max(by_count), 'warm-up step')} the first takes"
    return (
        f"{start}{_explain(least)}{after} {format_number(most[0] / median(most[1:]))} times the median of the others."
    )


def _explain(times: Sequence[float]) -> str:
    """Says why the first step is slow, if it is: slower than every other and by half of the median."""
    later = times[1:]
    if times[0] <= max(later) or times[0] < 1.5 * median(later):
        return " It is not far from the steps after it: this process found most things ready."
    corrected = fmean(times) - stdev(times) / math.sqrt(len(times))
    return (
        " The first step of a process pays for what later ones find ready: memory from the allocator, loaded kernels "
        "and "
        f"libraries, the optimizer's state. One cold step of n moves the mean by about std/√n: mean − std/√n is "
        f"{format_ms(corrected)}, the mean of the others {format_ms(fmean(later))}."
    )


def _format_change(value: float, usual: float) -> str:
    return f"{round(value / usual - 1, 2) + 0:+.0%}".replace("-", "−")  # -0.0 + 0 is 0.0


def _make_tables(name: str, family: Sequence[EarlyStep]) -> tuple[ReportTable, ReportTable]:
    by_count = _group_measured(family)
    shared = make_keys([replace(family[0].cell, warmup_steps=5)])
    size = shared.values(replace(family[0].cell, warmup_steps=5))
    summary = ReportTable(
        caption=f"Whole step after each number of warm-up steps: {', '.join(size)}, {shared.shared}",
        headings=("Warm-up (steps)", "n", "Mean ± std (ms)", "Median (ms)", "First measured (ms)", "Slowest (ms)"),
        lines=tuple(Line(values=(str(count), *_summarize(times))) for count, times in by_count.items()),
        note="One process a line; mean, sample standard deviation and median over its n measured steps. Processes "
        "differ by "
        "themselves (B2), so that lines differ by more than warm-up alone.",
    )
    taken = {(step.cell.warmup_steps, step.step): step for step in family}
    numbers = range(1 + max(step.step for step in family))
    lines = []
    for number in numbers:
        found = [taken.get((count, number)) for count in by_count]
        texts = [_write_step(step) for step in found]
        lines.append(Line(values=(str(number), *texts)))
    early = ReportTable(
        caption=f"Every step since the start of the process (ms): {name}",
        headings=("Step", *(f"After {count} (ms)" for count in by_count)),
        lines=tuple(lines),
        note="Warm-up steps in parentheses.",
    )
    return summary, early


def _summarize(times: Sequence[float]) -> tuple[str, ...]:
    """Returns n, mean ± sample standard deviation, median, first and slowest."""
    spread = format_spread(fmean(times), stdev(times) if len(times) > 1 else None)
    return str(len(times)), spread, *map(format_number, (median(times), times[0], max(times)))


def _write_step(step: EarlyStep | None) -> str:
    if step is None:
        return NONE
    return f"({format_number(step.step_ms)})" if step.is_warmup else format_optional(step.step_ms)


def _want_warmup(rows: Rows) -> list[StepCell]:
    """Returns the ablation of the smallest plain step: exactly ten steps after each count."""
    grid = [cell for cell in wanted_cells(rows, "benchmark", StepCell) if cell.warmup_steps == 0]
    cells = grid or [cell for cell in wanted_cells(rows, "benchmark", StepCell) if cell.mode == "train"][:1]
    base = [replace(cell, min_steps=10, max_steps=10) for cell in cells[:1]]
    return [replace(cell, warmup_steps=count) for cell in base for count in COUNTS]


QUESTIONS = (
    Question[Rows](
        id="B3",
        text="What happens with 0, 1, 2 and 5 warm-up steps, and why?",
        page="training-step",
        answer=_answer_warmup,
        wanted=_want_warmup,
    ),
)
