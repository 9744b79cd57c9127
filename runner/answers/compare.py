"""What is different between two runs, labels, machines or settings?

Equal cells are compared. A ratio is the time of A over that of B: above 1, B is faster. The verdict of a cell names the
clock that decides it (`runner.analysis.pair`). Peaks of memory are compared as bytes, which vary with nothing.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations
from typing import Any

from runner.analysis.pair import CLOCKS, Pair, Verdict, is_host_noise, pair_cells
from runner.analysis.statistics import MIN_DIFFERENCE
from runner.answers.answer import Answer, Asked, Draw, Field, Guide, Question, Row, View, choose, verbatim
from runner.answers.shared import about, cells_of, tell_apart
from runner.answers.speedup import HIGH, LOW, ROUNDS
from runner.answers.words import LEVEL, PHASES, ended, explain_times, lacks, name_levels, say_ratio
from runner.formats import format_count, format_number
from runner.results.cells import AttentionResult, Peak, StepResult
from runner.results.rows import OF_CELL, Rows, RunSteps
from runner.results.times import Clock
from runner.schema import Phase, table_of

CELL = Field("cell", "Cell")
TIMES = tuple(Field(f"{side.lower()}_ms", side, unit="ms", role="note") for side in "AB")
PEAKS = tuple(Field(f"{side.lower()}_bytes", side, unit="bytes", role="note") for side in "AB")
RATIO = Field("ratio", "A / B", unit="×", role="value", doc="Time of A over that of B: above 1, B is faster.")
VERDICT = Field("outcome", "Verdict", role="status", doc="By the clock that can decide.")
CLOCK = Field("clock", "Clock", role="note")
WHY = Field("why", "What decides nothing", role="note", is_long=True, doc="Times that the host sets, failures.")
#: The verdict by the clock that can decide, beside the three clocks.
AUTO = "auto"
#: How rows are put on a side: by a property of their run, or by a field of the cell.
_OF_RUN: Mapping[str, Callable[[RunSteps], str]] = {
    "label": lambda one: one.run.given or one.run.label or "no label",
    "run": lambda one: one.run.name,
    "machine": lambda one: one.run.machine,
    "commit": lambda one: (one.run.git_commit or "unknown")[:12],
}


def answer(rows: Rows, asked: Asked) -> Answer:
    sides = list_sides(rows.by_run)
    # Labels are compared where two of them measured equal cells, else what the cells differ in.
    default = "label" if any(len(two) > 1 for two in _count_common(rows, "label")) else OF_CELL[0]
    several = [name for name, names in sides.items() if len(names) > 1]
    by = choose(asked, "by", "Compare", several, default=default, prefix="by ")
    if not by.chosen:
        return Answer(missing=lacks("all rows are of one run, precision and backend"))
    names = sides[by.chosen]
    pair = partial(_pair, rows, by.chosen)
    counts = Counter[frozenset[str]]() if by.chosen in OF_CELL else _count_common(rows, by.chosen)
    # The page opens on the two that have most cells in common.
    alike = max(
        combinations(names, 2),
        key=lambda two: len(pair(two[0], two[1], "steps")) if by.chosen in OF_CELL else counts[frozenset(two)],
    )
    base = choose(asked, "a", "A", names, default=alike[1], prefix="A: ")
    others = [name for name in names if name != base.chosen]
    other = choose(asked, "b", "B", others, default=alike[alike[0] == base.chosen], prefix="B: ")
    steps, attention, peaks = (pair(base.chosen, other.chosen, kind) for kind in ("steps", "attention", "peaks"))
    chosen, pairs = (by, base, other), [*steps, *attention, *peaks]
    if not pairs:
        return Answer(choices=chosen, missing=lacks(f"{base.chosen} and {other.chosen} have no cell in common"))
    clocks = [words for words, name in CLOCKS.items() if any(pair.ratio(clock=name) for pair in steps)]
    clock = choose(asked, "clock", "Clock", [AUTO, *clocks])
    phases = [words for words, name in PHASES.items() if any(pair.ratio(phase=name) for pair in steps)]
    phase = choose(asked, "phase", "Phase", phases or [*PHASES][:1])
    over = f"{base.chosen} (A) over {other.chosen} (B)"
    views = [
        _draw_times("compare-cells", f"Steps: {over}", steps, PHASES[phase.chosen], clock.chosen, phase.chosen),
        _draw_times("compare-attention", f"Attention: {over}", attention, "forward_backward", clock.chosen, ""),
        _draw_peaks(f"Peak memory: {over}", peaks),
    ]
    return Answer(
        sentence=_say(views, base.chosen, other.chosen),
        more=_describe_environments(rows.by_run, by.chosen, base.chosen, other.chosen, pairs=pairs),
        # What could be compared stands first.
        views=tuple(sorted((view for view in views if view.rows), key=lambda view: not any(view.column("ratio")))),
        choices=(*chosen, clock, phase),
        cells=cells_of([side for pair in pairs for side in pair.sides]),
    )


def list_sides(runs: Sequence[RunSteps]) -> dict[str, list[str]]:
    """Returns the sides that can be compared, by what they differ in; those that measured last come first."""
    sides = {name: list(dict.fromkeys(map(of, runs))) for name, of in _OF_RUN.items()}
    return sides | {name: [*dict.fromkeys(chain.from_iterable(one.values[name] for one in runs))] for name in OF_CELL}


def _count_common(rows: Rows, by: str) -> Counter[frozenset[str]]:
    """Returns how many cells each two sides have in common; of one side, its runs."""
    side_of, counts = {one.run.run_id: _OF_RUN[by](one) for one in rows.by_run}, Counter[frozenset[str]]()
    for one in rows.by_run:
        for other in one.common.keys() & side_of:
            counts[frozenset((side_of[one.run.run_id], side_of[other]))] += one.common[other]
    return counts


def list_side(rows: Rows, by: str, name: str, kind: str) -> list[Any]:
    """Returns the cells of a side, of each the one that was measured last. `kind` is as a run has it: "steps"."""
    if by in OF_CELL or by == "machine":
        every: Sequence[Any] = rows.every_step if kind == "steps" else getattr(rows, kind)
        cells = [one for one in every if getattr(one if by == "machine" else one.cell, by, None) == name]
    else:
        runs = [one for one in rows.by_run if _OF_RUN[by](one) == name]
        own = runs[0].pool(tuple(one.run.run_id for one in runs))[kind] if len(runs) > 1 else getattr(runs[0], kind)
        cells = list(own)
    kept: dict[tuple[str, str], Any] = {}
    for cell in cells:
        if cell.status != "skipped" and not getattr(cell.cell, "timeline", False):
            kept.setdefault((cell.machine if by != "machine" else "", cell.cell.key), cell)
    return list(kept.values())


def _pair(rows: Rows, by: str, base: str, other: str, kind: str) -> list[Pair[Any]]:
    """Returns the cells of both sides that agree in all settings but the compared one. An own model is known by its
    name, so that its version before a change is paired with the one after it."""

    def key(one: StepResult | AttentionResult | Peak) -> tuple[object, ...]:
        own = getattr(one.cell, "model_key", None) is not None
        left_out = {by, *(("d_model", "d_ff", "layers", "heads", "vocabulary", "model_key") if own else ())}
        fields = (getattr(one.cell, name) for name in table_of(one.cell).question if name not in left_out)
        return (one.machine if by in ("commit", *OF_CELL) else "", *fields)

    return pair_cells(list_side(rows, by, base, kind), list_side(rows, by, other, kind), key=key)


def _draw_times(name: str, title: str, pairs: Sequence[Pair[Any]], phase: Phase, clock: str, words: str) -> View:
    cells = tell_apart([pair.base.cell for pair in pairs])
    decided = [(pair, cell, _decide(pair, phase, clock)) for pair, cell in zip(pairs, cells, strict=True)]
    rows = [_make_row(pair, cell, *found) for pair, cell, found in decided]
    by = clock if clock != AUTO else " or ".join(words for words in CLOCKS if words in {row.values[7] for row in rows})
    ratios = [found.ratio for _, _, (_, found) in decided]
    levels = f" The {name_levels(ratios)} interval decides." if name_levels(ratios) else ""
    guide = Guide(words="← B slower · equal · B faster →", at=1.0)
    return View(
        name=name,
        title=title,
        about=about([side for pair in pairs for side in pair.sides], more=[one for one in (words, by) if one]),
        fields=(CELL, *TIMES, RATIO, LOW, HIGH, VERDICT, CLOCK, LEVEL, ROUNDS, WHY),
        rows=_order(rows),
        draw=Draw("dots", "ratio", down=("cell",), log="x", center=1.0, beside=("outcome", "clock"), guides=(guide,)),
        note=f"Farthest from 1 first.{levels}{explain_times(ratios)}",
        columns=("a_ms", "b_ms", "ratio", "outcome", "clock", "why"),
    )


def _order(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Returns the rows, those farthest from 1 first, with names that differ: cells of several machines may have one."""
    seen, named = Counter[str](), []
    for row in sorted(rows, key=lambda row: -abs(math.log(row.values[3])) if row.values[3] else 1.0):
        seen[row.values[0]] += 1
        again = f" ({seen[row.values[0]]})" if seen[row.values[0]] > 1 else ""
        named.append(Row(values=(f"{row.values[0]}{again}", *row.values[1:]), cells=row.cells))
    return tuple(named)


