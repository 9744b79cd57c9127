"""The card of one cell over all runs of the sidebar's machine, with the runs where its time changed.

draw_over_time(frame)
"""

from collections.abc import Sequence
from typing import Any

from pages.compare.over_time_figures import over_time
from pages.figures.frame import format_interval
from pages.ui.card import Card, draw
from pages.ui.chosen import select_one
from pages.ui.evidence import of_cells
from pages.ui.frame import Frame
from pages.ui.markdown import literal
from pages.ui.pin import pin
from pages.ui.sections import draw_heading
from runner.analysis.compare.over_time import CellSeries, Change, find_changes
from runner.analysis.compare.verdict_text import DECIDING_INTERVAL, with_basis
from runner.formats import format_count, format_ms, format_times
from runner.schema.titles import title
from runner.store.queries.over_time import load_repeated_cells, load_series

#: The most changes in the sentence; the chart and the table have all.
_MAX_TOLD = 3


def draw_over_time(frame: Frame) -> None:
    """Draws the card, or nothing where no cell was measured in two runs of the machine."""
    wanted = frame.selection
    every = [one for one in frame.ask(load_repeated_cells, wanted.machine) if wanted.holds(one.cell)]
    if not every:
        return
    draw_heading(frame, "How did one cell change over time?", anchor="over-time")
    by_name = {f"{title(one.cell)} ({one.runs} runs)": one.cell_key for one in every}
    series = frame.ask(load_series, wanted.machine, by_name[select_one("over-time-cell", "Cell", list(by_name))])
    changes = find_changes(series.points)
    words = describe_series(series, changes)
    card = Card(
        key="over-time",
        folded=True,
        title=f"{title(series.cell)} over time",
        answer=words,
        evidence=[of_cells(frame, [point.measured for point in series.points], among="all")],
        note=with_basis(
            "One dot a run: the median step over its rounds, with the 95% interval for the next process. A dashed line "
            f"marks a change from one run to the next whose {DECIDING_INTERVAL} excludes 1×. Click a dot to see its "
            "samples.",
            (change.ratio for change in changes),
        ),
        alt=f"Median step by the start of the run. {words}",
        rows=[_make_row(series, index, changes) for index in range(len(series.points))],
        cells=[series.cell],
    )
    draw(frame, card, lambda: over_time(series.points, changes), on_click=pin)


def describe_series(series: CellSeries, changes: Sequence[Change]) -> str:
    """Says how the first and the latest run differ, and between which runs the time changed."""
    first, last = series.points[0], series.points[-1]
    start = (
        f"**{literal(title(series.cell))}** took {format_ms(first.time.ms)} in the first of "
        f"{format_count(len(series.points), 'run')} and **{format_ms(last.time.ms)}** in the latest"
    )
    if not changes:
        return f"{start}; no run differs significantly from the one before."
    told = [
        f"{format_times(change.ratio.ratio)} {_describe_change(change)} in {literal(change.after.run_name)}"
        + (f" ({literal(change.cause)})" if change.cause else "")
        for change in changes[-_MAX_TOLD:]
    ]
    count = format_count(len(changes), "change")
    return f"{start}; {count}{', the latest' if len(changes) > _MAX_TOLD else ''}: {'; '.join(told)}."


def _describe_change(change: Change) -> str:
    return "faster" if change.ratio.outcome == "better" else "slower"


def _make_row(series: CellSeries, index: int, changes: Sequence[Change]) -> dict[str, Any]:
    point = series.points[index]
    change = next((one for one in changes if one.after is point), None)
    return {
        "Run": point.run_name,
        "Started (UTC)": point.started_at,
        "Commit": (point.commit or "")[:7],
        "torch": point.torch,
        "Median step (ms)": point.time.ms,
        "95% interval (ms)": format_interval(point.time.low_ms, point.time.high_ms) if point.time.low_ms else "",
        "Rounds": point.time.rounds,
        "Against the run before": f"{format_times(change.ratio.ratio)} {_describe_change(change)}" if change else "",
    }
