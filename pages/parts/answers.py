"""The sentence in which a page answers its question, worked out from the rows that it draws.

st.markdown(step_answer(frame, cells))
"""

import math
from collections.abc import Sequence

from pages.charts.frame import WORDS, interval, number
from pages.parts.frame import Frame
from runner.analysis.comparison import Comparison, Speedup
from runner.schema import Phase
from runner.store.queries.steps import Measured


def step_answer(frame: Frame, cells: Sequence[Measured]) -> str:
    """Which phase the time of the largest measured cell goes to."""
    done = [cell for cell in cells if cell.status == "ok" and "step" in cell.times]
    failed = len(cells) - len(done)
    lost = f" No result from {failed} of {len(cells)} cells." if failed else ""
    if not done:
        return f"None of these cells has a result.{lost}"
    largest = max(done, key=lambda cell: cell.times["step"].median_ms)
    step = largest.times["step"]
    parts = {
        phase: time.median_ms for phase, time in largest.times.items() if phase not in ("step", "forward_backward")
    }
    whole = sum(parts.values())
    shares = [f"{WORDS[phase]} {ms / whole:.0%}" for phase, ms in sorted(parts.items(), key=lambda item: -item[1])]
    cell = largest.cell
    name = f"{frame.size_of(cell)} at {cell.context:,} tokens, {cell.precision}, {cell.backend}"
    goes = f": {', '.join(shares)}" if len(shares) > 1 else ""
    return (
        f"The longest step here, **{name}**, takes **{number(step.median_ms)} ms** "
        f"({interval(step.low_ms, step.high_ms)}){goes}.{lost}"
    )


def speedup_answer(compared: Comparison, *, baseline: str, variant: str, phase: Phase = "step") -> str:
    """Over all pairs: the typical ratio, its spread, how many are certain, and how it goes with size."""
    found = [speedup for speedup in compared.speedups if speedup.phase == phase]
    if not found:
        return f"Nothing here was measured both in {baseline} and in {variant}."
    typical = geometric_mean([speedup.ratio for speedup in found])
    lowest, highest = min(found, key=lambda s: s.ratio), max(found, key=lambda s: s.ratio)
    sure = sum((speedup.low or 0) > 1 for speedup in found)
    slower = sum((speedup.high or math.inf) < 1 for speedup in found)
    word = "faster" if typical >= 1 else "slower"
    times = typical if typical >= 1 else 1 / typical
    parts = [f"**{variant}** makes the {WORDS[phase]} **{number(times)}× {word}** than {baseline}"]
    if len(found) == 1:
        parts.append(f" (95 % interval {interval(found[0].low, found[0].high, unit='×')}; one pair)")
    else:
        parts.append(
            f" (geometric mean of {len(found)} pairs, {number(lowest.ratio)}× to {number(highest.ratio)}×); "
            + _certainty(len(found), sure=sure, slower=slower)
        )
    return "".join(parts) + "."


def _certainty(pairs: int, *, sure: int, slower: int) -> str:
    """How many pairs' intervals leave 1× on one side."""
    if sure == pairs:
        return "all are faster beyond doubt"
    return f"{sure} are faster beyond doubt, {slower} slower, {pairs - sure - slower} undecided"


def trend_answer(found: Sequence[Speedup]) -> str:
    """How the ratio goes with the number of parameters, as least squares on log-log; empty below three sizes."""
    points = [
        (math.log10(s.base.parameters), math.log10(s.ratio)) for s in found if s.phase == "step" and s.base.parameters
    ]
    if len({x for x, _ in points}) < 3:
        return ""
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    factor = 10**slope
    if abs(factor - 1) < 0.03:
        return "It hardly changes with the size of the model."
    word = "grows" if factor > 1 else "shrinks"
    return f"It {word} with the model: {number(factor)}× as large for ten times the parameters."


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean that treats 2× and ½× as opposites."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
