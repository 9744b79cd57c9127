"""How far a grid of cells is covered, such as sizes by contexts: measured, failed, without a row.

    figure = coverage_grid([CoverageTile(size="toy-64", context=128, variant="fp32 · eager", ok=2, …)])

The text of a tile says what its color says, for readers who cannot tell the colors apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from pages.figures.colors import BLUE, BROWN, QUIET, RED, SLATE, STRONG, tint
from pages.figures.frame import WORDS, layout, title_of
from pages.figures.marks import flat_colors
from pages.figures.rows import label_rows
from runner.formats import NO_LENGTH, format_number, format_tokens, join_parts

#: Colors of the ranks: no row, only skipped, failed, measured in part, measured.
_LEVELS = (
    tint(SLATE, opacity=0.1),
    tint(SLATE, opacity=0.3),
    tint(RED, opacity=0.3),
    tint(BROWN, opacity=0.35),
    tint(BLUE, opacity=0.3),
)
#: The largest share of the width for a column: one alone would be a band across the page.
_COLUMN = 1 / 3
#: Names of rows with more letters than this take two lines, so that a phone has room for the tiles.
_LONG = 24
_UNMEASURED, _SKIPPED, _FAILED, _PARTLY, _MEASURED = range(5)


@dataclass(frozen=True, kw_only=True)
class CoverageTile:
    """One place of the grid: block of rows (`size`), column (`context`), row. `failures` counts cells by status;
    `median_ms` is the time to show, `value` anything else in words."""

    size: str
    context: int
    variant: str
    ok: int
    failures: dict[str, int]
    median_ms: float | None = None
    value: str = ""


def coverage_grid(tiles: Sequence[CoverageTile], *, x: str = "", state: str = "coverage") -> go.Figure:
    """Draws a block of rows a size, a row a variant. Columns are context lengths, or what the title `x` says; places
    without a tile are pale."""
    contexts = sorted({tile.context for tile in tiles})
    places = {(tile.size, tile.variant, tile.context): tile for tile in tiles}
    rows: list[tuple[str, str | None]] = []
    for size in dict.fromkeys(tile.size for tile in tiles):
        rows += [(size, None), *((size, name) for name in dict.fromkeys(t.variant for t in tiles if t.size == size))]
    grid = [[places.get((size, name or "", context)) for context in contexts] for size, name in rows]
    columns = [f"{context:,}" if context else NO_LENGTH for context in contexts]
    figure = go.Figure(
        go.Heatmap(
            z=[
                [None if name is None else _rank(tile) for tile in line]
                for (_, name), line in zip(rows, grid, strict=True)
            ],
            x=columns,
            **flat_colors(_LEVELS),
            hoverongaps=False,
            hovertext=[[_describe_tile(tile) for tile in line] for line in grid],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    _write_tiles(figure, columns, {index: grid[index] for index, (_, name) in enumerate(rows) if name is not None})
    row = 36 if any(len(name or "") > _LONG for _, name in rows) else 28
    figure.update_layout(**layout(height=60 + row * len(rows), state=state, legend=False))
    figure.update_xaxes(
        title=x or title_of("steps", "context"), type="category", side="top", showgrid=False, ticks="",
        domain=[0, min(1.0, _COLUMN * len(columns))],
    )  # fmt: skip
    labels = [f"<b>{size}</b>" if name is None else _break_name(name) for size, name in rows]
    label_rows(figure, labels, edge=0.5, showgrid=False, ticks="")
    return figure


def _write_tiles(figure: go.Figure, columns: Sequence[str], rows: Mapping[int, Sequence[CoverageTile | None]]) -> None:
    """Writes the words of the tiles, in a trace of their own: a heatmap colors all of its words for its darkest
    tile."""
    tiles = [(column, row, tile) for row, line in rows.items() for column, tile in zip(columns, line, strict=True)]
    figure.add_scatter(
        x=[column for column, _, _ in tiles],
        y=[row for _, row, _ in tiles],
        text=[_write_tile(tile) for _, _, tile in tiles],
        mode="text",
        textfont={"size": 12, "color": [QUIET if tile is None else STRONG for _, _, tile in tiles]},
        hoverinfo="skip",
    )


def _break_name(name: str) -> str:
    """Breaks a long name where its two lines are most alike."""
    parts = name.split(" · ")
    if len(name) <= _LONG or len(parts) == 1:
        return name
    lines = [(" · ".join(parts[:at]), " · ".join(parts[at:])) for at in range(1, len(parts))]
    return "<br>".join(min(lines, key=lambda pair: max(map(len, pair))))


def _rank(tile: CoverageTile | None) -> int:
    if tile is None:
        return _UNMEASURED
    if tile.ok:
        return _PARTLY if tile.failures else _MEASURED
    return _SKIPPED if set(tile.failures) == {"skipped"} else _FAILED


def _write_tile(tile: CoverageTile | None) -> str:
    """Returns the time in ms where there is one, and how cells failed."""
    if tile is None:
        return "·"
    ended = f"✕ {', '.join(tile.failures)}" if tile.failures else ""
    if not tile.ok:
        return ended
    value = tile.value or (format_number(tile.median_ms) if tile.median_ms else "✓")
    return " ".join(part for part in (value, ended) if part)


def _describe_tile(tile: CoverageTile | None) -> str:
    if tile is None:
        return "no row"
    ended = "".join(f"<br>{count} × {WORDS[status]}" for status, count in tile.failures.items())
    where = join_parts(tile.size, format_tokens(tile.context, "tok"), tile.variant)
    return f"<b>{where}</b><br>{tile.ok} measured{ended}"
