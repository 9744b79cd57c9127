"""A view as a grid of words: what the terminal, Markdown, HTML and LaTeX all print, each in its own form.

Where the rows form a product of keys and one more axis (the columns of a matrix, the series of lines and bars), that
axis becomes columns, a cell holds the number with its interval, and the caption has the unit once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.answers.answer import Doubt, Row, Value, View
from runner.formats import format_count, format_measured, format_number, format_share, unit_for
from runner.schema.sizes import WORDS

NONE = "–"
#: Columns of a pivoted grid beside its keys.
MOST = 9
#: The marks of footnotes, one a doubt.
MARKS = "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖ"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A number in words with its interval and the marks of its doubts, or how it ended (`lost`)."""

    words: str
    interval: str = ""
    lost: bool = False
    marks: str = ""


@dataclass(frozen=True, kw_only=True)
class TextGrid:
    """A table of words. The first `keys` columns are keys; `left` are the columns of words, the others are aligned
    right. Of a table that is printed whole (`is_whole`), a last column without heading comments on some lines."""

    caption: str
    headings: tuple[str, ...]
    lines: tuple[tuple[Entry, ...], ...]
    keys: int
    left: frozenset[int]
    note: str = ""
    is_whole: bool = False


@dataclass(frozen=True)
class Scale:
    """The unit in which all numbers of a column are written: bytes as GiB."""

    factor: float
    unit: str
    digits: int = 3

    def write(self, value: Value) -> str:
        if value is None:
            return NONE
        if self.unit == "%":
            return format_share(value).removesuffix("%")
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, str):
            return WORDS.get(value, value)
        is_whole = isinstance(value, int) and self.factor == 1
        return f"{value:,}" if is_whole else format_number(value / self.factor, digits=self.digits)

    def with_unit(self, value: Value) -> str:
        return self.add_unit(self.write(value))

    def add_unit(self, words: str) -> str:
        unit = "%" if self.unit == "percent" else self.unit  # numbers that are no shares, but times 100
        return f"{words}{'' if unit in ('', '×', '%') else ' '}{unit}"


def scale_of(view: View, name: str) -> Scale:
    """Returns the unit of a column, worked out once a view."""
    known: dict[str, Scale] = view.__dict__.setdefault("_scales", {})
    if name not in known:
        item = view.field(name)
        sizes = [value for value in view.column(name) if isinstance(value, int | float)] if item.unit == "bytes" else []
        known[name] = Scale(*unit_for(sizes)) if item.unit == "bytes" else Scale(1, item.unit, item.digits)
    return known[name]


def write_measured(view: View, row: Row, scale: Scale) -> tuple[str, str]:
    """Returns a row's value and its interval, empty where it has none: `1.25` and `1.22–1.27`."""
    value, (low, high) = view.get(row, view.draw.value), view.interval(row)
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return scale.write(value), ""
    if isinstance(low, int) and isinstance(high, int) and scale.factor == 1:
        return scale.write(value), f"{low:,}–{high:,}"
    factor = 0.01 if scale.unit == "%" else scale.factor
    words, interval = format_measured(value / factor, low / factor, high / factor)
    return words if scale.digits == 3 and scale.unit != "%" else scale.write(value), interval


def list_footnotes(views: Sequence[View], doubts: Sequence[Doubt], explained: set[str] | None = None) -> list[str]:
    """Returns the footnotes of an answer, one a doubt about rows of these views, each with its mark. A kind of doubt
    has its example once in a document, whose `explained` kinds are added to."""
    shown = [(view, row) for view in views for row in view.rows if not view.ended(row)]
    notes = []
    for mark, doubt in zip(MARKS, doubts, strict=False):
        if cells := {cell for view, row in shown for cell in doubt.find_cells(view, row)}:
            about = f"{doubt.code.replace('_', ' ')} ({doubt.severity}, {format_count(len(cells), 'cell')})"
            is_new = explained is None or doubt.code not in explained
            notes.append(f"{mark} {about}.{f' For one: {doubt.words}' if is_new else ''}")
            if explained is not None:
                explained.add(doubt.code)
    return notes


