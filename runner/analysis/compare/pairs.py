"""Which two cells may be compared? The one rule behind every speedup, ratio and difference.

    pair = match_pair(fp32_cells, bf16_cells)                      # (fp32 cell, bf16 cell), or None
    text = describe_effort_difference(fp32_cell, bf16_cell)   # 'warm-up 5 against 0 steps'
    text = describe_unusual_effort(bf16_cell)                                 # 'warm-up 0 steps'

Two cells are a pair when they agree in every field of their key except the compared one: in their config fields and in
their effort fields. Where cells were measured with several efforts, the preferred effort that both sides have counts.
Without a common effort there is no pair.

Limits: an eager cell uses no compiler cache, so it may be paired with a compiled cell whatever cache that one used; an
empty cache is named (`describe_unusual_effort`) wherever such a pair is shown.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from runner.analysis.statistics import Ratio
from runner.schema import TABLES, Cell, Column, Phase


class Sided(Protocol):
    """One side of a pair: a cell with its status."""

    @property
    def cell(self) -> Cell: ...
    @property
    def status(self) -> str: ...


S = TypeVar("S", bound=Sided)


@dataclass(frozen=True, kw_only=True)
class Pair(Ratio, Generic[S]):
    """Two cells that differ only in what is compared. The ratio is the value of `base` over that of `other`: the time
    of one phase, or the peak in bytes."""

    base: S
    other: S
    phase: Phase = "step"

    @property
    def named(self) -> S:
        """The cell that gives the pair its name: the base, unless only the other has an unusual effort."""
        return (
            self.other
            if describe_unusual_effort(self.other.cell) and not describe_unusual_effort(self.base.cell)
            else self.base
        )


@dataclass(frozen=True, kw_only=True)
class LeftOut(Generic[S]):
    """A cell that could not be compared, and why: its partner is `missing`, the two were measured with different
    effort (`unlike`), one or both `failed`, or a number cannot be trusted (`doubtful`)."""

    named: S
    kind: Literal["missing", "unlike", "failed", "doubtful"]
    reason: str
    detail: str = ""
    base: S | None = None
    other: S | None = None

    @property
    def failed(self) -> tuple[S, ...]:
        """The sides that failed, where that is the reason."""
        sides = (self.base, self.other) if self.kind == "failed" else ()
        return tuple(side for side in sides if side is not None and side.status != "ok")


#: The effort fields that apply only to this backend and its variants.
_BACKENDS: Mapping[str, str] = {"compile_cache": "compiled"}
#: The effort fields that only limit the measurement.
_LIMITS = ("min_steps", "max_steps", "max_seconds")
_EFFORT: Mapping[type, tuple[Column, ...]] = {
    kind: table.effort
    for table in TABLES.values()
    for kind in table.row.__mro__
    if issubclass(kind, Cell) and kind is not Cell
}


def match_pair(a: Sequence[S], b: Sequence[S]) -> tuple[S, S] | None:
    """Returns the two cells, one of each side, that were measured with the same effort: preferably two that have a
    result, then the preferred effort. None where no two agree. Within a side the config fields are the same."""
    found = [(one, other) for one in a for other in b if not _find_differing(one.cell, other.cell)]
    if len(found) <= 1:
        return found[0] if found else None
    return max(found, key=lambda pair: (_both_ok(*pair), *map(rank_effort, pair)))


def match_closest(a: Sequence[S], b: Sequence[S]) -> tuple[S, S]:
    """Returns the pair as `match_pair` does or, where no two agree, the preferred cell of each side. Neither side may
    be empty."""
    return match_pair(a, b) or (max(a, key=rank_effort), max(b, key=rank_effort))


def _both_ok(a: Sided, b: Sided) -> bool:
    return a.status == b.status == "ok"


def rank_effort(side: Sided) -> tuple[float, ...]:
    """Returns the rank of a cell's effort; a higher rank is preferred."""
    return tuple(column.preference(getattr(side.cell, column.name)) for column in _EFFORT[type(side.cell)])


def describe_effort_difference(a: Cell, b: Cell) -> str:
    """Returns the effort fields in which two cells differ, as text; empty for a pair."""
    return ", ".join(
        f"{column.label.lower()} {getattr(a, column.name)} against {_format_with_unit(column, getattr(b, column.name))}"
        for column in _find_differing(a, b)
    )


def describe_unusual_effort(cell: Cell) -> str:
    """Returns which effort fields set a cell's numbers apart, as text: less warm-up than the default, an empty compiler
    cache, a recorded timeline. Empty for a cell measured as usual."""
    found = [
        (column, value)
        for column in _EFFORT[type(cell)]
        if column.name not in _LIMITS and _applies(cell, column)
        if column.preference(value := getattr(cell, column.name)) < column.preference(column.absent)
    ]
    return ", ".join(
        f"with a {column.label.lower()}"
        if value is True
        else f"{column.label.lower()} {_format_with_unit(column, value)}"
        for column, value in found
        if value is not None
    )


def describe_unusual_pairs(pairs: Sequence[tuple[Cell, Cell]]) -> str:
    """Says how many of these pairs were measured with an unusual effort; empty where none was."""
    found = Counter(
        words for base, other in pairs if (words := describe_unusual_effort(other) or describe_unusual_effort(base))
    )
    return " ".join(
        f"{_count_pairs(count, of=len(pairs))} measured with {words.removeprefix('with ')}."
        for words, count in found.most_common()
    )


def _count_pairs(count: int, *, of: int) -> str:
    if of == 1:
        return "The pair was"
    return f"All {of} pairs were" if count == of else f"{count} of the {of} pairs {'was' if count == 1 else 'were'}"


def _find_differing(a: Cell, b: Cell) -> list[Column]:
    return [
        column
        for column in _EFFORT[type(a)]
        if getattr(a, column.name) != getattr(b, column.name) and _applies(a, column) and _applies(b, column)
    ]


def _applies(cell: Cell, column: Column) -> bool:
    """Returns whether the field applies to this cell."""
    only = _BACKENDS.get(column.name)
    return only is None or str(getattr(cell, "backend", "")).startswith(only)


def _format_with_unit(column: Column, value: object) -> str:
    return f"{value} {column.unit}" if column.unit else str(value)