def _decide(pair: Pair[Any], phase: Phase, clock: str) -> tuple[Phase, Verdict]:
    """Returns the verdict of a pair; attention that was measured without its backward pass is compared forward."""
    if phase == "forward_backward" and phase not in pair.base.times and "forward" in pair.base.times:
        phase = "forward"
    return phase, pair.verdict(phase=phase, clock=CLOCKS.get(clock))


def _make_row(pair: Pair[Any], cell: str, phase: Phase, verdict: Verdict) -> Row:
    by, ratio = verdict.clock, verdict.ratio
    times = [by and side.time(phase, by) for side in pair.sides]
    ms = (ratio and ratio.undisturbed) or [time and time.ms for time in times]
    why = ", ".join(ended(side) for side in pair.sides if side.status != "ok") or verdict.why
    return Row.of(
        pair.sides,
        cell,
        *ms,
        *((ratio.ratio, ratio.low, ratio.high) if ratio else (None, None, None)),
        verdict.outcome if ratio else verdict.why,
        next((words for words, name in CLOCKS.items() if name == by), None),
        ratio and ratio.level,
        min(getattr(pair.base, "rounds", 1), getattr(pair.other, "rounds", 1)),
        _say_clocks(pair, phase, verdict) if ratio else why,
    )


def _say_clocks(pair: Pair[Any], phase: Phase, verdict: Verdict) -> str | None:
    """Says which times decide nothing, because the host sets them in two sweeps: `GPU time 1.05× slower; latency 46.3 →
    37.5 ms, set by the host, undecided`. Says what GPU time is where it does not decide although both sides have it."""
    names = {name: words for words, name in CLOCKS.items()}
    sides, device = pair.sides, pair.ratio(phase=phase, clock="device")
    parts = [f"GPU time {say_ratio(device.ratio, device.outcome)}"] if device else []
    waited: tuple[Clock, ...] = ("step", "loop")
    noise = [name for name in waited if pair.ratio(phase=phase, clock=name)]
    noise = [name for name in noise if is_host_noise(*sides, phase=phase, clock=name)]
    for name in [name for name in noise if name == verdict.clock] or noise[:1]:
        a, b = (format_number(side.times[phase].by(name).ms) for side in sides)
        parts.append(f"{names[name]} {a} → {b} ms, set by the host, undecided")
    if not noise and verdict.clock not in (None, "device") and device and verdict.ratio:
        parts.append(f"{names[verdict.clock]} {say_ratio(verdict.ratio.ratio, verdict.outcome)}")
    return "; ".join(parts) if len(parts) > 1 or noise else None


