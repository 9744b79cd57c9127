"""What a question is answered with: a sentence, and views that are at once a table and its picture.

Numbers are raw (ms, bytes, ratios) with their unit in the field; words are made by `render`. A renderer draws from
`View.rows` alone, so that a picture, its table and its download cannot differ.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, Literal
from uuid import UUID

from runner.analysis.audit.time_rules import TIME_CODES
from runner.results.findings import Severity
from runner.schema import TABLES, Cell

#: A raw value: float, int, str, bool or None. Its field says which, with the unit.
Value = Any
#: What the reader chose, by the name of a choice: `{"clock": "loop"}`. The same names are flags and URL parameters.
Asked = Mapping[str, str]
Kind = Literal["dots", "lines", "bars", "waterfall", "matrix", "strip", "table"]
#: What a column is for. `status` says how a row without a value ended; `note` is neither drawn nor a key.
Role = Literal["key", "value", "low", "high", "status", "note"]

_BOLD = re.compile(r"(?<!\\)\*\*")


@dataclass(frozen=True)
class Field:
    """One column of a view. Its numbers are written with so many significant digits. One that is long is in files and
    in the panel of a row, and in a printed table only where the view names it."""

    name: str
    label: str
    _: KW_ONLY
    unit: str = ""
    role: Role = "key"
    doc: str = ""
    digits: int = 3
    is_long: bool = False

    @classmethod
    def of(cls, table: str, name: str, role: Role = "key", *, label: str = "") -> "Field":
        """Returns a column of the schema, with its label, unit and meaning."""
        known = TABLES[table].column(name)
        return cls(name=name, label=label or known.label, unit=known.unit, role=role, doc=known.doc)

    @property
    def title(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit and not self.label.endswith(self.unit) else self.label


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a view: a value for each field, and the measured cells it rests on (two for a ratio). `wanted` are
    the cells that would give it where nothing has: its place is drawn hollow, and its panel has the command."""

    values: tuple[Value, ...]
    cells: tuple[UUID, ...] = ()
    wanted: tuple[Cell, ...] = ()

    @classmethod
    def of(cls, results: Any, *values: Value) -> "Row":
        """Returns the line of these values, which rests on one result or on several."""
        found = results if isinstance(results, tuple) else (results,)
        return cls(values=values, cells=tuple(one.cell_id for one in found))


@dataclass(frozen=True, kw_only=True)
class Power:
    """A fitted power law: value = factor × x^exponent, by least squares on log-log over `points` points from `start` to
    `end`. `low` and `high` are the exponent's 95% interval, None for two points."""

    exponent: float
    factor: float
    start: float
    end: float
    points: int
    low: float | None = None
    high: float | None = None

    def at(self, x: float) -> float:
        return float(self.factor * x**self.exponent)


@dataclass(frozen=True, kw_only=True)
class Guide:
    """A line beside the data: at one value, or a fitted power law in the color of a series."""

    words: str
    at: float | None = None
    power: Power | None = None
    series: str = ""
    is_limit: bool = False


@dataclass(frozen=True)
class Draw:
    """How a view is drawn, by the names of its fields. `value` is the colored number of a matrix, the length of dots
    and bars, and the height of lines and strips. `across` are columns of a matrix or the x-axis of lines and strips;
    `down` are the rows of a matrix, of dots or bars, the first its groups. `total` is the series whose number stands
    at the end of a stack instead of in it. In a waterfall a bar reaches from the row before to its own value. The
    value is written beside its mark, then the fields `beside`; `caption` is written quietly after the name of a row,
    which then stands above its bar. Marks are faint where the interval holds the `center`, hollow where the field
    `hollow` is true."""

    kind: Kind
    value: str
    _: KW_ONLY
    down: tuple[str, ...] = ()
    across: str = ""
    series: str = ""
    log: Literal["", "x", "y", "xy"] = ""
    center: float | None = None
    hollow: str = ""
    total: str = ""
    beside: tuple[str, ...] = ()
    caption: str = ""
    guides: tuple[Guide, ...] = ()


