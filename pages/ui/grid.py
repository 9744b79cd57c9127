"""The grid that some cells span: what stands where, and which places have no row.

    for place in places(cells): print(place.block, place.row, place.column)
    print(missing(cells))

A row is everything of the key but the length; a row's cells are wanted at every length that any of the cells has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner.analysis.compare.pairs import describe_unusual_effort
from runner.schema import Cell, Model, table_of
from runner.schema.axes import MODEL
from runner.schema.columns import columns_of
from runner.schema.own import is_unread
from runner.schema.sizes import name_models

#: The fields with which a row's name begins, where its cells have them.
_LEAD = ("implementation", "precision", "backend")
#: Fields whose values say what they are.
_BARE = (*_LEAD, "mode", "attention")


@dataclass(frozen=True, kw_only=True)
class GridPlace:
    """One place: the names of its block and row, the length, and the cells that stand there."""

    block: str
    row: str
    column: int
    cells: tuple[Any, ...]


def column_of(cell: Cell) -> str:
    """Returns the field of the length."""
    return "context" if isinstance(cell, Model) else "seq_len"


def places(cells: Sequence[Any]) -> list[GridPlace]:
    """Returns every place that holds a cell, blocks and rows in the order of the cells. `cells` are rows of queries."""
    keys = [item.cell for item in cells]
    names, blocks = _choose_fields(keys), _name_blocks(keys)
    placed: dict[tuple[str, str, int], list[Any]] = {}
    for item in cells:
        place = (blocks[_find_block(item.cell)], _name_row(item.cell, names), getattr(item.cell, column_of(item.cell)))
        placed.setdefault(place, []).append(item)
    return [GridPlace(block=b, row=r, column=c, cells=tuple(items)) for (b, r, c), items in placed.items()]


def _choose_fields(keys: Sequence[Cell]) -> list[str]:
    """Returns the fields that name a row: those of `_LEAD`, and what else varies."""
    blocks = {column_of(keys[0]), "d_head", *MODEL}
    names = [name for name in table_of(keys[0]).question if name not in blocks]
    varied = {name for name in names if len({getattr(cell, name) for cell in keys}) > 1}
    lead = [name for name in _LEAD if name in names]
    return [
        *(["mode"] if "mode" in varied else []),
        *lead,
        *(n for n in names if n in varied and n not in ("mode", *lead)),
    ]


def _find_block(cell: Any) -> int | Model:
    return Model.of(cell) if isinstance(cell, Model) else cell.d_head


def _name_blocks(keys: Sequence[Cell]) -> dict[int | Model, str]:
    """Returns the name of each block: the head width, or the size."""
    blocks = list(dict.fromkeys(map(_find_block, keys)))
    sizes = name_models(block for block in blocks if isinstance(block, Model))
    return {block: sizes[block] if isinstance(block, Model) else f"head width {block}" for block in blocks}


def _name_row(cell: Cell, names: Sequence[str]) -> str:
    """Returns the name of a cell's row: leading fields, others that are not the default, unusual effort."""
    known = {column.name: column for column in columns_of(cell.asked())}
    parts = [
        str(getattr(cell, name)) if name in _BARE else f"{known[name].label.lower()} {value}"
        for name in names
        if name in _LEAD or ((value := getattr(cell, name)) != known[name].absent and not is_unread(name, value))
    ]
    return " · ".join(part for part in (*parts, describe_unusual_effort(cell)) if part)


def missing(cells: Sequence[Any]) -> list[Cell]:
    """Returns the cells without a row: each row's cell at every length at which it is not. A model whose samples
    have no length stands at 0 alone, and nothing else does."""
    if not cells:
        return []
    name = column_of(cells[0].cell)
    lengths = sorted({getattr(item.cell, name) for item in cells} - {0})
    kind = cells[0].cell.asked()
    fields = [field for field in kind.names() if field in table_of(cells[0].cell).question and field != name]
    rows: dict[tuple[Any, ...], dict[int, Cell]] = {}
    for item in cells:
        key = tuple(getattr(item.cell, field) for field in fields)
        rows.setdefault(key, {})[getattr(item.cell, name)] = item.cell
    return [
        replace(next(iter(row.values())), **{name: length}) for row in rows.values() if 0 not in row
        for length in lengths if length not in row
    ]  # fmt: skip
