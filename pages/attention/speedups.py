"""The cards that compare two ways of computing attention: fused against written out, compiled against eager.

    draw_speedups(frame, cells, kind="fused")

Only cells that differ in nothing but the way are compared: shape, precision, mask, cache, machine, torch and how they
were measured agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import streamlit as st

from pages.attention.answers import place_of, ways
from pages.attention.scaling import asked_of
from pages.figures.frame import WORDS
from pages.figures.speedups import SpeedupDot, speedup_dots
from pages.ui.answers import Ratio, caveat, in_words, spread, way_of
from pages.ui.card import Card, draw
from pages.ui.chosen import chosen, rows_of
from pages.ui.comparison import MOST_PLACES
from pages.ui.evidence import of_cells, say
from pages.ui.frame import Frame
from pages.ui.markdown import restrict
from pages.ui.pin import pin
from runner.analysis.compare.pairs import closest, measured_unlike, preference
from runner.analysis.statistics import ratio_interval
from runner.results import Rounds
from runner.schema import TABLES, Phase
from runner.store.queries.attention import Attended, attention_cells, attention_samples
from runner.store.queries.latest import Rows

Kind = Literal["fused", "compiled"]
Samples = Mapping[tuple[str, str], Mapping[Phase, Rounds]]
_COMPARED: tuple[Phase, ...] = ("forward", "backward", "step")
_TITLES: dict[Kind, str] = {
    "fused": "Is another implementation faster than the naive one?",
    "compiled": "Is compiled attention faster than eager?",
}
_ALONE: dict[Kind, str] = {
    "fused": "Skipped cells aside, naive and another implementation are not both here.",
    "compiled": "Skipped cells aside, no implementation is here both eager and compiled.",
}
_MISSING: dict[Kind, str] = {
    "fused": "python -m runner sweep --experiment attention --attention naive,sdpa-flash --precisions fp32,bf16",
    "compiled": "python -m runner sweep --experiment attention --attention naive --backends eager,compiled",
}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two cells that differ in the way alone; `ratios` are base over other by phase, with intervals."""

    base: Attended
    other: Attended
    ratios: dict[Phase, Ratio]


def draw_speedups(frame: Frame, cells: Sequence[Attended], *, kind: Kind) -> None:
    """A heading, the answer, the dots, and what could not be compared."""
    st.header(restrict(_TITLES[kind]), anchor=kind)
    names = _variants(cells, kind)
    if not names:
        st.caption(restrict(f"{_ALONE[kind]} Measure both: `{_MISSING[kind]}`."))
        return
    usual = max(names, key=[way_of(cell.cell) for cell in cells].count)  # the way of which most was measured
    variant = chosen(f"{kind}-way", "Compared", names, default="sdpa-flash" if "sdpa-flash" in names else usual)
    baseline = "naive" if kind == "fused" else variant.split(" · ")[0]
    asked_for = {_partner(cell) for cell in cells}
    pairs, left_out = frame.ask(_compared, rows_of(frame), (baseline, variant))
    pairs = [pair for pair in pairs if _partner(pair.base) in asked_for]
    left_out = [(cell, reason) for cell, reason in left_out if _partner(cell) in asked_for]
    words = _answer(pairs, left_out, baseline=baseline, variant=variant)
    sides = [side for pair in pairs for side in (pair.base, pair.other)]
    say(frame, words, of_cells(frame, sides), key=f"{kind}-speedup")
    dots = [dot for pair in pairs for dot in _dots(pair)]
    dots += [
        SpeedupDot(place=place_of(cell.cell), size="", phase="step", cell_id=str(cell.cell_id),
                   failure=f"{way_of(cell.cell)} {WORDS[cell.status]}")
        for cell, _ in left_out if cell.status not in ("ok", "skipped")
    ]  # fmt: skip
    known = [*cells, *sides, *(cell for cell, _ in left_out)]
    order = [place_of(cell.cell) for cell in sorted(known, key=lambda cell: (cell.cell.d_head, cell.cell.seq_len))]
    dots.sort(key=lambda dot: order.index(dot.place))
    shown = set(list(dict.fromkeys(dot.place for dot in dots))[:MOST_PLACES])
    asked = [side.cell for side in sides]
    if shown:
        draw(
            frame,
            Card(
                key=f"{kind}-speedup",
                title=f"{variant} against {baseline}",
                note="One line a pair of cells that differ in nothing else. Bars are 95% intervals, by bootstrap over "
                "rounds and samples; one that crosses 1× may be chance. Click a dot to see the cell's samples.",
                alt=f"Speedups as dots on a log axis. {words}",
                rows=[row for pair in pairs for row in _rows(pair)],
                cells=asked,
            ),
            lambda: speedup_dots([dot for dot in dots if dot.place in shown], variant=variant),
            on_click=pin,
        )
    if left_out:
        words = f"Left out: {len(left_out)} without a partner or a result"
        expander = st.expander(restrict(words), key=f"left-out-{kind}")
        expander.dataframe([{**asked_of(cell), "Why": reason} for cell, reason in left_out], hide_index=True)


