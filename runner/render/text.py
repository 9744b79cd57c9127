"""An answer for the terminal, in 80 columns: `print_answer(console, answer)`."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from runner.answers.answer import Answer, Doubt, View, split_bold
from runner.plan.commands import sweep_commands
from runner.render.grid import Entry, TextGrid, list_footnotes, make_grid

#: Where an interval stands: after its number or in a line of its own.
Where = Literal["beside", "below"]
#: A longer table is cut, and says so.
MAX_LINES = 60
#: The letters that a name needs beside the numbers of its line.
LEAST_NAME = 20


def print_answer(console: Console, answer: Answer, *, command: bool = True, ending: str = "") -> None:
    """Prints it, with the commands that measure its rows again unless without `command`; `ending` ends each of them."""
    if answer.sentence:
        parts = split_bold(f"{answer.sentence} {answer.more}".strip())
        console.print(Text.assemble(*((part, "bold" if place % 2 else "") for place, part in enumerate(parts))))
        console.print("")
    for view in answer.tables:
        for part in _make_view(console, view, answer.doubts):
            console.print(part)
        console.print("")
    for note in list_footnotes(answer.views, answer.doubts):
        console.print(Text(note, "dim"))
    for missing in answer.missing:
        console.print(Text(f"Missing: {missing.words}.", "yellow"))
        for line in sweep_commands(missing.cells, fresh=False) if command else ():
            console.print(Text(f"$ {line}{ending}", "dim"), soft_wrap=True)
    if not answer.views and not any(missing.cells for missing in answer.missing) and command:
        more = f"A sweep measures more, and goes on where it stopped: python -m runner sweep{ending}"
        console.print(Text(more, "dim"))
    chosen = [f"--{one.name} {'|'.join(one.options)}" for one in answer.choices if len(one.options) > 1]
    if chosen:
        console.print(Text("Choose: " + "  ".join(chosen), "dim"))
    for line in sweep_commands(answer.cells.values()) if command else ():
        console.print(Text(f"$ {line}{ending}", "dim"), soft_wrap=True)


def _make_view(console: Console, view: View, doubts: Sequence[Doubt]) -> list[Text | Table | Group]:
    """Returns the caption and the richest form of the table that fits: pivoted with intervals beside or below the
    numbers, else a line a row with as many notes as there is room for, the first ones first."""
    pivoted, plain = make_grid(view, doubts), make_grid(view, doubts, most=0)
    if pivoted.is_whole:
        return [Text(pivoted.caption, "bold"), *_write_whole(pivoted, console.width), Text(view.note, "dim")]
    turned = make_grid(view, doubts, turned=True)
    tries: list[tuple[TextGrid, Where, int]] = [(pivoted, "beside", 0), (pivoted, "below", 0), (turned, "below", 0)]
    notes = len(plain.headings) - plain.keys - 1
    tries += [(plain, "beside", left_out) for left_out in range(notes + 1)]
    made = next(
        (table for grid, where, left_out in tries if _fits(console, table := _make_table(grid, where, left_out))),
        _make_table(plain, "below", max(notes, 0)),
    )
    return [Text(pivoted.caption, "bold"), made, *([Text(view.note, "dim")] if view.note else [])]


def _write_whole(grid: TextGrid, width: int) -> list[Text]:
    """Returns every line with every column. The name of a row is folded where the others leave it little room, or has a
    line of its own where they leave it none, and what there is to say of a line stands below it."""
    said = len(grid.headings) - ("" in grid.headings)
    words = [[*grid.headings[:said]], *([_join(cell) for cell in line[:said]] for line in grid.lines)]
    sizes = [max(map(cell_len, column)) for column in zip(*words, strict=True)]
    room = width - sum(sizes[1:]) - len(sizes) + 1
    is_above = room < min(sizes[0], LEAST_NAME)
    sizes[0] = min(sizes[0], max(len(words[0][0]), 2) if is_above else room)
    made = []
    for number, (name, *others) in enumerate(words):
        made += [Text(one) for one in wrap(name, width)] if is_above and number else []
        first, *more = [""] if is_above and number else wrap(name, sizes[0]) or [""]
        columns = [
            f"{one}{' ' * (size - cell_len(one))}" if place in grid.left else f"{' ' * (size - cell_len(one))}{one}"
            for place, (one, size) in enumerate(zip((first, *others), sizes, strict=True))
        ]
        made.append(Text(" ".join(columns).rstrip(), "" if number else "dim"))
        made += [Text(f"  {one}") for one in more]
        if number and said < len(grid.headings):
            made += [Text(f"  {one}", "dim") for one in wrap(grid.lines[number - 1][said].words, width - 2)]
    return made


def _join(cell: Entry) -> str:
    number = f"{cell.words}{cell.marks}"
    return f"{number} {cell.interval}" if cell.interval else number


def _fits(console: Console, table: Table) -> bool:
    return Measurement.get(console, console.options.update(width=10_000), table).maximum <= console.width


def _make_table(grid: TextGrid, where: Where, left_out: int) -> Table:
    """Returns the table with intervals below or beside the numbers, without its last columns. The unit of a heading
    that is wider than its column stands below it, and keys that are those of the line above are left out."""
    table = Table(box=None, pad_edge=False, padding=(0, 1 if where == "beside" else 2, 0, 0), header_style="dim")
    keep = range(len(grid.headings) - left_out)
    widest = [max((len(line[place].words) for line in grid.lines), default=0) for place in keep]
    headings = [grid.headings[place] for place in keep]
    parts = [
        [name, f"({unit}"] if unit and len(heading) > width else ["", heading]
        for heading, width in zip(headings, widest, strict=True)
        for name, _, unit in [heading.partition(" (")]
    ]
    is_split = any(first for first, _ in parts)
    for place, lines in zip(keep, parts, strict=True):
        justify: Literal["left", "right"] = "left" if place in grid.left else "right"
        table.add_column(Group(*map(Text, lines if is_split else lines[1:])), justify=justify)
    above: tuple[str, ...] = ()
    for line in grid.lines[:MAX_LINES]:
        keys = tuple(cell.words for cell in line[: grid.keys])
        same = next((place for place in range(grid.keys - 1) if keys[: place + 1] != above[: place + 1]), grid.keys - 1)
        table.add_row(*("" if place < same else _make_cell(line[place], below=where == "below") for place in keep))
        above = keys
    if len(grid.lines) > MAX_LINES:
        table.caption = f"The first {MAX_LINES} of {len(grid.lines):,} lines."
    return table


def _make_cell(cell: Entry, *, below: bool) -> Text | Group:
    """Returns the words of a cell; `below` puts its interval, or each reason of a failure, on a line of its own."""
    if cell.lost:
        words = cell.words.replace("out of memory", "OOM").replace(": ", ", ")
        return Group(*(Text(part, "red") for part in words.split(", "))) if below else Text(words, "red")
    number = Text(f"{cell.words}{cell.marks}")
    if not cell.interval:
        return number
    interval = Text(cell.interval, "dim")
    return Group(number, interval) if below else Text.assemble(number, " ", interval)
