"""The answer of Explore: the range of the number, its growth, failed cells, and places with several cells.

print(answer(frame, asked, measure))
"""

import math
from collections.abc import Sequence

from pages.explore.axes import MACHINE, SIZE, Value, is_numeric, label_of, value_of, varying
from pages.explore.choose import Plotted
from pages.explore.magnitude import SHARE, format_in_unit
from pages.figures.frame import WORDS, format_exponent
from pages.ui.answers import slope
from pages.ui.frame import Frame
from pages.ui.markdown import literal
from runner.analysis.compare.pairs import describe_unusual_effort
from runner.formats import format_number
from runner.results import ExploredCell
from runner.schema.axes import MODEL
from runner.store.queries.explore import Measure

#: Axes whose values need no label.
_BARE = (SIZE, MACHINE, "implementation", "mode", "precision", "backend")
#: The fewest places of a line that shows growth.
_MIN_PLACES = 3


def name_of(measure: Measure) -> str:
    """Returns the name of the number in sentences and on axes."""
    return f"Median time, {WORDS[measure.phase]}" if measure.phase else measure.title


def unit_of(measure: Measure) -> str:
    """Returns the unit of the number, which is SHARE for a share."""
    return SHARE if measure.name == "mfu" or measure.name.endswith("_share") else measure.unit


def answer(frame: Frame, asked: Plotted, measure: Measure) -> str:
    """Returns the sentences about the drawn rows."""
    done = [row for row in asked.rows if row.value is not None]
    failed = sum(row.status != "ok" for row in asked.rows)
    unknown = len(asked.rows) - len(done) - failed
    parts = [_describe_range(frame, asked, done, measure), _describe_growth(frame, asked, done)]
    if failed:
        parts.append(f"{failed} of {len(asked.rows)} cells ended without a result, drawn as crosses.")
    if unknown:
        parts.append(f"{unknown} {'cell worked but has' if unknown == 1 else 'cells worked but have'} no such number.")
    parts.append(_describe_piles(frame, asked))
    others = {row.machine for row in asked.rows} - {frame.selection.machine}
    if others:
        parts.append(f"Dashed, with marks of another shape: rows of {', '.join(map(literal, sorted(others)))}.")
    return " ".join(part for part in parts if part)


def _describe_range(frame: Frame, asked: Plotted, done: Sequence[ExploredCell], measure: Measure) -> str:
    name, unit = name_of(measure), unit_of(measure)
    if not done:
        return f"None of these cells has a number for **{name}**."
    least, most = (pick(done, key=lambda row: row.value or 0.0) for pick in (min, max))
    if len(done) == 1:
        return f"**{name}** is **{format_in_unit(most.value or 0.0, unit)}** in the one cell here that has it."
    if least.value == most.value:
        return f"**{name}** is {format_in_unit(most.value or 0.0, unit)} in all {len(done)} cells here."
    ratio = f", {_format_times((most.value or 0) / least.value)} as much" if least.value and least.value > 0 else ""
    # The sentence names everything in which the two cells differ.
    differ = [name for name in varying(frame, asked.choice.table, [least, most]) if name not in MODEL]
    return (
        f"**{name}** goes from **{format_in_unit(least.value or 0.0, unit)}** "
        f"({place_of(frame, asked, least, also=differ)}) to **{format_in_unit(most.value or 0.0, unit)}** "
        f"({place_of(frame, asked, most, also=differ)}){ratio}."
    )


def _format_times(ratio: float) -> str:
    return f"{ratio:,.0f}×" if ratio >= 100 else f"{format_number(ratio)}×"


def place_of(frame: Frame, asked: Plotted, row: ExploredCell, *, also: Sequence[str] = ()) -> str:
    """Returns a row's values on the axes of the chart and on the axes `also`."""
    parts = []
    for name in dict.fromkeys((*asked.choice.axes, *also)):
        value = value_of(frame, row, name)
        label = label_of(asked.choice.table, name).lower()
        plain = name in _BARE or name not in also
        words = f"{value:,}" if isinstance(value, int | float) else literal(str(value))
        parts.append(f"{label} {words}" if isinstance(value, int | float) or not plain else words)
    machine = literal(row.machine)
    if row.machine != frame.selection.machine and machine not in parts:
        parts.append(machine)
    return ", ".join(part for part in (*parts, describe_unusual_effort(row.cell)) if part)


def _describe_growth(frame: Frame, asked: Plotted, done: Sequence[ExploredCell]) -> str:
    """Returns the power of x with which the lines grow, by least squares on log-log. Short lines and lines with several
    cells at one place do not count."""
    lines: dict[tuple[Value, ...], list[tuple[float, float]]] = {}
    for row in done:
        x, *line = (value_of(frame, row, name) for name in asked.choice.axes)
        if not isinstance(x, int | float) or x <= 0 or not row.value or row.value <= 0:
            return ""
        lines.setdefault((row.machine, *line), []).append((math.log(x), math.log(row.value)))
    whole = {key: points for key, points in lines.items() if len({x for x, _ in points}) == len(points) >= _MIN_PLACES}
    if not whole:
        return ""
    powers = sorted(slope(points) for points in whole.values())
    label = label_of(asked.choice.table, asked.choice.x).lower()
    label = f"({label})" if " " in label else label
    ends = [f"{label}{format_exponent(f'{power:.2f}')}" for power in (powers[0], powers[-1])]
    if abs(powers[0] - powers[-1]) < 0.05:
        return f"It goes as {ends[0]}."
    return f"It goes as {ends[0]} to {ends[1]}, depending on the line."


def _describe_piles(frame: Frame, asked: Plotted) -> str:
    """Returns the number of places of a line with several cells, and in what those cells differ."""
    table, places = asked.choice.table, dict[tuple[Value, ...], list[ExploredCell]]()
    for row in asked.rows:
        key = (row.machine, *(value_of(frame, row, name) for name in asked.choice.axes))
        places.setdefault(key, []).append(row)
    piled = [rows for rows in places.values() if len(rows) > 1]
    if not piled:
        return ""
    differ = dict.fromkeys(label_of(table, name).lower() for rows in piled for name in varying(frame, table, rows))
    return (
        f"{len(piled)} of {len(places)} places hold several cells, which differ in {', '.join(differ)}: "
        "each is drawn, none is averaged."
    )


def is_line(frame: Frame, asked: Plotted) -> bool:
    """Returns whether x is a number in every row."""
    return is_numeric([value_of(frame, row, asked.choice.x) for row in asked.rows])
