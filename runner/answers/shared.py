"""What several questions say alike: sizes, the fields in which cells differ, what rows share, intervals, power laws.

    keys = make_keys(cells)
    keys.headings, keys.values(cells[0])      # ('Size', 'Context (tokens)'), ('small', '512')
    keys.shared                               # 'train, fp32, eager, naive attention, batch 4'

Every number of a sentence is read from the rows of a view by these functions, never worked out a second time.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import linear_regression
from typing import Any, Protocol, TypeVar
from uuid import UUID

from runner.analysis.pair import CLOCKS as CLOCKS
from runner.analysis.pair import describe_unusual_effort
from runner.analysis.statistics import Ratio, student_quantile
from runner.answers.answer import Asked, Choice, Field, Missing, Power, Row, View, choose
from runner.experiments.experiment import Grid
from runner.formats import format_bytes, format_count, format_number, format_tokens, join_parts
from runner.results.cells import Result, TimedResult
from runner.results.rows import RunSummary
from runner.schema import Cell, Column, Model, NumericsCell, Phase, table_of
from runner.schema.axes import MODEL
from runner.schema.own import is_unread
from runner.schema.sizes import WORDS, describe_status, model_name, name_models

#: What is not known or does not apply.
NONE = "–"
#: The order of columns; others follow.
_KEY_ORDER = ("d_head", "seq_len", "context", "batch", "mode", "precision", "implementation", "backend", "attention")
#: The fields that a caption states although they have the default.
_SAID = ("mode", "precision", "implementation", "backend", "attention", "batch", "context", "seq_len", "d_head")
#: The fields whose values need no label.
_PLAIN = ("mode", "precision", "implementation", "backend")
_MEASURED = "How measured"


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The columns in which cells differ, and in words the values that all of them share."""

    names: tuple[str, ...]
    headings: tuple[str, ...]
    shared: str
    sizes: dict[Model, str]

    def values(self, cell: Cell) -> tuple[str, ...]:
        """Returns the cell's values, one a heading."""
        return tuple(self._value(cell, name) for name in self.names)

    def _value(self, cell: Cell, name: str) -> str:
        if name == "size":
            assert isinstance(cell, Model)
            return self.sizes[Model.of(cell)]
        if name == "effort":
            return describe_unusual_effort(cell) or "as usual"
        value = getattr(cell, name)
        return NONE if is_unread(name, value) else format_value(value)


def format_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return NONE if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def make_keys(cells: Sequence[Cell], *, without: Sequence[str] = ()) -> Keys:
    """Returns the columns for cells of one table; `without` are fields that another column shows."""
    table = table_of(cells[0])
    fields = sorted(
        (name for name in table.question if name not in (*MODEL, *without)),
        key=lambda name: _KEY_ORDER.index(name) if name in _KEY_ORDER else len(_KEY_ORDER),
    )
    varied = [name for name in fields if len({getattr(cell, name) for cell in cells}) > 1]
    shared = [name for name in fields if name not in varied]
    shapes = [Model.of(cell) for cell in cells if isinstance(cell, Model)]
    headings = {name: table.column(name).title for name in varied}
    names = [*(["size"] if shapes else []), *varied]
    efforts = {describe_unusual_effort(cell) for cell in cells}
    if len(efforts) > 1:
        names.append("effort")
    said = [_describe_shared(table.column(name), getattr(cells[0], name)) for name in sorted(shared, key=_rank)]
    words = [*(word for word in said if word), *(efforts if len(efforts) == 1 else ())]
    return Keys(
        names=tuple(names),
        headings=tuple({"size": "Size", "effort": _MEASURED}.get(name) or headings[name] for name in names),
        shared=", ".join(word for word in words if word),
        sizes=name_models(shapes),
    )


def _rank(name: str) -> int:
    return _SAID.index(name) if name in _SAID else len(_SAID)


def _describe_shared(column: Column, value: Any) -> str:
    """Returns a shared value in words; empty for a default that needs no mention and for a field that an own model does
    not have."""
    if is_unread(column.name, value):
        return ""
    if column.name in _PLAIN:
        return str(value)
    if column.name == "attention":
        return f"{value} attention"
    if value is True or value is False:
        return column.label.lower() if value else f"not {column.label.lower()}"
    if value is None or (value == column.absent and column.name not in _SAID):
        return ""
    return f"{column.label.lower()} {format_value(value)}"


_TIMED: tuple[Phase, ...] = ("step", "forward", "backward", "optimizer")
PHASES: dict[str, Phase] = {WORDS[name]: name for name in _TIMED}

SIZE = Field("size", "Size")
CONTEXT = Field.of("steps", "context")
STATUS = Field.of("steps", "status", "status")


def name_pass(cell: NumericsCell) -> str:
    """Returns the name of a model and its pass, without the precision: `small · 512 tokens`."""
    usual = NumericsCell.__dataclass_fields__
    rare = [name for name in ("batch", "attention", "weights_dtype") if getattr(cell, name) != usual[name].default]
    words = [f"{name.replace('_', ' ')} {getattr(cell, name)}" for name in rare]
    return join_parts(model_name(cell), format_tokens(cell.context), *words)


def pass_cell(row: NumericsCell) -> NumericsCell:
    """Returns the cell of a row of `numerics`."""
    return NumericsCell(**{name: getattr(row, name) for name in NumericsCell.names()})


class Measured(Protocol):
    """Any result of a cell: `runner.results.Result`, a trace, a timeline. `cell` is None only for imported rows."""

    @property
    def cell_id(self) -> UUID: ...
    @property
    def machine(self) -> str: ...
    @property
    def cell(self) -> Any: ...


def sizes_of(results: Sequence[Measured]) -> dict[Any, str]:
    return name_models(Model.of(one.cell) for one in results if isinstance(one.cell, Model))


