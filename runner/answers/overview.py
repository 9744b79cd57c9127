"""What is the fastest way to train each size, and what does each choice buy?

Nothing here is predicted: the fastest way of a size is the measured cell with the shortest time, and a choice buys the
ratio of two cells that differ in it alone and were measured with the same effort.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner.analysis.pair import (
    compute_ratio,
    describe_effort_difference,
    describe_unusual_effort,
    pair_cells,
    rank_effort,
)
from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, choose, verbatim
from runner.answers.shared import about, cells_of, clock_choice, describe_machine, narrow, sizes_of
from runner.answers.tune import MFU, WORDS, name_setting, name_way
from runner.answers.words import CLOCKS, LEVEL, SIZE, STATUS, ended, explain_level, lacks, plain_cells, say_ratio
from runner.formats import format_count, format_number, format_share
from runner.results.cells import StepResult
from runner.results.rows import CellHistory, Rows, RunSteps
from runner.schema import Model, StepCell
from runner.schema.axes import PLAIN
from runner.schema.sizes import title

RATE = Field("tokens_per_s", "Tokens per second", unit="tokens/s", role="value")
WAY = Field("way", "Fastest way", role="note")
TRIED = Field("tried", "Ways measured", role="note")
NEXT = Field("next_way", "Against the next", role="note", doc="The verdict over the second fastest way at that batch.")
MS = Field("ms", "Time of a step", unit="ms", role="value")
STEP = Field("change", "Choice")
BUYS = Field("ratio", "Speedup", unit="×", role="note", doc="Time before over time after, from one pair.")
RATIO = replace(BUYS, role="value")
LOW, HIGH = (replace(RATIO, name=end, label=f"Speedup, {end}", role=end, doc="") for end in ("low", "high"))
CELL = Field("cell", "Cell")
CHANGE = Field("change", "Speedup", unit="×", role="value", doc="Time before over time now, of one cell.")
CLOCK = Field("clock", "Decided by", role="note")
HISTORY = Field("history", "Over its runs", role="note", doc="The cell's times, the oldest run first.")
JOINED = Field("joined", "Several at once", role="note")
AXES = tuple(PLAIN)
_ORDER = tuple(WORDS)


def answer(rows: Rows, asked: Asked) -> Answer:
    every = [one for one in rows.every_step if one.cell.mode == "train" and one.status != "skipped"]
    # What the compiler's cache held changes the time to compile, not that of a step.
    tried = [one for one in every if not describe_unusual_effort(replace(one.cell, compile_cache="shared"))]
    shown, choices = narrow(tried, asked, drawn=("size", *AXES))
    if not any(one.status == "ok" for one in shown):
        return Answer(missing=lacks("no training step was measured", plain_cells(StepCell)))
    chosen = {one.name: one.chosen for one in choices if one.name != "batch"}
    of_any_batch, _ = narrow(every, {**asked, **chosen}, drawn=("size", "batch", *AXES))
    clock = clock_choice(asked, shown, default="throughput")
    by, sizes = CLOCKS[clock.chosen], sizes_of(tried)
    groups, by_model = _group(shown), _group(of_any_batch)
    ladders = {sizes[model]: found for model, group in groups.items() if (found := _climb(group, by))}
    ranks = {name: (_reaches_best(one), len(one.cells), _ms(one.cells[-1], by) or 0.0) for name, one in ladders.items()}
    longest = max(ranks, key=ranks.__getitem__, default="")
    size = choose(asked, "size", "Size", list(ladders), default=longest)
    words = about(shown, *AXES, more=[clock.chosen])
    best = _draw_best(by_model, sizes, by, about(of_any_batch, *AXES, more=[clock.chosen]))
    changes = _draw_regressions(rows.latest, rows.history)
    ladder = _draw_ladder(ladders[size.chosen], size.chosen, by, words) if ladders else None
    views = [view for view in (changes, best, ladder, _draw_alone(groups, sizes, by, words)) if view and view.rows]
    verdicts = [found for found in best.column(NEXT.name) if found]
    alike = verdicts.count("undecided")
    said = [
        _say_changes(changes) if changes else "",
        f"Not told apart from the next way: {alike} of {format_count(len(verdicts), 'size')}." if alike else "",
        f"{verbatim(', '.join(describe_machine(rows.runs)))}.",
    ]
    return Answer(
        sentence=_say(best, ladders.get(size.chosen), size.chosen, clock.chosen),
        more=" ".join(filter(None, said)),
        views=tuple(views),
        choices=(size, *choices, clock),
        cells={
            cell_id: cell
            for cell_id, cell in cells_of(every, *(one.steps for one in rows.latest)).items()
            if any(cell_id in row.cells for view in views for row in view.rows)
        },
    )


def _group(found: Sequence[StepResult]) -> dict[Model, list[StepResult]]:
    groups: dict[Model, list[StepResult]] = {}
    for one in found:
        groups.setdefault(Model.of(one.cell), []).append(one)
    return groups


def _draw_best(groups: dict[Model, list[StepResult]], sizes: dict[Any, str], by: Any, words: str) -> View:
    found = []
    several = len({one.cell.batch for group in groups.values() for one in group}) > 1
    for model, group in groups.items():
        # Of each way the result that was measured most carefully.
        careful = sorted((one for one in group if _ms(one, by)), key=lambda one: (rank_effort(one), one.rounds))
        ways = {(one.cell.batch, *_settings(one)): one for one in careful}
        ranked = sorted(ways.values(), key=lambda one: (_ms(one, by) or math.inf) / one.tokens)
        one, second = (*ranked, group[0], group[0])[:2]
        told = compute_ratio(second, one, clock=by) if len(ranked) > 1 and second.cell.batch == one.cell.batch else None
        ms, way = _ms(one, by), name_way(one.cell)
        rate = one.tokens / ms * 1e3 if ms else None
        way = f"batch {one.cell.batch} · {way}" if several and rate else way
        verdict = told.outcome if told and told.low else None
        values = (rate, rate and one.mfu_at(rate), ms, way, verdict, len(ways), ended(one))
        found.append(Row.of(one, sizes[model], *values))
    return View(
        name="fastest",
        title="Fastest measured way to train",
        about=words,
        fields=(SIZE, RATE, MFU, replace(MS, role="note"), WAY, NEXT, TRIED, STATUS),
        rows=tuple(found),
        draw=Draw("bars", "tokens_per_s", down=("size",), beside=("mfu",), caption="way"),
        note=f"The most tokens per second{' at any batch' * several}. "
        "MFU is by the peak of the precision it computes in.",
    )


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Cells of one size from the plain step to its fastest, of one effort: each differs from the one before in one
    setting, or in several where nothing between them was measured. `fastest` is that of any effort."""

    cells: tuple[StepResult, ...]
    fastest: StepResult


