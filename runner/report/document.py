"""Defines a report: questions with answers, tables with footnotes, and what is missing.

    Answer(sentence="The step takes 12.3 ms.", tables=(ReportTable(caption="…", headings=("Size",), lines=(…,)),))

All text is plain: renderers escape it. Standard library and the schema only.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from runner.schema import Cell

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a table. `marks` are the numbers of the footnotes that apply to it."""

    values: tuple[str, ...]
    marks: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ReportTable:
    """A table. Its caption states what all lines share; the note says how to read it."""

    caption: str
    headings: tuple[str, ...]
    lines: tuple[Line, ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Behind:
    """A row behind an answer."""

    cell_id: UUID
    cell: Cell


class HasCell(Protocol):
    """A row of any query whose rows are cells; imported rows have none."""

    @property
    def cell_id(self) -> UUID: ...
    @property
    def cell(self) -> Cell | None: ...


def behind(results: Iterable[HasCell]) -> tuple[Behind, ...]:
    """Returns the rows behind an answer, each once."""
    found = {result.cell_id: result.cell for result in results}
    return tuple(Behind(cell_id=cell_id, cell=cell) for cell_id, cell in found.items() if cell)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer from the rows. Footnotes are numbered from 1, in this order. `behind` are the rows of the answer, all
    of one table. `lacks` says in words what is missing for a whole answer; without any table the question is open."""

    sentence: str = ""
    tables: tuple[ReportTable, ...] = ()
    footnotes: tuple[str, ...] = ()
    behind: tuple[Behind, ...] = ()
    lacks: str = ""


@dataclass(frozen=True, kw_only=True)
class Question(Generic[R]):
    """A question, the function that answers it from rows, and the cells that would answer it where no row does. `page`
    is the address of the page that says more."""

    id: str
    text: str
    page: str
    answer: Callable[[R], Answer]
    wanted: Callable[[R], Sequence[Cell]]


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A question with its answer, and the commands that measure its rows again."""

    id: str
    text: str
    page: str
    answer: Answer
    commands: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Open:
    """A question that the file cannot answer at all or in part: what is missing, and the commands that measure it."""

    id: str
    text: str
    lacks: str
    commands: tuple[str, ...]


def name_table(answered: Answered, number: int) -> str:
    """Returns the name of an answer's table, counted from 1: `Table B1`, or `Table B1-2` where it has several."""
    several = len(answered.answer.tables) > 1
    return f"Table {answered.id}-{number}" if several else f"Table {answered.id}"


def say_lack(item: Open) -> str:
    """Returns what is missing as a sentence."""
    return item.lacks[:1].upper() + item.lacks[1:] + ("" if item.lacks.endswith(".") else ".")


@dataclass(frozen=True, kw_only=True)
class Report:
    """A whole report. `facts` describe the machine and how far the rows can be trusted, under short names."""

    title: str
    facts: tuple[tuple[str, str], ...]
    answered: tuple[Answered, ...]
    open: tuple[Open, ...]
