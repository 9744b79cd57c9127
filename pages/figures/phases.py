"""How long each phase of a step takes, cell by cell: bars of time, bars of share, or lines over the context length.

    figure = phase_bars([PhaseBar(size="toy-64", context=128, phase="forward", median_ms=1.2, …)], view="time")

A failed cell keeps its row, with its reason instead of a bar. Clicking a bar gives the cell's id as customdata. Where
the host sets the time, bars are hatched and dots are hollow.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import plotly.graph_objects as go

from pages.figures.colors import FAINT, QUIET, SLATE, color_of
from pages.figures.frame import WORDS, format_interval, label_of, layout, title_of, unit_of
from pages.figures.marks import Interval, color_failures, error_bars, write_ends
from pages.figures.rows import BAR, chart_pixels, under_headings
from runner.formats import NO_LENGTH, format_number, format_tokens, join_parts
from runner.results import Clock
from runner.results.times import COLUMNS
from runner.schema import Phase

#: What the legend says of hatched bars and of hollow dots.
HOST = "the host sets this time"
View = Literal["time", "share", "scaling"]


@dataclass(frozen=True, kw_only=True)
class PhaseBar:
    """One phase of one cell or, with `failure`, a cell that has no times. `host` says how the host sets its time; empty
    where it does not."""

    size: str
    context: int
    phase: Phase
    cell_id: str
    median_ms: float = 0.0
    low_ms: float | None = None
    high_ms: float | None = None
    n: int | None = None
    failure: str | None = None
    host: str = ""


def phase_bars(rows: Sequence[PhaseBar], *, view: View, clock: Clock = "step") -> go.Figure:
    """Draws a stacked bar a cell or, for `scaling`, log-log lines. `step` rows give the total at a bar's end, with its
    interval; those of phases, which would cover each other there, are in tooltips. `clock` is how all of them were
    timed."""
    label = label_of("timings", COLUMNS[clock])
    return _draw_lines(rows, label=label) if view == "scaling" else _draw_bars(rows, view=view, label=label)


def _draw_bars(rows: Sequence[PhaseBar], *, view: View, label: str) -> go.Figure:
    order = _sort_sizes([row.size for row in rows])
    places = sorted(dict.fromkeys((row.size, row.context) for row in rows), key=lambda place: order.index(place[0]))
    totals = {(row.size, row.context): row for row in rows if row.phase == "step"}
    parts = [row for row in rows if row.phase not in ("step", "forward_backward") and not row.failure]
    sums: dict[tuple[str, int], float] = {}
    for row in parts:
        sums[row.size, row.context] = sums.get((row.size, row.context), 0.0) + row.median_ms
    lines = under_headings(
        [size for size, _ in places], [f"{context:,}" if context else NO_LENGTH for _, context in places]
    )
    at = dict(zip(places, lines.at, strict=True))
    figure = go.Figure()
    by_host, phases = any(row.host for row in parts), list(dict.fromkeys(row.phase for row in parts))
    for phase in phases:
        chosen = [row for row in parts if row.phase == phase]
        scale = [100 / sums[row.size, row.context] if view == "share" else 1.0 for row in chosen]
        figure.add_bar(
            name=WORDS[phase],
            legendgroup=phase,
            showlegend=not by_host,
            orientation="h",
            marker={"color": color_of(phase), "line": {"width": 0}, "pattern": _hatch(row.host for row in chosen)},
            y=[at[row.size, row.context] for row in chosen],
            width=BAR,
            x=[row.median_ms * factor for row, factor in zip(chosen, scale, strict=True)],
            customdata=[
                [row.cell_id, _describe(row), row.median_ms * 100 / sums[row.size, row.context]] for row in chosen
            ],
            hovertemplate="<b>%{customdata[1]}</b><br>%{customdata[2]:.0f}% of the phases<extra></extra>",
        )
    if by_host:
        _explain_hatching(figure, phases)
    ends = _find_ends(sums, totals.values())
    _write_totals(figure, {at[place]: totals[place] for place in places if place in totals}, ends_of=ends, view=view)
    height = chart_pixels(lines.count, row=27, entries=len(phases) + by_host)
    figure.update_layout(**layout(height=height, state=f"phases-{view}"), barmode="stack", margin_r=68)
    title = f"{label} of each phase ({unit_of('timings', 'median_ms')})"
    figure.update_xaxes(
        title=title if view == "time" else "Share of the phases (%)",
        rangemode="tozero",
        range=[0, max(ends.values(), default=1.0) * 1.02] if view == "time" else [0, 100],
        nticks=6,
        tickformat=",~g",
        tickangle=0,
        automargin=True,
    )
    lines.draw(figure)
    return figure


def _hatch(hosts: Iterable[str]) -> dict[str, Any]:
    """Returns the pattern of bars: stripes where the host sets the time."""
    return {"shape": ["/" if host else "" for host in hosts], "fillmode": "overlay", "size": 7, "solidity": 0.25}


def _explain_hatching(figure: go.Figure, phases: Sequence[Phase]) -> None:
    """Draws the legend with its plain phases apart: Plotly would take the look of each from its first bar."""
    for phase in phases:
        look = {"color": color_of(phase), "line": {"width": 0}}
        figure.add_bar(name=WORDS[phase], legendgroup=phase, orientation="h", x=[None], y=[None], marker=look)
    look = {"color": SLATE, "line": {"width": 0}, "pattern": _hatch([HOST])}
    figure.add_bar(name=HOST, orientation="h", x=[None], y=[None], marker=look)


def _sort_sizes(sizes: Sequence[str]) -> list[str]:
    """Returns every size once, in the order given, with its variants, such as "small · attention sdpa", below it."""
    names = list(dict.fromkeys(sizes))
    bases = list(dict.fromkeys(name.split(" · ")[0] for name in names))
    return sorted(names, key=lambda name: (bases.index(name.split(" · ")[0]), name.count(" · ")))


def _interval(row: PhaseBar) -> Interval:
    return row.median_ms, row.low_ms, row.high_ms


def _describe(row: PhaseBar) -> str:
    where = join_parts(row.size, format_tokens(row.context, unit_of("steps", "context")))
    unit = unit_of("timings", "median_ms")
    return (
        f"{where}</b><br>{WORDS[row.phase]}: {format_number(row.median_ms)} {unit}"
        f"<br>95% interval {format_interval(row.low_ms, row.high_ms, unit=unit)}"
        + (f"<br>n = {row.n}" if row.n is not None else "")
        + (f"<br>{row.host.replace(': ', ':<br>')}" if row.host else "")
        + "<b>"
    )


def _find_ends(sums: Mapping[tuple[str, int], float], totals: Iterable[PhaseBar]) -> dict[tuple[str, int], float]:
    """Returns how far each stack reaches, the step's interval included: where there is room for a label."""
    reach = {(row.size, row.context): row.high_ms or row.median_ms for row in totals}
    return {place: max(end, reach.get(place, 0.0)) for place, end in sums.items()}


