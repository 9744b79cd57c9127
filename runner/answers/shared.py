"""What several questions say alike: sizes, the fields in which cells differ, what rows share.

    tell_apart(cells)[0]      # 'small · 512'
    about(results)            # 'NVIDIA H200 · train, fp32, eager, naive attention, batch 4'

Every number of a sentence is read from the rows of a view by these functions, never worked out a second time.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar
from uuid import UUID

from runner.analysis.pair import CLOCKS as CLOCKS
from runner.analysis.pair import describe_unusual_effort
from runner.answers.answer import Answer, Asked, Choice, Row, View, choose
from runner.answers.words import format_value
from runner.formats import format_bytes, format_count, join_parts
from runner.results.cells import KernelTrace, Result, TimedResult
from runner.results.rows import RunSummary
from runner.schema import Cell, Column, Model, table_of
from runner.schema.axes import MODEL
from runner.schema.own import is_unread, part_title
from runner.schema.sizes import name_models

#: The order of columns; others follow.
_KEY_ORDER = ("d_head", "seq_len", "context", "batch", "mode", "precision", "implementation", "backend", "attention")
#: The fields that a caption states although they have the default.
_SAID = ("mode", "precision", "implementation", "backend", "attention", "batch", "context", "seq_len", "d_head")
#: The fields whose values need no label.
_PLAIN = ("mode", "precision", "implementation", "backend")


def _sort(names: Iterable[str], order: Sequence[str]) -> list[str]:
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def _vary(name: str, cells: Sequence[Cell]) -> bool:
    return len({getattr(cell, name) for cell in cells}) > 1


def tell_apart(cells: Sequence[Cell]) -> list[str]:
    """Returns what tells each of these cells of one table from the others: `small · 512 · train`."""
    names = table_of(cells[0]).question if cells else ()
    varied = _sort((name for name in names if name not in MODEL and _vary(name, cells)), _KEY_ORDER)
    sizes = name_models(Model.of(cell) for cell in cells if isinstance(cell, Model))
    efforts = [describe_unusual_effort(cell) for cell in cells]
    named = []
    for cell, effort in zip(cells, efforts, strict=True):
        words = [sizes[Model.of(cell)]] if isinstance(cell, Model) and len({*sizes.values()}) > 1 else []
        values = [(name, getattr(cell, name)) for name in varied]
        words += [format_value(value) for name, value in values if value is not None and not is_unread(name, value)]
        words += [effort] if effort and len({*efforts}) > 1 else []
        named.append(" · ".join(words) or next(iter(sizes.values()), "the cell"))
    return named


def _share(cells: Sequence[Cell], without: Sequence[str]) -> str:
    """Returns what all of these cells of one table have: `train, fp32, eager, naive attention, batch 4`."""
    table = table_of(cells[0])
    names = [name for name in table.question if name not in (*MODEL, *without) and not _vary(name, cells)]
    words = [_describe_shared(table.column(name), getattr(cells[0], name)) for name in _sort(names, _SAID)]
    efforts = {describe_unusual_effort(cell) for cell in cells}
    return ", ".join(word for word in (*words, *(efforts if len(efforts) == 1 else ())) if word)


def _describe_shared(column: Column, value: Any) -> str:
    """Returns a shared value in words; empty for a default without mention and a field that an own model lacks."""
    if is_unread(column.name, value):
        return ""
    if column.name in _PLAIN:
        return str(value)
    if column.name == "attention":
        return f"{part_title(value)} attention"
    if value is True or value is False:
        return column.label.lower() if value else f"not {column.label.lower()}"
    if value is None or (value == column.absent and column.name not in _SAID):
        return ""
    return f"{column.label.lower()} {format_value(part_title(value))}"


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


def place_of(one: Measured, sizes: Mapping[Any, str]) -> tuple[str, int | None]:
    """Returns the size and the context of a cell; None for a model whose samples have no length."""
    return sizes[Model.of(one.cell)], one.cell.context or None


def name_machines(results: Iterable[Any]) -> str:
    """Returns the devices on which these were measured, each once."""
    return " · ".join(dict.fromkeys(one.machine.split(" · ")[0] for one in results))


def about(results: Sequence[Measured], *without: str, more: Sequence[str] = ()) -> str:
    """Returns what the rows share: `NVIDIA H200 · train, fp32, eager, naive attention, batch 4`."""
    return join_parts(name_machines(results), *more, _share([one.cell for one in results], without) if results else "")


#: The order in which fields are narrowed, and the value to begin with where the rows have it.
_ORDER = ("size", "mode", "precision", "backend", "attention", "d_head", "causal", "batch", "context")
_FIRST = {
    "mode": "train",
    "precision": "fp32",
    "backend": "eager",
    "attention": "naive",
    "optimizer": "foreach",
    "loss_function": "cross-entropy",
    "checkpoint_blocks": "0",
}
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
        value = sizes[Model.of(one.cell)] if name == "size" else getattr(one.cell, name)
        return ("yes" if value else "no") if isinstance(value, bool) else str(value)

    for name in _sort(sorted({*names} - {*drawn}), _ORDER):
        counts = Counter(text(one, name) for one in shown)
        if len(counts) < 2:
            continue
        default = _FIRST.get(name, "")
        if name == "size":  # the largest of Stepscope's own
            default = next((sizes[Model.of(one.cell)] for one in reversed(shown) if one.cell.model_key is None), "")
        elif default not in counts:
            default = max(counts, key=lambda text: (counts[text], len(text), text))
        order = list(counts)
        if name != "size":
            order.sort(key=lambda text: (len(text), text) if text.isdecimal() else (0, text))
        label = "Size" if name == "size" else table.column(name).label
        prefix = f"{label.lower()} " if all(one.isdecimal() or one in ("yes", "no") for one in order) else ""
        choice = choose(asked, name.replace("_", "-"), label, order, default=default, prefix=prefix)
        choices.append(choice)
        shown = [one for one in shown if text(one, name) == choice.chosen]
    return shown, choices


def unmeasured(results: Sequence[R], *, across: str) -> list[tuple[R, Any, Any]]:
    """Returns the empty places of a matrix of sizes or ways by `across`: a result of the line, the column, the cell."""
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
    known = [words for words, name in CLOCKS.items() if any(one.time("step", name) for one in results)]
    return choose(asked, "clock", "Clock", known, default=default)


def name_time(answer: Answer, traced: Sequence[KernelTrace]) -> Answer:
    """Returns an answer from profiles, which names their time: "GPU time", and on a machine without a GPU "operator
    time", because there a profile has the operators' own time on the CPU."""
    if not traced or not all(one.device in ("cpu", "mps") for one in traced):
        return answer

    def name(text: str) -> str:
        return re.sub("^GPU time", "Operator time", text).replace("GPU time", "operator time")

    views = [
        replace(
            view,
            about=name(view.about),
            fields=tuple(replace(item, label=name(item.label), doc=name(item.doc)) for item in view.fields),
            note=name(view.note),
        )
        for view in answer.views
    ]
    return replace(answer, sentence=name(answer.sentence), more=name(answer.more), views=tuple(views))


def cells_of(*groups: Iterable[Measured]) -> dict[Any, Any]:
    return {one.cell_id: one.cell for group in groups for one in group}


def best(view: View, *, largest: bool = True) -> Row | None:
    """Returns the row of a view with its largest or smallest value."""
    known = [row for row in view.rows if view.get(row, view.draw.value) is not None]
    pick = max if largest else min
    return pick(known, key=lambda row: view.get(row, view.draw.value), default=None)
