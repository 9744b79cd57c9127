"""C2: the whole model compiled against eager, forward and full step, with the compile time apart."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from runner.analysis.compare.break_even import PaidAfter, break_even
from runner.analysis.compare.pairs import Pair
from runner.analysis.compare.speedups import Speedups, compare
from runner.answers.keys import make_keys
from runner.formats import format_number
from runner.report.document import Answer, Line, Question, ReportTable, behind
from runner.report.footnotes import make_footnotes
from runner.report.rows import Rows
from runner.report.speedups import describe_speedups, sides_of, speedup_table
from runner.report.text import NONE, format_optional
from runner.report.wanted import wanted_cells
from runner.results import CompileCost, StepResult
from runner.schema import Mode, StepCell
from runner.store.queries.compile import question

_MODES = {"inference": "inference", "forward": "a forward pass", "train": "a full step"}


def compare_backends(rows: Rows) -> dict[str, Speedups[StepResult]]:
    """Returns the pairs of eager with every way of compiling that have a measured side."""
    present = dict.fromkeys(cell.cell.backend for cell in rows.every_step if cell.cell.backend.startswith("compiled"))
    found = {name: compare(rows.every_step, axis="backend", baseline="eager", variant=name) for name in sorted(present)}
    return {name: each for name, each in found.items() if each.speedups or any(item.failed for item in each.left_out)}


def _answer_compiled(rows: Rows) -> Answer:
    found = compare_backends(rows)
    pairs = [(name, pair) for name, each in found.items() for pair in each.speedups if pair.phase == "step"]
    if not pairs:
        return Answer(lacks="no step was measured both eager and compiled, and alike")
    sides = sides_of(found)
    notes = make_footnotes(rows, sides, "steps")
    modes = {pair.base.cell.mode for _, pair in pairs}
    forward = modes & {"inference", "forward"}
    missing = [*([] if forward else ["the forward pass"]), *([] if "train" in modes else ["the full step"])]
    words = [describe_speedups(each, baseline="eager", variant=name) for name, each in found.items()]
    if {name for name, _ in pairs} == {"compiled-block"}:
        words.append("Here each block was compiled on its own; the model as a whole was not.")
    return Answer(
        sentence=" ".join(words),
        tables=(
            speedup_table(found, baseline="eager", notes=notes, without=("backend",)),
            _make_costs(pairs, rows.compile_costs),
        ),
        footnotes=notes.texts,
        behind=behind(sides),
        lacks=f"no pair of {' and of '.join(missing)}" if missing else "",
    )


def _make_costs(pairs: Sequence[tuple[str, Pair[StepResult]]], known: Sequence[CompileCost]) -> ReportTable:
    """Returns what compiling costs, and after how many steps it pays off."""
    costs: Mapping[tuple[object, ...], CompileCost] = {question(one.machine, one.torch, one.cell): one for one in known}
    keys = make_keys([pair.other.cell for _, pair in pairs])
    lines = []
    for _, pair in pairs:
        cost = costs.get(question(pair.other.machine, pair.other.torch, pair.other.cell))
        seconds = (cost.cold_seconds, cost.warm_seconds, cost.shared_seconds) if cost else (None,) * 3
        first = next((one for one in seconds if one is not None), None)
        graphs = [
            NONE if number is None else str(number)
            for number in ((cost.graph_breaks, cost.recompiles) if cost else (None, None))
        ]
        paid = _write_paid(break_even(pair, compile_seconds=first))
        fallback = "unknown" if cost is None or cost.fallback is None else "yes" if cost.fallback else "no"
        values = (*keys.values(pair.other.cell), *map(format_optional, seconds), paid, *graphs, fallback)
        lines.append(Line(values=values))
    return ReportTable(
        caption=f"What compiling costs: {keys.shared}",
        headings=(
            *keys.headings,
            "Cold (s)",
            "Warm (s)",
            "As found (s)",
            "Paid after (steps)",
            "Graph breaks",
            "Recompiles",
            "Fell back to eager",
        ),
        lines=tuple(lines),
        note="Compile time: the first step less the median one, never part of a step's time. Cold: with an empty "
        "cache. "
        "Warm: again, with the cache that this left. As found: with what earlier cells had left. Paid after: steps "
        "until the "
        "time saved is that spent compiling (the first time known of the three), with its 95% interval.",
    )


def _write_paid(paid: PaidAfter | None) -> str:
    if paid is None:
        return NONE
    if paid.is_never:
        return "never"
    if math.isinf(paid.steps):
        return "undecided"
    ends = [_write_steps(end) if end is not None else "unknown" for end in (paid.low, paid.high)]
    return f"{_write_steps(paid.steps)} [{ends[0]}, {ends[1]}]"


def _write_steps(steps: float) -> str:
    return "never" if math.isinf(steps) else format_number(steps)


def _want_compiled(rows: Rows) -> list[StepCell]:
    """Returns the eager and compiled steps, forward and full, of the cells that the experiment compiles."""
    cells = wanted_cells(rows, "compile", StepCell)
    compiled = [cell for cell in cells if cell.backend.startswith("compiled") and cell.mode == "train"]
    first = [cell for cell in compiled if cell.backend == compiled[0].backend]
    modes: tuple[Mode, ...] = ("inference", "train")
    both = [replace(cell, mode=mode) for cell in first for mode in modes]
    return [side for cell in both for side in (replace(cell, backend="eager").normalized(), cell)]


QUESTIONS = (
    Question[Rows](
        id="C2",
        text="How much faster is the whole model compiled than eager: forward, and forward, backward and optimizer?",
        page="torch-compile",
        answer=_answer_compiled,
        wanted=_want_compiled,
    ),
)