def about(results: Sequence[Measured], *without: str, more: Sequence[str] = ()) -> str:
    """Returns what the rows share: `NVIDIA H200 · train, fp32, eager, naive attention, batch 4`."""
    machines = dict.fromkeys(one.machine.split(" · ")[0] for one in results)
    shared = make_keys([one.cell for one in results], without=without).shared if results else ""
    return " · ".join(part for part in (*machines, *more, shared) if part)


#: The order in which fields are narrowed, and the value to begin with where the rows have it.
_ORDER = ("size", "mode", "precision", "backend", "attention", "d_head", "causal", "batch", "context")
_FIRST = {"mode": "train", "precision": "fp32", "backend": "eager", "attention": "naive", "checkpoint_blocks": "0"}
T = TypeVar("T", bound=Measured)


R = TypeVar("R", bound=Result)


def narrow(results: Sequence[T], asked: Asked, *, drawn: Sequence[str]) -> tuple[list[T], list[Choice]]:
    """Returns the results that differ in what is `drawn` alone, and a choice for every other field of the key in which
    they differ: so no two rows of a view stand in one place. `size` stands for the model."""
    shown, choices = list(results), list[Choice]()
    if not shown:
        return shown, choices
    table, sizes = table_of(shown[0].cell), sizes_of(shown)
    names = ["size" if name == MODEL[0] else name for name in table.question if name not in MODEL[1:]]

    def text(one: T, name: str) -> str:
        return sizes[Model.of(one.cell)] if name == "size" else _text(getattr(one.cell, name))

    for name in sorted(
        set(names) - {*drawn}, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name)
    ):
        counts = Counter(text(one, name) for one in shown)
        if len(counts) < 2:
            continue
        default = _FIRST.get(name, "")
        if name == "size":  # the largest of Stepscope's own
            default = next((sizes[Model.of(one.cell)] for one in reversed(shown) if one.cell.model_key is None), "")
        elif default not in counts:
            default = max(counts, key=lambda text: (counts[text], len(text), text))
        order = (
            list(counts)
            if name == "size"
            else sorted(counts, key=lambda text: (len(text), text) if text.isdecimal() else (0, text))
        )
        label = "Size" if name == "size" else table.column(name).label
        prefix = f"{label.lower()} " if all(one.isdecimal() or one in ("yes", "no") for one in order) else ""
        choice = choose(asked, name.replace("_", "-"), label, order, default=default, prefix=prefix)
        choices.append(choice)
        shown = [one for one in shown if text(one, name) == choice.chosen]
    return shown, choices


def _text(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def ended(result: Result) -> str:
    return "" if result.status == "ok" else describe_status(result)


def unmeasured(results: Sequence[R], *, across: str) -> list[tuple[R, Any, Any]]:
    """Returns the empty places of a matrix of sizes (or ways) by `across`: a result of that line, the column, the
    cell."""
    columns = sorted({getattr(one.cell, across) for one in results})
    lines: dict[Any, list[R]] = {}
    for one in results:
        rest = {name: getattr(one.cell, name) for name in table_of(one.cell).question if name != across}
        lines.setdefault(tuple(rest.values()), []).append(one)
    return [
        (found[0], column, replace(found[0].cell, **{across: column}))
        for found in lines.values()
        for column in columns
        if column and getattr(found[0].cell, across) and column not in {getattr(one.cell, across) for one in found}
    ]


def lost_of(view: View) -> list[Row]:
    """Returns the rows that were measured and have no value."""
    return [row for row in view.rows if not row.wanted and view.ended(row)]


def describe_machine(runs: Sequence[RunSummary]) -> list[str]:
    """Returns what was measured on, the last run first: `NVIDIA H200`, `140 GiB`, `torch 2.11.0`, `28 runs`."""
    run = next((one for one in runs if one.device_name), None)
    if run is None:
        return ["no device"]
    memory = [format_bytes(run.device_memory_bytes)] if run.device_memory_bytes else []
    torch = [f"torch {run.torch.partition('+')[0]}"] if run.torch else []
    return [run.device_name or "", *memory, *torch, format_count(len(runs), "run")]


def clock_choice(asked: Asked, results: Sequence[TimedResult], *, default: str = "") -> Choice:
    """Returns the clocks by which any of these has the time of a whole step."""
    known = [
        words
        for words, name in CLOCKS.items()
        if any("step" in one.times and one.times["step"].by(name) for one in results)
    ]
    return choose(asked, "clock", "Clock", known, default=default)


#: The confidence of the interval of a ratio.
LEVEL = Field("level", "Level", role="note", is_long=True, doc="Confidence of the interval, which decides.")


def name_levels(ratios: Iterable[Ratio | None]) -> str:
    """Returns the confidence of these intervals: `99%`, or `99% (99.5% from six processes on)`."""
    first, *more = [f"{100 * level:g}%" for level in sorted({one.level for one in ratios if one and one.low})] or [""]
    return f"{first} ({more[0]} from six processes on)" if more else first


def say_ratio(ratio: float, outcome: str) -> str:
    """Returns a ratio as a sentence says it: `1.05× slower` for 0.952."""
    if outcome not in ("faster", "slower"):
        return outcome
    return f"{format_number(ratio if outcome == 'faster' else 1 / ratio)}× {outcome}"


def cells_of(*groups: Iterable[Measured]) -> dict[Any, Any]:
    return {one.cell_id: one.cell for group in groups for one in group}


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


def best(view: View, *, largest: bool = True) -> Row | None:
    """Returns the row of a view with its largest or smallest value."""
    known = [row for row in view.rows if view.get(row, view.draw.value) is not None]
    pick = max if largest else min
    return pick(known, key=lambda row: view.get(row, view.draw.value), default=None)


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
