"""The best way to run each size: a sentence for each, and a table with every option as a column.

draw_best_heading(frame); draw_best(frame, find_best(cells))
"""

from typing import Any

import streamlit as st

from pages.figures.frame import format_interval, title_of
from pages.overview.answers import describe_best
from pages.ui.evidence import of_cells, say
from pages.ui.formats import shorten, table
from pages.ui.frame import Frame
from pages.ui.sections import draw_heading
from runner.analysis.compare.best import BestWay
from runner.plan.commands import sweep_commands
from runner.schema.own import is_unread

#: Sizes that get a sentence; the table has all.
_MAX_SENTENCES = 6
#: The options of a step, in the order of the table's columns.
_OPTIONS = ("precision", "backend", "attention", "optimizer", "weights_dtype", "checkpoint_blocks")


def draw_best_heading(frame: Frame) -> None:
    mode = f", mode {frame.selection.mode}" if frame.selection.mode else ""
    draw_heading(frame, f"The fastest way to run each size{mode}", anchor="best")


def draw_best(frame: Frame, found: list[BestWay]) -> None:
    """Draws the fastest measured way of each step that the filters leave; nothing where none has a result."""
    if not found:
        return
    told = _choose_told(frame, found)
    words = "  \n".join(describe_best(frame, best) for best in told)
    behind = [cell for best in told for cell in (best.cell, *([best.plain] if best.plain else []))]
    say(frame, words, of_cells(frame, behind), key="best")
    rows = [_make_row(frame, best) for best in found]
    st.dataframe(
        shorten(table(rows)),
        hide_index=True,
        key="best-ways",
        placeholder="",
        column_config={"Measure it again": st.column_config.TextColumn(width="large")},
        alt="The fastest measured way of each size and context, with every option and the command that measures it.",
    )


def _choose_told(frame: Frame, found: list[BestWay]) -> list[BestWay]:
    """Returns one answer a size: that of the context at which most ways were measured, the longest of equals."""
    by_size: dict[str, BestWay] = {}
    for best in found:
        size = frame.size_of(best.cell.cell).split(" · ")[0]
        if size not in by_size or _rank(best) >= _rank(by_size[size]):
            by_size[size] = best
    return list(by_size.values())[-_MAX_SENTENCES:]


def _rank(best: BestWay) -> tuple[int, int]:
    return best.tried, best.cell.cell.context


def _make_row(frame: Frame, best: BestWay) -> dict[str, Any]:
    cell, step, found = best.cell.cell, best.cell.times["step"], best.speedup
    options = {name: getattr(cell, name) for name in _OPTIONS}
    return {
        "Size": frame.size_of(cell).split(" · ")[0],
        title_of("steps", "context"): cell.context or None,
        "Step (ms)": _round(step.median_ms),
        "95% interval (ms)": format_interval(step.low_ms, step.high_ms) if step.low_ms else "",
        "Speedup over plain fp32 (×)": _round(found.ratio) if found else None,
        **{title_of("steps", name): None if is_unread(name, value) else value for name, value in options.items()},
        title_of("steps", "batch"): cell.batch,
        "Tokens/s": _round(best.cell.tokens_per_s) if best.cell.tokens_per_s else None,
        "Ways measured": best.tried,
        "Not significantly slower": len(best.rivals),
        "Measure it again": next(iter(sweep_commands([cell])), ""),
    }


def _round(value: float) -> float:
    """Returns a number in three significant digits, as a sentence has it."""
    return float(f"{value:.3g}")
