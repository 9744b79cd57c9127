"""The card of the grid: which cells were measured, how the others ended, and the commands for those without a row.

draw_coverage(frame)             # on Overview, every step
draw_grid(frame, cells)          # on any page, its own cells
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from pages.figures.coverage import CoverageTile, coverage_grid
from pages.ui.card import Card, draw
from pages.ui.frame import Frame
from pages.ui.grid import GridPlace, missing, places
from pages.ui.markdown import restrict
from pages.ui.states import no_rows
from runner.formats import format_bytes
from runner.plan.commands import sweep_commands
from runner.results import AttentionResult, KernelTrace, Peak, StepResult
from runner.schema import TABLES, Cell, table_of
from runner.store.queries.selection import Model

GridRow = StepResult | AttentionResult | Peak | KernelTrace
#: Nobody reads more commands than these.
_MAX_COMMANDS = 4


def draw_coverage(frame: Frame) -> None:
    """Draws the steps that the filters leave: a row for each way of running a size."""
    cells = sorted(frame.measured(), key=lambda cell: _sort_key(frame, cell))
    if not cells:
        no_rows("No cell matches these filters.", "Clear some of them, or measure what is missing.")
        return
    grid = places(cells)
    failed = sum(cell.status != "ok" for cell in cells)
    card = Card(
        key="coverage",
        folded=True,
        title=f"Coverage, mode {frame.selection.mode}",
        note="The median step in ms. A row is one way of running a size: compare two numbers of a column. "
        f"✕ says how a cell without a result ended; · was not measured {frame.where}.",
        alt=f"Sizes and ways of running them by context: {len(grid)} places measured or tried, {failed} failures.",
        rows=[_make_row(place) for place in grid],
    )
    draw(frame, card, lambda: coverage_grid([_make_tile(place) for place in grid]))
    gaps = missing(cells)
    if gaps:
        words = restrict(f"{_count_missing(frame, gaps)}: the commands that measure them")
        opened = st.expander(restrict(words), key="_missing", on_change="rerun")
        if opened.open:
            with opened:
                _list_missing(frame, gaps)


def _sort_key(frame: Frame, row: StepResult) -> tuple[Any, ...]:
    """Returns a sort key: sizes from small to large, then precision and backend in the schema's order, plain cells
    first. A size that a sweep has added since the page began comes last."""
    steps, cell = TABLES["steps"], row.cell
    order: list[Sequence[object]] = [
        list(frame.contents.shapes),
        *(steps.column(name).choices for name in ("precision", "backend")),
    ]
    values = (Model.of(cell), cell.precision, cell.backend)
    places = [known.index(value) if value in known else len(known) for known, value in zip(order, values, strict=True)]
    own = frame.size_of(cell)
    return *places, own != frame.sizes[Model.of(cell)], own, cell.context


# ---------------------------------------------------------------------------------------------- the grid of any page


def draw_grid(frame: Frame, cells: Sequence[GridRow]) -> None:
    """Draws one line that says how many of these cells, all of one table, have a result. It opens to the grid and to
    the commands that would measure the missing ones."""
    cells = [cell for cell in cells if cell.cell is not None]
    if not cells:
        return
    gaps = missing(cells)
    ok = sum(cell.status == "ok" for cell in cells)
    failed = f", {len(cells) - ok} ended without a result" if ok < len(cells) else ""
    words = f"The grid of this page: **{ok} of {len(cells) + len(gaps)}** cells have a result{failed}"
    opened = st.expander(restrict(f"{words}, **{len(gaps) or 'none'} missing**"), key="_grid", on_change="rerun")
    if not opened.open:
        return
    table = next(table_of(cell.cell).name for cell in cells if cell.cell)
    column = "seq_len" if table == "attention" else "context"
    grid = places(cells)
    with opened:
        card = Card(
            key="grid",
            title="What was measured",
            note=f"{_VALUES[table][0]} of every cell that worked; ✕ says how the others ended; · has no row "
            f"{frame.where}.",
            alt=words,
            rows=[_make_row(place) for place in grid],
        )
        draw(
            frame,
            card,
            lambda: coverage_grid(
                [_make_tile(place) for place in grid], x=TABLES[table].column(column).title, state="grid"
            ),
        )
        _list_missing(frame, gaps)


def _time_of(cell: StepResult | AttentionResult) -> float | None:
    time = cell.times.get(table_of(cell.cell).whole)
    return time.median_ms if time else None


#: By table, what a place shows, and the number: bytes for memory, else ms.
_VALUES: Mapping[str, tuple[str, Callable[[Any], float | None]]] = {
    "steps": ("The median step in ms", _time_of),
    "attention": ("The median of both passes in ms", _time_of),
    "memory": ("The peak", lambda cell: cell.peak_allocated_bytes),
    "profiles": ("The median step in ms, without the profiler,", lambda cell: cell.unprofiled_step_ms),
}


def _read_value(cell: Any) -> tuple[float | None, str]:
    """Returns the time in ms that a place shows, or the peak in words."""
    table = table_of(cell.cell).name
    value = _VALUES[table][1](cell)
    return (value, "") if table != "memory" else (None, format_bytes(value) if value else "")


def _make_tile(place: GridPlace) -> CoverageTile:
    ended = [cell.status for cell in place.cells if cell.status != "ok"]
    median_ms, value = _read_value(place.cells[0])
    return CoverageTile(
        size=place.block,
        context=place.column,
        variant=place.row,
        ok=len(place.cells) - len(ended),
        failures={status: ended.count(status) for status in ended},
        median_ms=median_ms,
        value=value,
    )


def _make_row(place: GridPlace) -> dict[str, Any]:
    median_ms, value = _read_value(place.cells[0])
    shown = {"Median (ms)": median_ms} if not value else {"Peak": value}
    return {
        "": place.block,
        "Cell": place.row,
        "Length (tokens)": place.column,
        "Ended": place.cells[0].status,
        **shown,
    }


def _count_missing(frame: Frame, gaps: Sequence[Cell]) -> str:
    return (
        f"{len(gaps)} {'cell of this grid has' if len(gaps) == 1 else 'cells of this grid have'} no row {frame.where}"
    )


def _list_missing(frame: Frame, gaps: Sequence[Cell]) -> None:
    """Lists the commands that measure what the grid lacks, those of most cells first."""
    if not gaps:
        return
    commands = sweep_commands(gaps, fresh=False)
    first = f" The first {_MAX_COMMANDS} of {len(commands)}:" if len(commands) > _MAX_COMMANDS else ""
    words = f"{_count_missing(frame, gaps)}. To measure {'it' if len(gaps) == 1 else 'them'}, and nothing else:{first}"
    st.caption(restrict(words))
    st.code("\n\n".join(commands[:_MAX_COMMANDS]), language="bash", wrap_lines=True)