@dataclass(frozen=True, kw_only=True)
class View:
    """A table and how it is drawn. `about` is what all of its rows share: the machine, the precision, the mode.
    `columns` are those that its printed table has where they say anything, all rows included; without any, what there
    is room for."""

    name: str
    title: str
    about: str
    fields: tuple[Field, ...]
    rows: tuple[Row, ...]
    draw: Draw
    note: str = ""
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        draw = self.draw
        named = {*self.places, draw.value, draw.hollow, draw.caption, *draw.beside, *self.columns}
        unknown = named - {*self.names, ""}
        assert not unknown, f"{self.name} draws {unknown}, which it has not"
        assert all(len(row.values) == len(self.fields) for row in self.rows), self.name
        places = [tuple(self.get(row, name) for name in self.places) for row in self.rows]
        assert self.draw.kind == "strip" or len({*places}) == len(places), f"{self.name}: two rows in one place"

    @cached_property
    def at(self) -> Mapping[str, int]:
        """The place of each field in a row's values."""
        return {item.name: place for place, item in enumerate(self.fields)}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.fields)

    @property
    def places(self) -> tuple[str, ...]:
        """The fields that say where a row stands."""
        return tuple(dict.fromkeys(name for name in (*self.draw.down, self.draw.across, self.draw.series) if name))

    def field(self, name: str) -> Field:
        return self.fields[self.at[name]]

    def column(self, name: str) -> list[Value]:
        place = self.at[name]
        return [row.values[place] for row in self.rows]

    def get(self, row: Row, name: str) -> Value:
        """Returns a row's value; None for no name."""
        return row.values[self.at[name]] if name else None

    def of_role(self, role: Role) -> str:
        """Returns the name of the first field of a role; empty where there is none."""
        return next((item.name for item in self.fields if item.role == role), "")

    def interval(self, row: Row) -> tuple[Value, Value]:
        """Returns both ends of the interval of a row's value; None where it has none."""
        return self.get(row, self.of_role("low")), self.get(row, self.of_role("high"))

    def ended(self, row: Row) -> str:
        """Returns how a row without a value ended: `out of memory`; empty for a row with a value."""
        value, status = (self.get(row, name) for name in (self.draw.value, self.of_role("status")))
        return "" if value is not None else str(status or "not measured")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Something that the reader may choose, with what was chosen: a control on a page, a flag of `show`. `prefix` goes
    before an option where no label is shown: `context 512`. `takes` says what may be asked for where `options` are only
    the usual ones."""

    name: str
    label: str
    options: tuple[str, ...]
    chosen: str
    prefix: str = ""
    takes: str = ""


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """A finding of the audit that puts rows in doubt: a footnote of every row that rests on one of `cells`; bytes only
    where it is not of times alone. `words` are what was found of the first of them."""

    code: str
    severity: Severity
    words: str
    remedy: str
    cells: frozenset[UUID]

    def find_cells(self, view: View, row: Row) -> frozenset[UUID]:
        """Returns the cells by which the number of a row is in doubt."""
        is_bytes = view.field(view.draw.value).unit == "bytes"
        return frozenset() if is_bytes and self.code in TIME_CODES else self.cells.intersection(row.cells)


def verbatim(text: str) -> str:
    """Returns text from a file or a reader for a sentence, where its stars mark nothing."""
    return text.replace("*", r"\*")


def split_bold(sentence: str) -> list[str]:
    """Returns the parts of a sentence as they are read; every second one is bold."""
    return [part.replace(r"\*", "*") for part in _BOLD.split(sentence)]


@dataclass(frozen=True, kw_only=True)
class Missing:
    """What a whole answer lacks, and the cells that would give it."""

    words: str
    cells: tuple[Cell, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer from the rows. The sentence has at most 30 words and the number that answers the question; `more` are
    the sentences that follow it where there is room. `**` marks what is bold; there is no other markup, and text of
    somebody else goes through `verbatim`. `cells` are the cells of all rows by id, for the commands that measure them
    again. `ask` sets `question`, and `doubts` where the rows have been audited."""

    question: str = ""
    sentence: str = ""
    more: str = ""
    views: tuple[View, ...] = ()
    choices: tuple[Choice, ...] = ()
    cells: Mapping[UUID, Cell] = field(default_factory=dict)
    missing: tuple[Missing, ...] = ()
    doubts: tuple[Doubt, ...] = ()

    @property
    def tables(self) -> tuple[View, ...]:
        """The views without those that draw the numbers of an earlier one once more, with no column that it has not: as
        tables they say the same."""
        shown, earlier = [], list[tuple[str, set[str], set[Any]]]()
        for view in self.views:
            value, names = view.draw.value, {*view.names}
            numbers = {(row.cells, view.get(row, value)) for row in view.rows}
            if not any(value == drawn and names <= others and numbers <= known for drawn, others, known in earlier):
                shown.append(view)
            earlier.append((value, names, numbers))
        return tuple(shown)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What answers a question from the rows that it needs. Its name (address, flag) is that of the file of `answer`,
    its words are the first line of that file's docstring. `course` are the ids of the handout's questions that it
    answers: P3, A2. `of_file` is one over all machines and runs, not over those that the reader chose; `of_two_columns`
    has its first view beside the others where there is room."""

    answer: Callable[..., Answer]
    needs: tuple[str, ...]
    course: tuple[str, ...] = ()
    of_file: bool = False
    of_two_columns: bool = False

    @property
    def name(self) -> str:
        return self.answer.__module__.rpartition(".")[2]

    @property
    def words(self) -> str:
        return (sys.modules[self.answer.__module__].__doc__ or "").partition("\n")[0]


def choose(
    asked: Asked, name: str, label: str, options: Sequence[str], *, default: str = "", prefix: str = ""
) -> Choice:
    """Returns the choice, of what is asked for if the rows have it, else of the default, else the first. A size is
    found by its older names, too: an own model without its folder, a shape without its d_ff."""
    wanted = asked.get(name, "")
    older = [one for one in options if wanted and (one.endswith(f"/{wanted}") or one.startswith(f"{wanted} ("))]
    chosen = next((one for one in (wanted, *older, default, *options) if one in options), "")
    return Choice(name=name, label=label, options=tuple(options), chosen=chosen, prefix=prefix)
