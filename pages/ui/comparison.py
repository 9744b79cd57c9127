"""Cards that compare two ways of running the same cells: precisions or backends.

compared = comparison(frame, "precision", baseline="fp32", variant="bf16")
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

import streamlit as st

from pages.figures.speedups import speedup_dots
from pages.ui import marks
from pages.ui.answers import explain_no_pair, speedup_answer
from pages.ui.card import Card, draw
from pages.ui.frame import Frame, cached
from pages.ui.markdown import restrict
from pages.ui.pin import pin
from runner.analysis.compare.pairs import LeftOut
from runner.analysis.compare.speedups import Axis, Speedups, compare
from runner.analysis.compare.verdict_text import INTERVALS, with_basis
from runner.results import StepResult
from runner.store.queries.selection import Selection
from runner.store.queries.steps import load_steps

#: For more lines than these Plotly would need seconds.
MAX_PLACES = 24


class Placed(Protocol):
    """A dot of a chart, on the line of its place."""

    @property
    def place(self) -> str: ...


D = TypeVar("D", bound=Placed)


def variants(frame: Frame, axis: Axis, *, baseline: str) -> list[str]:
    """Returns what can be compared with the baseline, by the filters: an empty filter allows all."""
    present = frame.contents.choices[axis]
    wanted = getattr(frame.selection, axis)
    allowed = [value for value in wanted if value != baseline] or list(present)
    return sorted(value for value in present if value in allowed and value != baseline)


def comparison(frame: Frame, axis: Axis, *, baseline: str, variant: str) -> Speedups[StepResult]:
    """Returns all pairs that the other filters leave, computed once for each state of the file."""
    free = frame.selection.without(axis)
    whole = frame.ask(_compare, replace(free.broad(), settled=False), axis, baseline, variant, frame.state)
    return Speedups(
        speedups=[pair for pair in whole.speedups if free.holds(pair.base.cell)],
        left_out=[item for item in whole.left_out if free.holds(item.named.cell)],
    )


def explain_unpaired(frame: Frame, left_out: Sequence[LeftOut[StepResult]], *, axis: Axis, baseline: str) -> str:
    """Says why nothing is paired with the baseline: nothing else has rows, or none of it a partner or a result."""
    free = frame.selection.without(axis)
    values = dict.fromkeys(getattr(cell.cell, axis) for cell in replace(frame, selection=free).measured())
    if not values:
        return f"No step was measured {frame.among}."
    if len(values) == 1:
        return f"Only {next(iter(values))} was measured {frame.among}."
    compared = Speedups(speedups=[], left_out=list(left_out))
    return explain_no_pair(compared, baseline=baseline, variant=f"another {axis}", where=frame.among)


def _compare(
    path: Path, selection: Selection, axis: Axis, baseline: str, variant: str, state: str
) -> Speedups[StepResult]:
    """Compares all cells; the rows are read once for all variants."""
    return compare(cached(path, state, load_steps, selection), axis=axis, baseline=baseline, variant=variant)


def draw_dots(frame: Frame, compared: Speedups[StepResult], *, axis: Axis, variant: str, baseline: str) -> None:
    """Draws the card with one line a pair; nothing where there is no pair."""
    dots = marks.speedup_dots_of(frame, compared, axis=axis)
    if not dots:
        return
    pairs = len({id(pair.base) for pair in compared.speedups}) + sum(
        item.kind == "failed" for item in compared.left_out
    )
    card = Card(
        key=f"{axis}-speedup",
        title=f"{variant} against {baseline}",
        note="Each line is a pair of cells that differ in nothing else. Bars are 95% intervals. "
        f"{with_basis(INTERVALS, compared.speedups)} Click a dot to see the cell's samples." + note_cut(pairs, "pairs"),
        alt=f"Speedups as dots on a log axis. {speedup_answer(compared, baseline=baseline, variant=variant)}",
        rows=marks.speedup_table(frame, compared),
        cells=[side.cell for pair in compared.speedups for side in (pair.base, pair.other)],
    )
    draw(frame, card, lambda: speedup_dots(keep_places(dots), variant=variant), on_click=pin)


def list_left_out(frame: Frame, compared: Speedups[StepResult], *, axis: Axis) -> None:
    """Lists what was not compared, and why."""
    if not compared.left_out:
        return
    title = f"Left out: {len(compared.left_out)} without a partner or a result"
    expander = st.expander(restrict(title), key=f"left-out-{axis}", on_change="rerun")
    if expander.open:
        rows = [{**marks.key_columns(frame, item.named.cell), "Why": item.reason} for item in compared.left_out]
        expander.dataframe(rows, hide_index=True)


def keep_places(dots: Sequence[D]) -> list[D]:
    """Returns the dots of the first `MAX_PLACES` places."""
    kept = set(list(dict.fromkeys(dot.place for dot in dots))[:MAX_PLACES])
    return [dot for dot in dots if dot.place in kept]


def note_cut(places: int, noun: str) -> str:
    """Says that not all places are drawn, where there are too many."""
    cut = f" The first {MAX_PLACES} of {places} {noun} are drawn: filter, or see the table."
    return cut if places > MAX_PLACES else ""
