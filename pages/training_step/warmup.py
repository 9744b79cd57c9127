"""The card of the warm-up ablation: the same cell after 0, 1, 2 and 5 warm-up steps."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any

import streamlit as st

from pages.figures.warmup import WarmupStep, warmup_steps
from pages.ui.card import Card, draw
from pages.ui.chosen import select_one
from pages.ui.evidence import of_details, say
from pages.ui.frame import Frame
from pages.ui.markdown import quoted, restrict
from pages.ui.sections import draw_heading
from runner.formats import format_count, format_number
from runner.results import EarlyStep
from runner.schema import StepCell
from runner.schema.titles import title
from runner.store.queries.steps import load_early_steps


def draw_warmup(frame: Frame) -> None:
    """Draws the sentence and the card; a hint where nothing was measured after several warm-up counts."""
    draw_heading(frame, "What does warm-up change?", anchor="warm-up")
    families = _group_by_cell(
        [row for row in frame.ask(load_early_steps, frame.selection.broad()) if frame.selection.holds(row.cell)]
    )
    if not families:
        st.caption(
            restrict(
                f"No cell {frame.among} has results after several of 0, 1, 2 and 5 warm-up steps with one fixed number "
                "of measured ones. Measure one: "
                f"{quoted(frame.sweep('--experiment benchmark --warmup 0,1,2,5 --steps 10 --max-steps 10'))}."
            )
        )
        return
    family = next(iter(families))
    if len(families) > 1:
        family = select_one("ablation", "Cell measured after several warm-up counts", list(families))
    rows = families[family]
    dots = [
        WarmupStep(warmup=row.cell.warmup_steps, step=row.step, is_warmup=row.is_warmup, step_ms=row.step_ms)
        for row in rows
    ]
    cells: list[StepCell] = list(dict.fromkeys(row.cell for row in rows))
    answer = _describe_effect(rows)
    say(frame, answer, of_details(frame, "early steps", list(dict.fromkeys(row.cell_id for row in rows))), key="warmup")
    card = Card(
        key="warmup",
        folded=True,
        title="Steps after different warm-up counts",
        note=f"{family}. Each panel is a separate process with that many warm-up steps (hollow dots). "
        "Mean and median count the filled ones.",
        alt=f"Time of every early step after different warm-up counts. {answer}",
        rows=_make_rows(rows),
        cells=cells,
    )
    draw(frame, card, lambda: warmup_steps(dots))


def _group_by_cell(rows: Sequence[EarlyStep]) -> dict[str, list[EarlyStep]]:
    groups: dict[str, list[EarlyStep]] = {}
    for row in rows:
        groups.setdefault(title(replace(row.cell, warmup_steps=5)), []).append(row)
    return groups


def _describe_effect(rows: Sequence[EarlyStep]) -> str:
    """Says what the first step costs, and what measuring it does to the mean and to the median."""
    by_count = _group_by_count(rows)
    least, most = by_count[min(by_count)], by_count[max(by_count)]
    steady = median(most)
    few = f"After {format_count(min(by_count), 'warm-up step')}" if min(by_count) else "Without warm-up"
    return (
        f"{few} the first measured step takes **{format_number(least[0] / steady)}×** as long as the steady "
        f"{format_number(steady)} ms; the mean {_format_change(fmean(least), steady)} and the median "
        f"{_format_change(median(least), steady)}. After {format_count(max(by_count), 'warm-up step')} the first "
        f"measured step takes {format_number(most[0] / steady)}× as long."
    )


def _group_by_count(rows: Sequence[EarlyStep]) -> dict[int, list[float]]:
    groups: dict[int, list[float]] = {}
    for row in sorted(rows, key=lambda row: row.step):
        if not row.is_warmup:
            groups.setdefault(row.cell.warmup_steps, []).append(row.step_ms)
    return groups


def _make_rows(rows: Sequence[EarlyStep]) -> list[dict[str, Any]]:
    return [
        {
            "Warm-up (steps)": count,
            "Mean (ms)": fmean(values),
            "Median (ms)": median(values),
            "First measured step (ms)": values[0],
            "Slowest (ms)": max(values),
            "Samples": len(values),
        }
        for count, values in sorted(_group_by_count(rows).items())
    ]


def _format_change(value: float, usual: float) -> str:
    """Formats a change against the usual value: `rises to 82×`, `rises by 6%`, `stays the same`."""
    if value >= 2 * usual:
        return f"rises to {format_number(value / usual)}×"
    change = round(value / usual - 1, 2)
    return f"{'rises' if change > 0 else 'falls'} by {abs(change):.0%}" if change else "stays the same"