def make_grid(view: View, doubts: Sequence[Doubt] = (), *, most: int = MOST, turned: bool = False) -> TextGrid:
    """Returns the pivoted grid, or the plain one where the axis has too many values. `turned` swaps the sides of a
    matrix. Rows in doubt are marked."""
    axis = view.draw.across if view.draw.kind == "matrix" else view.draw.series
    axis = view.draw.down[-1] if turned and view.draw.kind == "matrix" else axis
    keys = [name for name in view.places if name != axis]
    scale = scale_of(view, view.draw.value)
    caption = f"{view.title}{f' ({scale.unit})' if scale.unit else ''}. {view.about}"
    columns = list(dict.fromkeys(value for value in view.column(axis) if value is not None)) if axis else []
    columns = sorted(columns) if columns and all(isinstance(value, int) for value in columns) else columns
    columns.sort(key=lambda value: value == view.draw.total)
    if view.columns or not axis or len(columns) > most or len(columns) < 2:
        return _make_listed(view, doubts, scale, caption)
    by_line: dict[tuple[Value, ...], dict[Value, Row]] = {}
    for row in view.rows:  # one without a value of the axis stands in the first column
        by_line.setdefault(tuple(view.get(row, name) for name in keys), {})[view.get(row, axis)] = row
    lines = []
    for key, found in by_line.items():
        rows = [found.get(column, found.get(None) if column == columns[0] else None) for column in columns]
        entries = (_write(view, row, doubts, scale) if row else Entry(words="") for row in rows)
        lines.append((*_write_keys(view, keys, key), *entries))
    unit = view.field(axis)
    words = [scale_of(view, axis).write(value) for value in columns]
    heading = [view.field(name).title for name in keys]
    is_named = view.draw.kind == "matrix" or not any(isinstance(value, str) for value in columns)
    across = f", by {unit.title.replace(unit.label, unit.label.lower())}" if is_named else ""
    return TextGrid(
        caption=caption.replace(". ", f"{across}. ", 1),
        headings=(*heading, *words),
        lines=tuple(lines),
        keys=len(keys),
        left=_list_words(view, keys),
        note=view.note,
    )


def _list_words(view: View, names: Sequence[str]) -> frozenset[int]:
    """Returns the places of the columns that hold words, and of keys."""
    return frozenset(
        place
        for place, name in enumerate(names)
        if name in view.places or all(isinstance(value, str | bool | None) for value in view.column(name))
    )


def _make_listed(view: View, doubts: Sequence[Doubt], scale: Scale, caption: str) -> TextGrid:
    """Returns one line a row: where it stands, and the columns that the view names, of which the long one, last, says
    why a row has no value. Where it names none: the number with its interval or how it ended, and the notes that
    differ; a place of a matrix that was not measured is no line there."""
    keys, value, is_whole = view.places, view.draw.value, bool(view.columns)
    notes = [item.name for item in view.fields if item.role == "note" and item.name not in keys and not item.is_long]
    named = view.columns or (value, *(name for name in notes if len({*view.column(name)}) > 1))
    long = [name for name in view.columns if view.field(name).is_long]
    names = [name for name in named if name not in long]

    def write(row: Row, name: str) -> Entry:
        is_lost = is_whole and view.ended(row)
        if name == value and not is_lost:
            return _write(view, row, doubts, scale)
        is_empty = is_lost and view.field(name).role in ("value", "status")
        return Entry(words=NONE if is_empty else scale_of(view, name).write(view.get(row, name)))

    if is_whole:
        names = [name for name in names if any(write(row, name).words not in (NONE, "") for row in view.rows)]
    rows = [row for row in view.rows if is_whole or not row.wanted or view.get(row, value) is not None]
    lines = [
        (*_write_keys(view, keys, tuple(view.get(row, name) for name in keys)), *(write(row, name) for name in names))
        for row in rows
    ]
    units = {name: "" if name == value else scale_of(view, name).unit for name in names}
    headings = [view.field(name).title for name in keys]
    headings += [f"{view.field(name).label}{f' ({unit})' if unit else ''}" for name, unit in units.items()]
    left = _list_words(view, (*keys, *names)) | {len(headings)}
    comments = [next((text for name in long if (text := view.get(row, name))), view.ended(row)) for row in rows]
    if is_whole and any(comments):
        headings.append("")
        lines = [(*line, Entry(words=words)) for line, words in zip(lines, comments, strict=True)]
    return TextGrid(
        caption=caption,
        headings=tuple(headings),
        lines=tuple(lines),
        keys=len(keys),
        left=left,
        note=view.note,
        is_whole=is_whole,
    )


def _write_keys(view: View, names: Sequence[str], values: Sequence[Value]) -> list[Entry]:
    return [Entry(words=scale_of(view, name).write(value)) for name, value in zip(names, values, strict=True)]


def _write(view: View, row: Row, doubts: Sequence[Doubt], scale: Scale) -> Entry:
    if row.wanted and view.get(row, view.draw.value) is None:
        return Entry(words=NONE)
    if why := view.ended(row):
        return Entry(words=why, lost=True)
    marks = "".join(mark for mark, doubt in zip(MARKS, doubts, strict=False) if doubt.find_cells(view, row))
    words, interval = write_measured(view, row, scale)
    return Entry(words=words, interval=interval, marks=marks)