def _climb(group: Sequence[StepResult], by: Any) -> Ladder | None:
    """Returns the ladder with the fastest end, of all efforts in which the plain step was measured."""
    timed = [one for one in group if _ms(one, by)]
    found = []
    for plain in (one for one in timed if _is_plain(one.cell)):
        alike = [one for one in timed if not describe_effort_difference(plain.cell, one.cell)]
        goal = min(alike, key=lambda one: _ms(one, by) or 0)
        if goal is not plain:
            found.append(min(_paths([plain], goal, alike), key=lambda path: _rank(path, by)))
    if not found:
        return None
    path = min(found, key=lambda path: (_ms(path[-1], by), -len(path)))
    return Ladder(cells=tuple(path), fastest=min(timed, key=lambda one: _ms(one, by) or 0))


def _paths(path: list[StepResult], goal: StepResult, among: Sequence[StepResult]) -> Iterator[list[StepResult]]:
    """Yields every way up: each step takes some of the settings of the goal, and gives none back."""
    here = path[-1]
    if here is goal:
        yield path
        return
    left = _changed(here, goal)
    for one in among:
        taken = _changed(here, one)
        is_of_goal = all(getattr(one.cell, axis) == getattr(goal.cell, axis) for axis in taken)
        if taken and is_of_goal and set(taken) <= set(left):
            yield from _paths([*path, one], goal, among)


def _rank(path: Sequence[StepResult], by: Any) -> tuple[Any, ...]:
    """Returns what makes a path worse: settings taken together, steps that are slower, an unusual order."""
    steps = list(itertools.pairwise(path))
    taken = [_changed(*step) for step in steps]
    slower = sum((_ms(a, by) or 0) < (_ms(b, by) or 0) for a, b in steps)
    return sum(len(names) - 1 for names in taken), slower, [_ORDER.index(name) for names in taken for name in names]