def _variants(cells: Sequence[Attended], kind: Kind) -> list[str]:
    present = ways([cell for cell in cells if cell.status != "skipped"])
    if kind == "compiled":
        return [way for way in present if " · " in way and way.split(" · ")[0] in present]
    return [way for way in present if " · " not in way and way != "naive"] if "naive" in present else []


def _compared(path: Path, of: Rows, ways: tuple[str, str]) -> tuple[list[Pair], list[tuple[Attended, str]]]:
    """All pairs in the file, worked out once for each state of the data, whatever is chosen on the page."""
    return compare(attention_cells(path, of, settled=False), attention_samples(path, of), ways=ways)


def compare(
    cells: Sequence[Attended], samples: Samples, *, ways: tuple[str, str]
) -> tuple[list[Pair], list[tuple[Attended, str]]]:
    """All pairs of the two ways, and the cells that are in none, with the reason. `cells` are those of every effort."""
    questions: dict[tuple[object, ...], dict[str, list[Attended]]] = {}
    for cell in cells:
        sides = questions.setdefault(_partner(cell), {way: [] for way in ways})
        if way_of(cell.cell) in sides:
            sides[way_of(cell.cell)].append(cell)
    pairs, left_out = [], []
    for bases, others in ((sides[ways[0]], sides[ways[1]]) for sides in questions.values()):
        if not bases or not others:
            if alone := bases or others:
                left_out.append((max(alone, key=preference), f"not measured as {ways[1 if bases else 0]}"))
            continue
        base, other = closest(bases, others)
        if unlike := measured_unlike(base.cell, other.cell):
            left_out.append((other, f"measured with {unlike} ({ways[0]} against {ways[1]})"))
        elif base.status != "ok" or other.status != "ok":
            bad = [cell for cell in (base, other) if cell.status != "ok"]
            left_out.append((bad[0], ", ".join(f"{way_of(c.cell)} {WORDS[c.status]}" for c in bad)))
        else:
            pairs.append(Pair(base=base, other=other, ratios=_ratios(base, other, samples)))
    return sorted(pairs, key=lambda pair: (pair.base.cell.d_head, pair.base.cell.seq_len)), left_out


def _partner(cell: Attended) -> tuple[object, ...]:
    rest = (
        getattr(cell.cell, name) for name in TABLES["attention"].question if name not in ("implementation", "backend")
    )
    return (cell.machine, cell.torch, *rest)


def _ratios(base: Attended, other: Attended, samples: Samples) -> dict[Phase, Ratio]:
    rounds = [samples.get((cell.machine, cell.cell_key), {}) for cell in (base, other)]
    found = {}
    for phase in _COMPARED:
        if phase in rounds[0] and phase in rounds[1]:
            ratio = ratio_interval(rounds[0][phase], rounds[1][phase])
            found[phase] = (ratio.ratio, ratio.low, ratio.high)
    return found


def _dots(pair: Pair) -> list[SpeedupDot]:
    return [
        SpeedupDot(place=place_of(pair.base.cell), size="", phase=phase, cell_id=str(pair.other.cell_id),
                   ratio=ratio, low=low, high=high)
        for phase, (ratio, low, high) in pair.ratios.items()
    ]  # fmt: skip


def _rows(pair: Pair) -> list[dict[str, Any]]:
    return [
        {**asked_of(pair.other), "Baseline": way_of(pair.base.cell), "Phase": WORDS[phase], "Speedup (×)": ratio,
         "Low (×)": low, "High (×)": high}
        for phase, (ratio, low, high) in pair.ratios.items()
    ]  # fmt: skip


def _answer(pairs: Sequence[Pair], left_out: Sequence[tuple[Attended, str]], *, baseline: str, variant: str) -> str:
    found = [pair.ratios["step"] for pair in pairs if "step" in pair.ratios]
    if not found:
        reason = next((f": {reason}" for _, reason in left_out if not reason.startswith("not measured")), "")
        if reason:
            return f"No cell here can be compared as {baseline} and as {variant}{reason}."
        return f"No cell here was measured both as {baseline} and as {variant}."
    times, word = in_words(found)
    start = f"**{variant}** is **{times}× {word}** than {baseline}, forward and backward {spread(found)}"
    said = caveat([(pair.base.cell, pair.other.cell) for pair in pairs])
    rest = f" {said}" if said else ""
    if len(found) == 1:
        return f"{start}.{rest}"
    sure = sum((low or 0) > 1 for _, low, _ in found)
    few = sum(low is None for _, low, _ in found)
    doubt = f", {few} with too few samples to say" if few else ""
    return f"{start}; {sure} of them beyond doubt{doubt}.{rest}"