def _write_totals(
    figure: go.Figure, totals: dict[int, PhaseBar], *, ends_of: dict[tuple[str, int], float], view: View
) -> None:
    """Writes the step's median at the end of its bar and draws its interval; for a failed cell, how it ended. `totals`
    are by row."""
    unit = unit_of("timings", "median_ms")
    totals = {at: row for at, row in totals.items() if view == "time" or row.failure}
    rows = totals.values()
    known = {at: row for at, row in totals.items() if row.low_ms is not None and not row.failure}
    if known:
        figure.add_scatter(
            name=WORDS["step"], mode="markers", x=[row.median_ms for row in known.values()], y=list(known),
            error_x=error_bars(map(_interval, known.values()), thickness=2, width=5, color=QUIET), cliponaxis=False,
            marker={"size": 1, "color": QUIET}, showlegend=False, hoverinfo="skip",
        )  # fmt: skip
    write_ends(
        figure,
        x=[0.0 if row.failure else ends_of.get((row.size, row.context), row.median_ms) for row in rows],
        y=list(totals),
        text=[f" ✕ {row.failure}" if row.failure else f"   {format_number(row.median_ms)} {unit}" for row in rows],
        textfont=color_failures(row.failure for row in rows),
        customdata=[[row.cell_id] for row in rows],
    )


