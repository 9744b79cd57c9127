"""Chooses the first columns of a table: the fields in which its cells differ. The caption states the fields that they
share.

keys = make_keys(cells)
keys.headings            # ('Size', 'Context (tokens)')
keys.values(cells[0])    # ('small', '512')
keys.shared              # 'train, fp32, eager, naive attention, batch 4'
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runner.analysis.pair import describe_unusual_effort
from runner.schema import Cell, Column, Model, table_of
from runner.schema.axes import MODEL
from runner.schema.own import is_unread
from runner.schema.sizes import name_models

#: What is not known or does not apply.
NONE = "–"
#: The order of columns; others follow.
_ORDER = ("d_head", "seq_len", "context", "batch", "mode", "precision", "implementation", "backend", "attention")
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
        key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER),
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
