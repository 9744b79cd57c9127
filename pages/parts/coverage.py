"""The card of the grid: which sizes, contexts, precisions and backends were measured, and how the others ended.

draw_coverage(frame)
"""

from typing import Any

from pages.charts.coverage import CoverageTile, coverage_grid
from pages.parts.card import Card, draw
from pages.parts.frame import Frame
from pages.parts.states import no_rows
from runner.schema import TABLES
from runner.store.queries.overview import Coverage, coverage


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
            note="The median step in ms of every measured cell; ✕ says how the others ended, · was not measured.",
            alt=f"Sizes, precisions and backends by context: {len(rows)} places measured or tried, {failed} failures.",
            rows=[_table_row(frame, row) for row in rows],
        ),
        lambda: coverage_grid([_tile(frame, row) for row in rows]),
    )


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