def _draw_ladder(ladder: Ladder, size: str, by: Any, words: str) -> View:
    first = ladder.cells[0]
    found = [Row.of(first, "fp32, eager: the plain step", _ms(first, by), None, None, None, False)]
    for before, one in itertools.pairwise(ladder.cells):
        names = _changed(before, one)
        change = "+ " + " + ".join(name_setting(name, getattr(one.cell, name)) for name in names)
        ratio = compute_ratio(before, one, clock=by)
        alone = len(names) == 1
        between = tuple(replace(before.cell, **{name: getattr(one.cell, name)}) for name in names[:-1])
        change += "" if alone else ", not measured one by one"
        buys = (ratio.ratio, ratio.low, ratio.high) if ratio and alone else (None, None, None)
        values = (change, _ms(one, by), *buys, not alone)
        found.append(Row(values=values, cells=(before.cell_id, one.cell_id), wanted=between))
    apart = f" The fastest, {name_way(ladder.fastest.cell)}, was measured with another effort."
    apart = "" if _reaches_best(ladder) else apart
    return View(
        name="ladder",
        title=f"What each choice buys: {size}",
        about=words,
        fields=(STEP, MS, BUYS, *(replace(end, role="note") for end in (LOW, HIGH)), JOINED),
        rows=tuple(found),
        draw=Draw("waterfall", "ms", down=("change",), beside=("ratio",), hollow="joined"),
        note=f"Each bar is a pair that differs in one setting; hollow: several at once, so none has a ratio.{apart}",
    )


def _reaches_best(ladder: Ladder) -> bool:
    return _settings(ladder.cells[-1]) == _settings(ladder.fastest)


def _draw_alone(groups: dict[Model, list[StepResult]], sizes: dict[Any, str], by: Any, words: str) -> View:
    """Draws what each choice buys alone on the plain step, for every size."""
    pairs: dict[tuple[str, str], list[tuple[StepResult, StepResult]]] = {}
    changes: dict[str, dict[str, Any]] = {}
    for model, group in groups.items():
        timed = [one for one in group if _ms(one, by)]
        for plain, one in itertools.product((one for one in timed if _is_plain(one.cell)), timed):
            names = _changed(plain, one)
            if len(names) == 1 and not describe_effort_difference(plain.cell, one.cell):
                value = getattr(one.cell, names[0])
                change = name_setting(names[0], value)
                changes.setdefault(change, {names[0]: value})
                pairs.setdefault((sizes[model], change), []).append((plain, one))
    best = {key: max(found, key=lambda pair: pair[0].rounds + pair[1].rounds) for key, found in pairs.items()}
    ratios = {key: ratio for key, pair in best.items() if (ratio := compute_ratio(*pair, clock=by))}
    plains = {size: plain.cell for (size, _), (plain, _) in best.items()}
    return View(
        name="alone",
        title="Each choice alone, on the plain step",
        about=words,
        fields=(SIZE, STEP, RATIO, LOW, HIGH, LEVEL),
        rows=(
            *(Row.of(best[key], *key, one.ratio, one.low, one.high, one.level) for key, one in ratios.items()),
            *(
                Row(values=(size, change, None, None, None, None), wanted=(plain, replace(plain, **taken)))
                for size, plain in plains.items()
                for change, taken in changes.items()
                if (size, change) not in best
            ),
        ),
        draw=Draw("matrix", "ratio", down=("size",), across="change", center=1.0),
        note="Above 1× it is faster than the plain fp32 step." + explain_level(ratios.values()),
    )