def _draw_peaks(title: str, pairs: Sequence[Pair[Peak]]) -> View:
    rows = []
    for pair, cell in zip(pairs, tell_apart([pair.base.cell for pair in pairs]), strict=True):
        sizes = [side.peak_allocated_bytes for side in pair.sides]
        ratio = sizes[0] / sizes[1] if sizes[0] and sizes[1] and not pair.objection else None
        outcome = "no peak" if pair.objection == "" else pair.objection
        if ratio:
            is_same = max(ratio, 1 / ratio) <= 1 + MIN_DIFFERENCE
            outcome = "same" if is_same else "smaller" if ratio > 1 else "larger"
        rows.append(Row.of(pair.sides, cell, *sizes, ratio, outcome, None if ratio else outcome))
    return View(
        name="compare-memory",
        title=title,
        about=about([side for pair in pairs for side in pair.sides]),
        fields=(CELL, *PEAKS, replace(RATIO, doc="Above 1, B needs less."), VERDICT, WHY),
        rows=_order(rows),
        draw=Draw("dots", "ratio", down=("cell",), log="x", center=1.0, beside=("outcome",)),
        columns=("a_bytes", "b_bytes", "ratio", "outcome", "why"),
    )


def _say(views: Sequence[View], base: str, other: str) -> str:
    base, other = verbatim(base), verbatim(other)
    times = [(view, row) for view in views[:2] for row in view.rows if view.get(row, "ratio") is not None]
    counts = Counter(str(view.get(row, "outcome")) for view, row in times)
    peaks = Counter(str(views[2].get(row, "outcome")) for row in views[2].rows)
    if not times and not peaks:
        return f"No cell of **{base}** and **{other}** has a result on both sides."
    parts = [f"{counts[word]} {word}" for word in ("faster", "slower", "same", "undecided") if counts[word]]
    if counts["undecided"]:
        parts[-1] += _say_reach(times)
    text = f"Of {format_count(len(times), 'equal cell')} **{other}** is: **{', '.join(parts)}**" if times else ""
    moved = [(view, row) for view, row in times if view.get(row, "outcome") in ("faster", "slower")]
    if moved:
        view, row = moved[0]
        name = verbatim(" · ".join(str(row.values[0]).split(" · ")[:3]))
        said = say_ratio(view.get(row, "ratio"), view.get(row, "outcome"))
        text += f"; most: {name}, {said} by {view.get(row, 'clock')}"
    changed = [f"{peaks[word]} {word}" for word in ("larger", "smaller") if peaks[word]]
    if changed:
        text += f"{'; peaks' if text else 'Peaks of memory'}: {', '.join(changed)}"
    unlike = sum(view.get(row, "ratio") is None for view in views[:2] for row in view.rows)
    text += f"; {unlike} more cannot be compared" if text and unlike else ""
    return f"{text or 'Peaks of memory are the same'}."