def _draw_lines(rows: Sequence[PhaseBar], *, label: str) -> go.Figure:
    """Draws the whole step over the context length, log-log, a line a size, with guides of linear and square growth."""
    steps = [row for row in rows if row.phase == "step" and not row.failure and row.context]
    sizes = list(dict.fromkeys(row.size for row in steps))
    figure = go.Figure()
    for size in sizes:
        _draw_line(figure, [row for row in steps if row.size == size])
    _draw_guides(figure, steps)
    by_host = any(row.host for row in steps)
    if by_host:
        dot = {"size": 8, "color": color_of("step"), "symbol": "circle-open"}
        figure.add_scatter(name=HOST, mode="markers", x=[None], y=[None], marker=dot)
    figure.update_layout(**layout(height=420, state="phases-scaling", legend=by_host))
    contexts = sorted({row.context for row in steps})
    spread = (contexts[-1] / contexts[0]) if contexts else 1.0
    figure.update_xaxes(
        type="log",
        title=title_of("steps", "context"),
        tickvals=contexts,
        ticktext=[f"{context:,}" for context in contexts],
        automargin=True,
        range=_find_range(contexts, spread),
    )
    figure.update_yaxes(
        type="log",
        title=f"{label} of the whole step ({unit_of('timings', 'median_ms')})",
        automargin=True,
        dtick=1,
        minor={"dtick": "D1"},
        tickformat=",~g",
    )
    return figure


def _draw_line(figure: go.Figure, line: Sequence[PhaseBar]) -> None:
    """Draws the steps of one size, with its name at the last."""
    color, size = color_of("step"), line[0].size
    figure.add_scatter(
        x=[row.context for row in line],
        y=[row.median_ms for row in line],
        mode="lines+markers+text",
        text=["" for _ in line[:-1]] + [f" {size}"],
        textposition="middle right",
        name=size,
        line={"color": color, "width": 1.6},
        marker={"size": 8, "color": color, "symbol": [_dot(row) for row in line]},
        showlegend=False,
        error_y=error_bars(map(_interval, line), thickness=1.5, width=4, color=color),
        cliponaxis=False,
        customdata=[[row.cell_id, _describe(row)] for row in line],
        hovertemplate="<b>%{customdata[1]}</b><extra></extra>",
    )


def _dot(row: PhaseBar) -> str:
    return "circle-open" if row.host else "circle"


def _find_range(contexts: Sequence[int], spread: float) -> list[float] | None:
    if not contexts:
        return None
    room = max(math.log10(spread), 0.3)
    return [math.log10(contexts[0]) - 0.06 * room, math.log10(contexts[-1]) + 0.28 * room]


def _draw_guides(figure: go.Figure, steps: Sequence[PhaseBar]) -> None:
    """Draws lines of growth ∝ S and ∝ S² from the first point of the largest size."""
    if len({row.context for row in steps}) < 2:
        return
    largest = [row for row in steps if row.size == steps[-1].size]
    first, end = largest[0], max(row.context for row in steps)
    for power, name in ((1, "∝ S"), (2, "∝ S²")):
        figure.add_scatter(
            x=[first.context, end],
            y=[first.median_ms, first.median_ms * (end / first.context) ** power],
            mode="lines+text",
            text=["", f" {name}"],
            textposition="middle right",
            hoverinfo="skip",
            showlegend=False,
            cliponaxis=False,
            line={"color": FAINT, "dash": "dot", "width": 1.4},
            textfont={"color": QUIET},
        )
