"""Fields and words that several questions share: a size, a status, a ratio, a power law, and what was not measured."""

import math
from collections.abc import Iterable
from statistics import linear_regression
from typing import Any, TypeVar

from runner.analysis.pair import CLOCKS as CLOCKS
from runner.analysis.statistics import Ratio, student_quantile
from runner.answers.answer import Field, Missing, Power
from runner.experiments.experiment import Grid
from runner.formats import format_bytes, format_number, format_tokens, join_parts
from runner.results.cells import AttentionResult, Peak, Result
from runner.schema import Cell, NumericsCell, Phase
from runner.schema.sizes import WORDS, describe_status, model_name

#: What is not known or does not apply.
NONE = "–"


def format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return NONE if value is None else f"{value:,}" if isinstance(value, int) else str(value)


_TIMED: tuple[Phase, ...] = ("step", "forward", "backward", "optimizer")
PHASES: dict[str, Phase] = {WORDS[name]: name for name in _TIMED}
_OF_ATTENTION: tuple[Phase, ...] = ("forward_backward", "forward", "backward")
ATTENTION_PHASES: dict[str, Phase] = {WORDS[name]: name for name in _OF_ATTENTION}
SIZE = Field("size", "Size")
CONTEXT = Field.of("steps", "context")
STATUS = Field.of("steps", "status", "status")
_MEAN = "end of the 95% interval of the mean over processes; of one process, of what another takes."
LOW = Field("low_ms", "Time, low", unit="ms", role="low", doc=f"Lower {_MEAN}")
HIGH = Field("high_ms", "Time, high", unit="ms", role="high", doc=f"Upper {_MEAN}")


def name_pass(cell: NumericsCell) -> str:
    """Returns the name of a model and its pass, without the precision: `small · 512 tokens`."""
    usual = NumericsCell.__dataclass_fields__
    rare = [name for name in ("batch", "attention", "weights_dtype") if getattr(cell, name) != usual[name].default]
    words = [f"{name.replace('_', ' ')} {getattr(cell, name)}" for name in rare]
    return join_parts(model_name(cell), format_tokens(cell.context), *words)


def ended(result: Result) -> str:
    return describe_status(result.status, result.failed_phase)


def ended_with_need(result: Peak | AttentionResult) -> str:
    """Returns the same, and of a cell that ran out of memory the peak that it would have had by the formula."""
    needed = result.predicted_peak_bytes if result.status == "oom" else None
    return f"{ended(result)}: needs {format_bytes(needed)}" if needed else ended(result)


#: The confidence of the interval of a ratio.
LEVEL = Field("level", "Level", role="note", is_long=True, doc="Confidence of the interval, which decides.")


def name_levels(ratios: Iterable[Ratio | None]) -> str:
    """Returns the confidence of these intervals: `99%`, or `99% (99.5% from six processes on)`."""
    first, *more = [f"{100 * level:g}%" for level in sorted({one.level for one in ratios if one and one.low})] or [""]
    return f"{first} ({more[0]} from six processes on)" if more else first


def explain_level(ratios: Iterable[Ratio | None]) -> str:
    """Returns how a view's ratios are decided, after a blank; nothing where no ratio has an interval."""
    levels = name_levels(ratios := list(ratios))
    return (f" Undecided (gray) where the {levels} interval includes 1." if levels else "") + explain_times(ratios)


def explain_times(ratios: Iterable[Ratio | None]) -> str:
    """Returns which times are compared where they are not medians, after a blank."""
    if not any(one and one.undisturbed for one in ratios):
        return ""
    return " From six processes on, what a CPU computes is compared by undisturbed steps: the 10th percentile of each."


def say_ratio(ratio: float, outcome: str) -> str:
    """Returns a ratio as a sentence says it: `1.05× slower` for 0.952."""
    if outcome not in ("faster", "slower"):
        return outcome
    return f"{format_number(ratio if outcome == 'faster' else 1 / ratio)}× {outcome}"


def fit_power(points: Iterable[tuple[float, float]], *, longest: int = 0) -> Power | None:
    """Returns the power law through points (x, value), of the `longest` x alone where given: constant costs weigh least
    there. None with fewer than two x. The interval is that of the slope of a regression (n − 2 degrees of freedom)."""
    known = sorted(point for point in points if point[0] > 0 and point[1] > 0)[-longest:]
    if len({x for x, _ in known}) < 2:
        return None
    logs = [(math.log(x), math.log(y)) for x, y in known]
    slope, intercept = linear_regression(*zip(*logs, strict=True))
    low = high = None
    if len(known) > 2:
        mean = sum(x for x, _ in logs) / len(logs)
        left = sum((y - intercept - slope * x) ** 2 for x, y in logs) / (len(logs) - 2)
        reach = student_quantile(0.95, len(logs) - 2) * math.sqrt(left / sum((x - mean) ** 2 for x, _ in logs))
        low, high = slope - reach, slope + reach
    return Power(
        exponent=slope,
        factor=math.exp(intercept),
        start=known[0][0],
        end=known[-1][0],
        points=len(known),
        low=low,
        high=high,
    )


def power_words(fit: Power) -> str:
    """Returns `S^1.94`, as every renderer writes it."""
    return f"S^{fit.exponent:.2f}"


def write(value: Any, unit: str) -> str:
    """Returns a number within a sentence: `12.3 ms`, `74.2 GiB`, `2.34×`."""
    return format_bytes(value) if unit == "bytes" else f"{format_number(value)}{'' if unit == '×' else ' '}{unit}"


C = TypeVar("C", bound=Cell)


def plain_cells(kind: type[C], *modes: str) -> list[C]:
    """Returns what a file without any such row lacks first: the smallest plain model, in these modes or in training."""
    grid = Grid.of(kind, sizes=("small",), contexts=(512,), modes=modes or ("train",), precisions=("fp32",))
    return [cell for cell in grid.cells() if isinstance(cell, kind)]


def lacks(words: str, cells: Iterable[Cell] = ()) -> tuple[Missing]:
    """Returns what was not measured, with the cells to begin with."""
    return (Missing(words=words, cells=tuple(cells)),)
