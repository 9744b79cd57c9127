"""The cards of Compare: every pair as a ratio, what moved, what was left out.

draw_pairs(frame, verdict); draw_movers(frame, verdict); list_left_out(verdict)
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import streamlit as st

from pages.compare.figures import Mover, RatioDot, movers, ratio_dots
from pages.figures.frame import escape_text
from pages.ui.card import Card, draw
from pages.ui.frame import Frame
from pages.ui.markdown import literal, restrict
from pages.ui.marks import device_columns
from pages.ui.pin import pin
from runner.analysis.compare.host_bound import describe_share
from runner.analysis.compare.pairs import LeftOut, Pair
from runner.analysis.compare.verdict import SideResult, Verdict, host_share, select_movers
from runner.analysis.compare.verdict_text import change, describe_verdict, format_amount, name_outcomes, shorten_titles
from runner.analysis.statistics import MIN_DIFFERENCE
from runner.schema.titles import title

#: More lines than these are not one picture any more.
MAX_PAIRS, MAX_MOVERS, MAX_FAILED = 24, 12, 6
#: Letters of a name that leave enough of a phone's width for its row.
_SHORT = 20


def draw_pairs(frame: Frame, verdict: Verdict) -> None:
    """Every ratio with its interval; cells of which one side failed keep a place."""
    failed = [item for item in verdict.left_out if _failed_once(item)][:MAX_FAILED]
    largest = sorted(verdict.pairs, key=lambda pair: -abs(math.log(pair.ratio)))[: MAX_PAIRS - len(failed)]
    shown: list[Pair[SideResult] | LeftOut[SideResult]] = [pair for pair in verdict.pairs if pair in largest]
    shown += failed
    shared, names = _names(verdict, shown)
    dots = [_dot(verdict, item, place=place) for item, place in zip(shown, names, strict=True)]
    words, timed = name_outcomes(verdict), verdict.table != "memory"
    a, b = (side.title for side in verdict.sides)
    cut = f"The {len(largest)} largest changes of {len(verdict.pairs)} pairs are drawn; the table has all."
    note = [
        f"Each line is a pair of cells that differ in nothing else; right of 1× {literal(b)} is {words['better']}.",
        f"Bars are 95% intervals; the gray band is ±{MIN_DIFFERENCE:.0%}."
        if timed
        else f"The gray band is ±{MIN_DIFFERENCE:.0%}.",
        "Click a dot to see the samples of both cells." if timed else "",
        cut if len(verdict.pairs) > len(largest) else "",
    ]
    draw(
        frame,
        Card(
            key="compare-pairs",
            title=f"{literal(b)} against {literal(a)}",
            note=_noted(shared, note),
            alt=f"Ratios as dots on a log axis around 1×. {describe_verdict(verdict)}",
            rows=[_row(verdict, pair) for pair in verdict.pairs],
            cells=_cells(verdict, verdict.pairs),
        ),
        lambda: ratio_dots(
            dots,
            legend={outcome: f"{word} ({verdict.outcomes[outcome]})" for outcome, word in words.items()},
            noise=MIN_DIFFERENCE,
            axis_title=f"{escape_text(b)}, times {words['better']} (log)",
        ),
        on_click=pin if timed else None,
    )


def _failed_once(item: LeftOut[SideResult]) -> bool:
    """Whether one side has a result and the other failed to; a cell that was skipped did not fail."""
    statuses = {side.status for side in (item.base, item.other) if side}
    return "ok" in statuses and len(statuses) == 2 and "skipped" not in statuses


def _noted(shared: str, sentences: Sequence[str]) -> str:
    return " ".join(part for part in (f"All cells: {shared}." if shared else "", *sentences) if part)


def draw_movers(frame: Frame, verdict: Verdict) -> None:
    """What is better or worse, ranked by how much, with both values."""
    ranked = select_movers(verdict)
    if not ranked:
        return
    shown = ranked[:MAX_MOVERS]
    shared, names = _names(verdict, shown)
    rows = [
        Mover(place=place, cell_id=str(pair.other.cell_id), outcome=pair.outcome, a=pair.base.value, b=pair.other.value,
              words=change(verdict, pair))
        for place, pair in zip(names, shown, strict=True)
    ]  # fmt: skip
    a, b = (side.title for side in verdict.sides)
    cut = f"The first {MAX_MOVERS} of {len(ranked)} are drawn; the table has all."
    draw(
        frame,
        Card(
            key="compare-movers",
            title="Largest changes",
            note=_noted(
                shared,
                [
                    f"Significant changes, the largest first: hollow is {literal(a)}, filled is {literal(b)}.",
                    cut if len(ranked) > MAX_MOVERS else "",
                ],
            ),
            alt=f"The largest changes from {a} to {b}: "
            + "; ".join(f"{row.place.replace('<br>', ' · ')} {row.words}" for row in rows[:5]),
            rows=[{"Rank": rank, **_row(verdict, pair)} for rank, pair in enumerate(ranked, start=1)],
            cells=_cells(verdict, ranked),
        ),
        lambda: movers(
            rows, names=(escape_text(a), escape_text(b)), unit="bytes" if verdict.table == "memory" else "ms"
        ),
    )


def list_left_out(verdict: Verdict) -> None:
    """What was not compared, and why."""
    if not verdict.left_out:
        return
    words = f"Left out: {len(verdict.left_out):,} of {len(verdict.left_out) + len(verdict.pairs):,} cells"
    expander = st.expander(restrict(words), key="_left-out", on_change="rerun")
    if expander.open:
        rows = [
            {"Cell": title(item.named.cell), "Why": item.reason, "Known of it": item.detail}
            for item in verdict.left_out
        ]
        expander.dataframe(rows, hide_index=True, alt="Cells that were not compared, with the reason.")


def _names(verdict: Verdict, shown: Sequence[Pair[SideResult] | LeftOut[SideResult]]) -> tuple[str, list[str]]:
    """What the cells share, and a short name for each, in two lines where it is long."""
    cells = [item.named.cell for item in shown]
    if not cells:
        return "", []
    axis = [side.value for side in verdict.sides]
    shared, names = shorten_titles(cells, without=axis)
    return shared, [_in_two_lines(name) for name in names]


def _in_two_lines(name: str) -> str:
    # The year of an edition, such as that of xl@2025, is no number of tokens.
    parts = re.sub(r"(?<!@)\b\d{4,}\b", lambda whole: f"{int(whole[0]):,}", name).split(" · ")
    if len(name) <= _SHORT:
        return " · ".join(parts)
    return " · ".join(parts[:2]) + (f"<br>{' · '.join(parts[2:])}" if parts[2:] else "")


def _dot(verdict: Verdict, item: Pair[SideResult] | LeftOut[SideResult], *, place: str) -> RatioDot:
    if isinstance(item, LeftOut):
        return RatioDot(place=place, cell_id="", failure=escape_text(item.reason))
    values = " → ".join(format_amount(verdict, side.value) for side in (item.base, item.other))
    return RatioDot(place=place, cell_id=str(item.other.cell_id), outcome=item.outcome, ratio=item.ratio, low=item.low,
                    high=item.high, values=values, host=describe_share(host_share(item)))  # fmt: skip


def _row(verdict: Verdict, pair: Pair[SideResult]) -> dict[str, Any]:
    unit = "bytes" if verdict.table == "memory" else "ms"
    a, b = (side.title for side in verdict.sides)
    numbers = {"A / B (×)": pair.ratio, "Low (×)": pair.low, "High (×)": pair.high}
    return {
        "Cell": title(pair.named.cell),
        f"A: {a} ({unit})": pair.base.value,
        f"B: {b} ({unit})": pair.other.value,
        **numbers,
        **device_columns(host_share(pair).device),
        "Verdict": name_outcomes(verdict)[pair.outcome],
    }


def _cells(verdict: Verdict, pairs: Sequence[Pair[SideResult]]) -> list[Any]:
    """What has to be measured for these rows: both sides, where the cells are what differs."""
    both = verdict.sides[0].kind in ("precision", "backend")
    return [side.cell for pair in pairs for side in ((pair.base, pair.other) if both else (pair.base,))]
