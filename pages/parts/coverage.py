"""The card of the grid: which sizes, contexts, precisions and backends were measured, and how the others ended.

draw_coverage(frame)             # on Overview, every step
draw_grid(frame, cells)          # on any page, its own cells

What is missing is shown as missing, with the commands that would measure it.
"""

from collections.abc import Sequence
from typing import Any

import streamlit as st

from pages.charts.bytes import in_unit
from pages.charts.coverage import CoverageTile, coverage_grid
from pages.parts.card import Card, draw
from pages.parts.frame import Frame
from pages.parts.grid import Place, missing, places
from pages.parts.states import no_rows
from runner.commands import sweep_commands
from runner.schema import TABLES, SweepCell, table_of
from runner.store.queries.attention import Attended
from runner.store.queries.kernels import Trace
from runner.store.queries.memory import Peak
from runner.store.queries.overview import Coverage, coverage
from runner.store.queries.steps import Measured

Held = Measured | Attended | Peak | Trace
#: More commands than these are not read.
_MOST_COMMANDS = 4


def draw_coverage(frame: Frame) -> None:
    """The card, over what the filters leave."""
    rows = sorted(frame.ask(coverage, frame.selection), key=lambda row: _order(frame, row))
    if not rows:
        no_rows("No cell matches these filters.", "Clear some of them, or measure what is missing.")
        return
    failed = sum(sum(row.failures.values()) for row in rows)
    draw(
        frame,
        Card(
            key="coverage",
            title=f"Coverage, mode {frame.selection.mode}",
            note="The median step in ms, of the plain cell where others share its place; ✕ says how cells ended that "
            "have no result, · was not measured.",
            alt=f"Sizes, precisions and backends by context: {len(rows)} places measured or tried, {failed} failures.",
            rows=[_table_row(frame, row) for row in rows],
        ),
        lambda: coverage_grid([_tile(frame, row) for row in rows]),
    )
    gaps = missing(frame.measured())
    if gaps:
        opened = st.expander(f"{_never(gaps)}: the commands that would", key="_missing", on_change="rerun")
        if opened.open:
            with opened:
                _list_missing(gaps)


def _order(frame: Frame, row: Coverage) -> tuple[int, ...]:
    """Sizes from small to large, precisions and backends as the schema lists them."""
    choices = (TABLES["steps"].column(name).choices for name in ("precision", "backend"))
    places = (
        c.index(value) if value in c else len(c) for c, value in zip(choices, (row.precision, row.backend), strict=True)
    )
    return (list(frame.contents.shapes).index(row.shape), *places, row.context)


def _tile(frame: Frame, row: Coverage) -> CoverageTile:
    return CoverageTile(
        size=frame.sizes[row.shape],
        context=row.context,
        variant=f"{row.precision} · {row.backend}",
        ok=row.ok,
        failures=row.failures,
        median_ms=row.median_ms,
    )


def _table_row(frame: Frame, row: Coverage) -> dict[str, Any]:
    ended = ", ".join(f"{count} {status}" for status, count in row.failures.items())
    return {
        "Size": frame.sizes[row.shape],
        "Context (tokens)": row.context,
        "Precision": row.precision,
        "Backend": row.backend,
        "Measured": row.ok,
        "Without a result": ended,
        "Median step (ms)": row.median_ms,
    }


# ---------------------------------------------------------------------------------------------- the grid of any page


def draw_grid(frame: Frame, cells: Sequence[Held]) -> None:
    """One line that says how far the grid of these cells is covered, all of one table; it opens to the grid and to the
    commands that would measure what is missing."""
    cells = [cell for cell in cells if cell.cell is not None]
    if not cells:
        return
    gaps = missing(cells)
    ok = sum(cell.status == "ok" for cell in cells)
    failed = f", {len(cells) - ok} ended without a result" if ok < len(cells) else ""
    words = f"The grid of this page: **{ok} of {len(cells) + len(gaps)}** cells have a result{failed}"
    opened = st.expander(f"{words}, **{len(gaps) or 'none'} missing**", key="_grid", on_change="rerun")
    if not opened.open:
        return
    table = next(table_of(cell.cell).name for cell in cells if cell.cell)
    column = "seq_len" if table == "attention" else "context"
    found = places(cells)
    with opened:
        draw(
            frame,
            Card(
                key="grid",
                title="What was measured",
                note=f"{_SHOWN[table]} of every cell that worked; ✕ says how the others ended, · was not measured.",
                alt=words.replace("*", ""),
                rows=[_place_row(place) for place in found],
            ),
            lambda: coverage_grid(
                [_place_tile(place) for place in found], x=TABLES[table].column(column).title, state="grid"
            ),
        )
        _list_missing(gaps)


_SHOWN = {
    "steps": "The median step in ms",
    "attention": "The median of both passes in ms",
    "memory": "The peak",
    "profiles": "The median step in ms, without the profiler,",
}


def _shown(cell: Any) -> tuple[float | None, str]:
    """The time in ms that a place shows, or other words."""
    if isinstance(cell, Peak):
        return None, in_unit(cell.peak_allocated_bytes) if cell.peak_allocated_bytes else ""
    if isinstance(cell, Trace):
        return cell.unprofiled_step_ms, ""
    time = cell.times.get("forward_backward" if isinstance(cell, Attended) else "step")
    return (time.median_ms if time else None), ""


def _place_tile(place: Place) -> CoverageTile:
    ended = [cell.status for cell in place.cells if cell.status != "ok"]
    median_ms, value = _shown(place.cells[0])
    return CoverageTile(
        size=place.block,
        context=place.column,
        variant=place.row,
        ok=len(place.cells) - len(ended),
        failures={status: ended.count(status) for status in ended},
        median_ms=median_ms,
        value=value,
    )


def _place_row(place: Place) -> dict[str, Any]:
    median_ms, value = _shown(place.cells[0])
    shown = {"Median (ms)": median_ms} if not value else {"Peak": value}
    return {
        "": place.block,
        "Cell": place.row,
        "Length (tokens)": place.column,
        "Ended": place.cells[0].status,
        **shown,
    }


def _never(gaps: Sequence[SweepCell]) -> str:
    return f"{len(gaps)} {'cell' if len(gaps) == 1 else 'cells'} of this grid nobody measured"


def _list_missing(gaps: Sequence[SweepCell]) -> None:
    """The commands that measure what the grid lacks, those of most cells first; nothing where it lacks nothing."""
    if not gaps:
        return
    found = sweep_commands(gaps, fresh=False)
    first = f" The first {_MOST_COMMANDS} of {len(found)}:" if len(found) > _MOST_COMMANDS else ""
    st.caption(f"{_never(gaps)}. To measure {'it' if len(gaps) == 1 else 'them'}, and nothing else:{first}")
    st.code("\n\n".join(found[:_MOST_COMMANDS]), language="bash", wrap_lines=True)