def _say_reach(times: Sequence[tuple[View, Row]]) -> str:
    """Says how large a difference the undecided cells leave possible, so that they say something, too."""
    open_ones = [view.interval(row) for view, row in times if view.get(row, "outcome") == "undecided"]
    ends = [max(high, 1 / low) for low, high in open_ones if low and high]
    if not ends:
        return ""
    among = "" if len(ends) == len(open_ones) else f"{len(ends)} of them "
    return f" ({among}{float(f'{100 * (max(ends) - 1):.2g}'):g}% apart at most)"


#: What the sides may differ in, its column, and how many letters of it are shown.
_ENVIRONMENT = (
    ("machine", "machine", 24),
    ("GPU", "device_uuid", 8),
    ("torch", "torch", 24),
    ("commit", "git_commit", 12),
)


def _describe_environments(
    runs: Sequence[RunSteps], by: str, base: str, other: str, *, pairs: Sequence[Pair[Any]]
) -> str:
    """Says in which versions the two sides were measured, where these differ, sources of own models included."""
    if by not in _OF_RUN:
        return ""
    sides = [[one.run for one in runs if _OF_RUN[by](one) == name] for name in (base, other)]
    parts = []
    for label, attribute, letters in _ENVIRONMENT:
        values = [sorted({str(getattr(run, attribute) or "unknown")[:letters] for run in side}) for side in sides]
        if values[0] != values[1]:
            parts.append(f"{label} {', '.join(values[0])} → {', '.join(values[1])}")
    cells = [(pair.base.cell, pair.other.cell) for pair in pairs if hasattr(pair.base.cell, "model_key")]
    parts += sorted(
        {
            f"source of {ours.model} ({ours.model_key[:4]} → {theirs.model_key[:4]})"
            for ours, theirs in cells
            if ours.model_key and theirs.model_key and ours.model_key != theirs.model_key
        }
    )
    dirty = [any(run.git_dirty for run in side) for side in sides]
    parts += ["both with uncommitted changes"] if all(dirty) else []
    return f"They differ in {'; '.join(parts)}." if parts else ""


#: The rows that it needs, and by what name a run has those of each kind.
NEEDS = {"by_run": "", "every_step": "steps", "attention": "attention", "peaks": "peaks"}
QUESTION = Question(answer=answer, needs=tuple(NEEDS), of_file=True)