def _draw_regressions(latest: Sequence[RunSteps], history: Sequence[CellHistory]) -> View | None:
    """Draws the cells of the latest run that are slower than in the run before, the most first, with their times over
    all runs; None where no run measured the same before."""
    if len(latest) < 2:
        return None
    now, before = latest
    by_model = sizes_of(now.steps)
    before_that = {(one.machine, one.cell_key): one.times for one in history}
    pairs = pair_cells(before.steps, now.steps, key=lambda one: (one.machine, one.cell.key))
    lines, undecided = [], 0
    for pair in pairs:
        verdict = pair.verdict()
        undecided += verdict.outcome == "undecided"
        if verdict.outcome == "slower" and verdict.ratio:
            cell = pair.other.cell
            name = " · ".join([by_model[Model.of(cell)], *title(cell).split(" · ")[1:]])
            clock = next(words for words, by in CLOCKS.items() if by == verdict.clock)
            times = before_that.get((pair.other.machine, cell.key), {}).get(verdict.clock or "step", ())
            ratio = verdict.ratio
            lines.append(
                Row.of(pair.sides, name, ratio.ratio, ratio.low, ratio.high, clock, draw_sparkline(times), ratio.level)
            )
    lines.sort(key=lambda row: row.values[1])
    found = f", {undecided:,} undecided" if undecided else ""
    return View(
        name="regressions",
        title=f"Slower than in the run before: {now.run.name} after {before.run.name}",
        about=f"{now.run.machine.split(' · ')[0]} · whole steps",
        fields=(CELL, CHANGE, LOW, HIGH, CLOCK, HISTORY, LEVEL),
        rows=tuple(lines),
        draw=Draw("dots", "change", down=("cell",), log="x", center=1.0, beside=("clock", "history")),
        note=f"{format_count(len(pairs), 'equal cell')}{found}. Time before over time now, by the clock that decides.",
    )


def draw_sparkline(times: Sequence[float]) -> str:
    """Returns times as a line of bars, from the lowest to the highest: `▁▁▂█`."""
    bars = "▁▂▃▄▅▆▇█"
    low, high = min(times, default=0), max(times, default=0)
    return "".join(bars[round((ms - low) / (high - low) * (len(bars) - 1)) if high > low else 0] for ms in times)


def _say_changes(view: View) -> str:
    after, _, before = verbatim(view.title.partition(": ")[2]).partition(" after ")
    if not view.rows:
        return f"Since {before} nothing of {after} is known to be slower: {view.note.partition('.')[0]}."
    worst = view.rows[0]
    count = format_count(len(view.rows), "cell")
    said, name = say_ratio(view.get(worst, "change"), "slower"), verbatim(worst.values[0])
    return f"{count} of {after} got slower since {before}: most {name}, {said} by {worst.values[4]}."


def _say(best: View, ladder: Ladder | None, size: str, clock: str) -> str:
    """Returns the fastest way of the size whose ladder is drawn; without one, of the last size that has a time."""
    timed = [row for row in best.rows if best.get(row, "tokens_per_s")]
    row = next((row for row in timed if best.get(row, "size") == size), timed[-1])
    size = best.get(row, "size")
    rate, mfu, way = (best.get(row, name) for name in ("tokens_per_s", "mfu", "way"))
    text = f"The fastest measured way to train **{size}** is **{way}**: **{format_number(rate)} tokens/s**"
    text += f", {format_share(mfu)} MFU" if mfu else ""
    if ladder and ladder.cells[-1].cell_id in row.cells:
        gain = compute_ratio(ladder.cells[0], ladder.cells[-1], clock=CLOCKS.get(clock, "step"))
        if gain and gain.ratio > 1:
            is_open = gain.outcome == "undecided"
            ends = f"{format_number(gain.low)}–{format_number(gain.high)}" if gain.low and gain.high else ""
            reach = f" ({100 * gain.level:g}% interval {ends})" if ends else ""
            text += f", **{format_number(gain.ratio)}×**{reach * (not is_open)} the plain fp32 step"
            text += ", undecided" if is_open else ""
    return f"{text} ({clock})."


def _settings(one: StepResult) -> tuple[Any, ...]:
    return tuple(getattr(one.cell, axis) for axis in AXES)


def _changed(a: StepResult, b: StepResult) -> list[str]:
    return [axis for axis in _ORDER if getattr(a.cell, axis) != getattr(b.cell, axis)]


def _is_plain(cell: StepCell) -> bool:
    return all(getattr(cell, axis) == value for axis, value in PLAIN.items())


def _ms(one: StepResult, by: Any) -> float | None:
    time = one.time("step", by) if one.status == "ok" else None
    return time.ms if time else None


QUESTION = Question(answer=answer, needs=("every_step", "latest", "history", "runs"), of_two_columns=True)
