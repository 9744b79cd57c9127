"""Sentences that answer questions from the rows that a page draws, and the ratios in them.

st.markdown(step_answer(frame, cells))
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import geometric_mean, linear_regression
from typing import Literal, TypeVar

from pages.figures.colors import color_of
from pages.figures.frame import WORDS, format_interval, format_named_interval
from pages.figures.small import SmallBar
from pages.ui.frame import Frame
from pages.ui.marks import describe_host, place_of
from runner.analysis.compare.host_bound import describe_shares
from runner.analysis.compare.pairs import Pair, describe_unusual_pairs
from runner.analysis.compare.speedups import Speedups, host_share
from runner.analysis.statistics import Ratio
from runner.formats import at_tokens, format_ms, format_number, format_share
from runner.results import Clock, Estimate, StepResult, TimedResult
from runner.schema import Phase

T = TypeVar("T", bound=TimedResult)
Compared = Literal["precision", "backend"]
#: What a step does, by each clock.
_TAKES: Mapping[Clock, str] = {
    "step": "takes **{}**",
    "loop": "takes **{}** in a loop",
    "device": "takes **{}** of device time",
}


def ways(cells: Sequence[StepResult]) -> dict[str, list[StepResult]]:
    """Returns the cells by precision and backend, the ones that the page opens with first: the plain ones, if any."""
    by_way: dict[str, list[StepResult]] = {"fp32 · eager": []}
    for cell in cells:
        by_way.setdefault(f"{cell.cell.precision} · {cell.cell.backend}", []).append(cell)
    return {way: of_way for way, of_way in by_way.items() if of_way}


def step_answer(frame: Frame, cells: Sequence[StepResult], *, clock: Clock = "step") -> str:
    """Says which phase takes the time of the largest measured cell, by one clock, and where the host sets it."""
    largest = find_longest(cells, clock=clock)
    step = _by(largest, "step", clock) if largest else None
    failed = sum(cell.status != "ok" for cell in cells)
    lost = f" No result from {failed} of {len(cells)} cells." if failed else ""
    if not cells:
        return f"No step was measured {frame.among}."
    if largest is None or step is None:
        what = "result" if failed == len(cells) else "time of a whole step"
        return f"None of these cells has a {what}.{lost}"
    found = {phase: _by(largest, phase, clock) for phase in largest.times if phase not in ("step", "forward_backward")}
    parts = {phase: time.ms for phase, time in found.items() if time}
    whole = sum(parts.values())
    shares = [
        f"{WORDS[phase]} {format_share(ms / whole)}" for phase, ms in sorted(parts.items(), key=lambda item: -item[1])
    ]
    cell = largest.cell
    name = f"{frame.size_of(cell)}{at_tokens(cell.context)}, {cell.precision}, {cell.backend}"
    goes = f": {', '.join(shares)}" if len(shares) > 1 else ""
    host = describe_host(largest) if clock != "device" else ""
    return (
        f"The longest step here, **{name}**, {_TAKES[clock].format(format_ms(step.ms))} "
        f"({format_named_interval(step.low_ms, step.high_ms, unit='ms')}){goes}."
        f"{f' That is {host}.' if ':' in host else ''}{lost}"
    )


def find_longest(cells: Sequence[StepResult], *, clock: Clock = "step") -> StepResult | None:
    """Returns the cell whose step takes longest by one clock; None where none has such a time."""
    steps = [(step.ms, cell) for cell in cells if cell.status == "ok" and (step := _by(cell, "step", clock))]
    return max(steps, key=lambda item: item[0])[1] if steps else None


def ratio_bars(
    frame: Frame, pairs: Sequence[Pair[StepResult]], *, axis: Literal["precision", "backend"]
) -> list[SmallBar]:
    """Returns the speedup of the whole step of each pair, the largest model first, as bars of a small picture."""
    whole = sorted((pair for pair in pairs if pair.phase == "step"), key=lambda pair: -(pair.base.parameters or 0))
    return [
        SmallBar(
            name=place_of(frame, pair.named.cell, beside=axis).replace("<br>", " · "),
            value=pair.ratio,
            words=f"{format_number(pair.ratio)}×",
            color=color_of(getattr(pair.other.cell, axis)),
            low=pair.low,
            high=pair.high,
        )
        for pair in whole
    ]


def _by(cell: StepResult, phase: Phase, clock: Clock) -> Estimate | None:
    time = cell.times.get(phase)
    return time.by(clock) if time else None


def speedup_answer(compared: Speedups[StepResult], *, baseline: str, variant: str, phase: Phase = "step") -> str:
    """Says over all pairs: the typical ratio, its spread, how many are certain."""
    speedups = [speedup for speedup in compared.speedups if speedup.phase == phase]
    if not speedups:
        return "" if compared.speedups else explain_no_pair(compared, baseline=baseline, variant=variant)
    words = describe_speedup(speedups, start=f"**{variant}** makes the {WORDS[phase]}", end=f"than {baseline}")
    return f"{words}{remarks(speedups)}"


def describe_speedup(ratios: Sequence[Ratio], *, start: str, end: str) -> str:
    """Says `START 2.10× faster END` over all pairs, with their spread and how many are certain; if none is, that it is
    undecided."""
    typical = geometric_mean([found.ratio for found in ratios])
    times = f"{format_number(typical)}× faster" if typical >= 1 else f"{format_number(1 / typical)}× slower"
    known = describe_spread(ratios) + (f"; {count_certain(ratios)}" if len(ratios) > 1 else "")
    if all(ratio.outcome == "same" for ratio in ratios):
        return f"Whether {start} faster {end} is **undecided**: {times} {known}."
    return f"{start} **{times}** {end} {known}."


def explain_no_pair(compared: Speedups[StepResult], *, baseline: str, variant: str, where: str = "here") -> str:
    """Says why two ways cannot be compared, by the most frequent reason of the strongest kind."""
    for kind in ("failed", "unlike"):
        reasons = Counter(item.reason for item in compared.left_out if item.kind == kind)
        if reasons:
            (reason, _), *more = reasons.most_common()
            others = f", and {len(more)} other reasons" if len(more) > 1 else ", and another reason" if more else ""
            return f"No cell {where} can be compared in {baseline} and in {variant}: {reason}{others}."
    return f"No cell {where} was measured both in {baseline} and in {variant}."


def remarks(pairs: Sequence[Pair[T]]) -> str:
    """Says what is to be known of some pairs: what is unusual about them, and where the host bounds a side. Begins with
    a space, unless there is nothing to say."""
    unusual_words = describe_unusual_pairs([(pair.base.cell, pair.other.cell) for pair in pairs])
    host = describe_shares([host_share(pair) for pair in pairs])
    return "".join(f" {words}" for words in (unusual_words, host) if words)


def describe_spread(ratios: Sequence[Ratio]) -> str:
    """Says in parentheses how far the pairs lie apart or, of a single one, its interval and whether it is certain."""
    if len(ratios) == 1:
        (only,) = ratios
        certain = ", not significant" if only.outcome == "same" else ""
        return f"(95% interval {format_interval(only.low, only.high, unit='×')}; one pair{certain})"
    least, most = (pick(found.ratio for found in ratios) for pick in (min, max))
    return f"(geometric mean of {len(ratios)} pairs, {format_number(least)}× to {format_number(most)}×)"


def count_certain(ratios: Sequence[Ratio]) -> str:
    """Says of how many pairs it is certain which way is faster."""
    outcomes = Counter(ratio.outcome for ratio in ratios)
    if outcomes["better"] == len(ratios):
        return "all are significantly faster"
    if outcomes["same"] == len(ratios):
        return "none is significantly faster or slower"
    verb = "is" if outcomes["better"] == 1 else "are"
    counts = f"{outcomes['worse']} slower, {outcomes['same']} undecided"
    return f"{outcomes['better']} {verb} significantly faster, {counts}"


def trend_answer(speedups: Sequence[Pair[StepResult]]) -> str:
    """Says how the ratio changes with the number of parameters, by a log-log fit; empty below three sizes."""
    sizes = [speedup for speedup in speedups if speedup.phase == "step" and speedup.base.parameters]
    points = [(math.log10(speedup.base.parameters or 1), math.log10(speedup.ratio)) for speedup in sizes]
    if len({x for x, _ in points}) < 3:
        return ""
    factor = 10 ** slope(points)
    if abs(factor - 1) < 0.03:
        return "The speedup hardly changes with the size of the model."
    word, times = ("grows", factor) if factor > 1 else ("shrinks", 1 / factor)
    return f"The speedup {word} {format_number(times)}× per tenfold increase in parameters."


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Returns the slope by least squares; at least two points must differ in x."""
    return linear_regression(*zip(*points, strict=True)).slope
