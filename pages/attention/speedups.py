"""The cards that compare two implementations of attention: fused against naive, compiled against eager.

    draw_speedups(frame, cells, kind="fused")

Only cells that differ in nothing else are compared: shape, precision, mask, cache, machine, torch and effort agree.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import streamlit as st

from pages.attention.answers import place_of, ways
from pages.attention.scaling import key_columns
from pages.figures.frame import WORDS
from pages.figures.speedups import SpeedupDot, speedup_dots
from pages.ui.answers import describe_speedup, remarks
from pages.ui.card import Card, draw
from pages.ui.chosen import chosen, rows_of
from pages.ui.comparison import keep_places
from pages.ui.evidence import of_cells, say
from pages.ui.frame import Frame
from pages.ui.markdown import restrict
from pages.ui.marks import pair_columns, speedup_dot_of
from pages.ui.pin import pin
from pages.ui.sections import draw_heading
from runner.analysis.compare.pairs import LeftOut, Pair
from runner.analysis.compare.speedups import Speedups, compare, name_attention
from runner.analysis.compare.verdict_text import INTERVALS, with_basis
from runner.formats import format_count
from runner.results import AttentionResult
from runner.schema import TABLES
from runner.store.queries.attention import load_attention
from runner.store.queries.selection import Selection

Kind = Literal["fused", "compiled"]
_TITLES: dict[Kind, str] = {
    "fused": "Is another implementation faster than the naive one?",
    "compiled": "Is compiled attention faster than eager?",
}
_ALONE: dict[Kind, str] = {
    "fused": "Apart from skipped cells, naive and another implementation were not both measured.",
    "compiled": "Apart from skipped cells, no implementation was measured both eager and compiled.",
}
_MISSING: dict[Kind, str] = {
    "fused": "python -m runner sweep --experiment attention --attention naive,sdpa-flash --precisions fp32,bf16",
    "compiled": "python -m runner sweep --experiment attention --attention naive --backends eager,compiled",
}


def draw_speedups(frame: Frame, cells: Sequence[AttentionResult], *, kind: Kind) -> None:
    """Draws a heading, the answer, the dots, and what could not be compared."""
    draw_heading(frame, _TITLES[kind], anchor=kind)
    names = _list_variants(cells, kind)
    if not names:
        st.caption(restrict(f"{_ALONE[kind]} Measure both: `{_MISSING[kind]}`."))
        return
    usual = max(names, key=[name_attention(cell.cell) for cell in cells].count)  # the one with the most cells
    variant = chosen(f"{kind}-way", "Compared", names, default="sdpa-flash" if "sdpa-flash" in names else usual)
    baseline = "naive" if kind == "fused" else variant.split(" · ")[0]
    asked_for = {_key_of(cell) for cell in cells}
    compared = frame.ask(_compare, rows_of(frame), baseline, variant)
    pairs = [pair for pair in compared.speedups if _key_of(pair.base) in asked_for]
    left_out = [_explain(item) for item in compared.left_out if _key_of(item.named) in asked_for]
    words = _describe_pairs(pairs, left_out, baseline=baseline, variant=variant)
    sides = list({id(side): side for pair in pairs for side in (pair.base, pair.other)}.values())
    say(frame, words, of_cells(frame, sides), key=f"{kind}-speedup")
    dots = [speedup_dot_of(pair, place=place_of(pair.base.cell)) for pair in pairs]
    dots += [
        SpeedupDot(place=place_of(cell.cell), size="", phase="step", cell_id=str(cell.cell_id),
                   failure=f"{name_attention(cell.cell)} {WORDS[cell.status]}")
        for cell, _ in left_out if cell.status not in ("ok", "skipped")
    ]  # fmt: skip
    known = [*cells, *sides, *(cell for cell, _ in left_out)]
    order = [place_of(cell.cell) for cell in sorted(known, key=lambda cell: (cell.cell.d_head, cell.cell.seq_len))]
    dots.sort(key=lambda dot: order.index(dot.place))
    if dots:
        card = Card(
            key=f"{kind}-speedup",
            folded=kind == "compiled",
            title=f"{variant} against {baseline}",
            note="Each line is a pair of cells that differ in nothing else. Bars are 95% intervals. "
            f"{with_basis(INTERVALS, pairs)} Click a dot to see the cell's samples.",
            alt=f"Speedups as dots on a log axis. {words}",
            rows=[_make_row(pair) for pair in pairs],
            cells=[side.cell for side in sides],
        )
        draw(frame, card, lambda: speedup_dots(keep_places(dots), variant=variant), on_click=pin)
    if left_out:
        words = f"Left out: {len(left_out)} without a partner or a result"
        expander = st.expander(restrict(words), key=f"left-out-{kind}")
        expander.dataframe([{**key_columns(cell), "Why": reason} for cell, reason in left_out], hide_index=True)


def _list_variants(cells: Sequence[AttentionResult], kind: Kind) -> list[str]:
    present = ways([cell for cell in cells if cell.status != "skipped"])
    if kind == "compiled":
        return [way for way in present if " · " in way and way.split(" · ")[0] in present]
    return [way for way in present if " · " not in way and way != "naive"] if "naive" in present else []


def _compare(path: Path, of: Selection, baseline: str, variant: str) -> Speedups[AttentionResult]:
    """Compares all cells in the file, once for each state of the data, whatever is chosen on the page."""
    cells = load_attention(path, replace(of, settled=False))
    compared = compare(cells, axis="way", baseline=baseline, variant=variant)
    compared.speedups.sort(key=lambda pair: (pair.base.cell.d_head, pair.base.cell.seq_len))
    return compared


def _key_of(cell: AttentionResult) -> tuple[object, ...]:
    rest = (
        getattr(cell.cell, name) for name in TABLES["attention"].question if name not in ("implementation", "backend")
    )
    return (cell.machine, cell.torch, *rest)


def _explain(item: LeftOut[AttentionResult]) -> tuple[AttentionResult, str]:
    """Returns the cell that says why there is no pair, and the reason."""
    if not item.failed:
        return item.named, item.reason
    return item.failed[0], ", ".join(f"{name_attention(cell.cell)} {WORDS[cell.status]}" for cell in item.failed)


def _make_row(pair: Pair[AttentionResult]) -> dict[str, Any]:
    names = {"Baseline": name_attention(pair.base.cell), "Phase": WORDS[pair.phase]}
    return {**key_columns(pair.other), **names, **pair_columns(pair)}


def _describe_pairs(
    pairs: Sequence[Pair[AttentionResult]],
    left_out: Sequence[tuple[AttentionResult, str]],
    *,
    baseline: str,
    variant: str,
) -> str:
    whole = [pair for pair in pairs if pair.phase == "step"]
    if not whole:
        reason = next((f": {reason}" for _, reason in left_out if not reason.startswith("not measured")), "")
        if reason:
            return f"No cell here can be compared as {baseline} and as {variant}{reason}."
        return f"No cell here was measured both as {baseline} and as {variant}."
    words = describe_speedup(whole, start=f"**{variant}** is", end=f"than {baseline} forward and backward")
    few = sum(pair.low is None for pair in whole)
    doubt = f" {format_count(few, 'pair')} {'has' if few == 1 else 'have'} no interval: measured in too few processes."
    return f"{words}{doubt if few and len(whole) > 1 else ''}{remarks(whole)}"
