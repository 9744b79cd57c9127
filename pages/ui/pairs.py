"""The card of a comparison's pairs, and what other cards of pairs name, list and measure again.

draw_pairs(frame, verdict, key="compare-pairs", title="after against before", on_click=pin)
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pages.figures.frame import escape_text
from pages.figures.pairs import RatioDot, ratio_dots
from pages.ui.card import Card, draw
from pages.ui.frame import Frame
from pages.ui.markdown import literal
from pages.ui.marks import device_columns
from runner.analysis.compare.host_bound import describe_share
from runner.analysis.compare.pairs import LeftOut, Pair
from runner.analysis.compare.verdict import SideResult, Verdict, compared_values, host_share
from runner.analysis.compare.verdict_text import describe_verdict, format_amount, name_outcomes, shorten_titles
from runner.analysis.statistics import MIN_DIFFERENCE
from runner.schema.titles import title as title_of
from runner.store.queries.selection import REPEATABLE

#: More lines than these are not one picture any more.
MAX_PAIRS, MAX_FAILED = 24, 6
#: Letters of a name that leave enough of a phone's width for its row.
_SHORT = 20


def draw_pairs(
    frame: Frame, verdict: Verdict, *, key: str, title: str, on_click: Callable[[str], None] | None = None
) -> None:
    """Draws every ratio with its interval; pairs with a failed side keep a place."""
    failed = [item for item in verdict.left_out if _failed_once(item)][:MAX_FAILED]
    largest = sorted(verdict.pairs, key=lambda pair: -abs(math.log(pair.ratio)))[: MAX_PAIRS - len(failed)]
    shown: list[Pair[SideResult] | LeftOut[SideResult]] = [pair for pair in verdict.pairs if pair in largest]
    shown += failed
    shared, names = name_pairs(verdict, shown)
    dots = [_dot(verdict, item, place=place) for item, place in zip(shown, names, strict=True)]
    words, timed = name_outcomes(verdict), verdict.table != "memory"
    b = verdict.sides[1].title
    cut = f"The {len(largest)} largest changes of {len(verdict.pairs)} pairs are drawn; the table has all."
    note = [
        f"Each line is a pair of cells that differ in nothing else; right of 1× {literal(b)} is {words['better']}.",
        f"Bars are 95% intervals; the gray band is ±{MIN_DIFFERENCE:.0%}."
        if timed
        else f"The gray band is ±{MIN_DIFFERENCE:.0%}.",
        "Click a dot to see the samples of both cells." if on_click else "",
        cut if len(verdict.pairs) > len(largest) else "",
    ]
    draw(
        frame,
        Card(
            key=key,
            title=title,
            note=write_note(shared, note),
            alt=f"Ratios as dots on a log axis around 1×. {describe_verdict(verdict)}",
            rows=[make_row(verdict, pair) for pair in verdict.pairs],
            cells=list_cells(verdict, verdict.pairs),
        ),
        lambda: ratio_dots(
            dots,
            legend={outcome: f"{word} ({verdict.outcomes[outcome]})" for outcome, word in words.items()},
            noise=MIN_DIFFERENCE,
            axis_title=f"{escape_text(b)}, times {words['better']} (log)",
        ),
        on_click=on_click,
    )


def _failed_once(item: LeftOut[SideResult]) -> bool:
    """Returns whether one side has a result and the other failed to; a cell that was skipped did not fail."""
    statuses = {side.status for side in (item.base, item.other) if side}
    return "ok" in statuses and len(statuses) == 2 and "skipped" not in statuses


def write_note(shared: str, sentences: Sequence[str]) -> str:
    """Returns how to read a card, beginning with what all of its cells share."""
    return " ".join(part for part in (f"All cells: {shared}." if shared else "", *sentences) if part)


def name_pairs(verdict: Verdict, shown: Sequence[Pair[SideResult] | LeftOut[SideResult]]) -> tuple[str, list[str]]:
    """Returns what the cells share, and a short name for each, in two lines where it is long."""
    cells = [item.named.cell for item in shown]
    if not cells:
        return "", []
    axis = [side.value for side in verdict.sides]
    shared, names = shorten_titles(cells, without=axis)
    return shared, [_in_two_lines(name) for name in names]


def _in_two_lines(name: str) -> str:
    parts = re.sub(r"(?<!@)\b\d{4,}\b", lambda whole: f"{int(whole[0]):,}", name).split(" · ")
    if len(name) <= _SHORT:
        return " · ".join(parts)
    return " · ".join(parts[:2]) + (f"<br>{' · '.join(parts[2:])}" if parts[2:] else "")


def _dot(verdict: Verdict, item: Pair[SideResult] | LeftOut[SideResult], *, place: str) -> RatioDot:
    if isinstance(item, LeftOut):
        return RatioDot(place=place, cell_id="", failure=escape_text(item.reason))
    values = " → ".join(format_amount(verdict, value) for value in compared_values(item))
    return RatioDot(place=place, cell_id=str(item.other.cell_id), outcome=item.outcome, ratio=item.ratio, low=item.low,
                    high=item.high, values=values, host=describe_share(host_share(item)))  # fmt: skip


def make_row(verdict: Verdict, pair: Pair[SideResult]) -> dict[str, Any]:
    """Returns the line of a pair in a card's table."""
    unit = "bytes" if verdict.table == "memory" else "ms"
    a, b = (side.title for side in verdict.sides)
    value_a, value_b = compared_values(pair)
    numbers = {"A / B (×)": pair.ratio, "Low (×)": pair.low, "High (×)": pair.high}
    return {
        "Cell": title_of(pair.named.cell),
        f"A: {a} ({unit})": value_a,
        f"B: {b} ({unit})": value_b,
        **numbers,
        **device_columns(host_share(pair).device),
        "Verdict": name_outcomes(verdict)[pair.outcome],
    }


def list_cells(verdict: Verdict, pairs: Sequence[Pair[SideResult]]) -> list[Any]:
    """Returns what has to be measured for these rows: both sides, where the cells are what differs."""
    both = verdict.sides[0].kind in ("precision", "backend")
    return [side.cell for pair in pairs for side in ((pair.base, pair.other) if both else (pair.base,))]


def apply_filters(frame: Frame, verdict: Verdict) -> Verdict:
    """Returns what the sidebar's sizes, contexts, precisions and backends leave of it."""
    kind = verdict.sides[0].kind
    wanted = frame.selection.without(*([kind] if kind in REPEATABLE else []))
    return replace(
        verdict,
        pairs=tuple(pair for pair in verdict.pairs if wanted.holds(pair.base.cell)),
        left_out=tuple(item for item in verdict.left_out if wanted.holds(item.named.cell)),
    )
