"""The cards of the page torch.compile: every backend beside eager, compile time, when it pays off."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pages.figures.frame import escape_text, title_of
from pages.torch_compile.answers import graph_answer, name_of, paid_answer, when_answer
from pages.torch_compile.figures import CostDot, CumulatedLine, Unit, WayDot, cost_dots, crossing_lines, way_dots
from pages.torch_compile.speedups import KINDS, CompileSpeedup, place
from pages.ui.card import Card, draw
from pages.ui.chosen import select_one
from pages.ui.comparison import keep_places, note_cut
from pages.ui.evidence import LoadEvidence, of_cells, say
from pages.ui.frame import Frame
from pages.ui.marks import describe_host_bound, key_columns, pair_columns, place_of
from pages.ui.pin import pin
from pages.ui.sections import draw_heading
from runner.analysis.compare.pairs import LeftOut
from runner.analysis.compare.verdict_text import INTERVALS, with_basis
from runner.results import StepResult
from runner.schema.titles import describe_status

_COSTS = ("graphs", "graph_breaks", "recompiles", "compiled_gradient_error")


def draw_ways(
    frame: Frame, items: Sequence[CompileSpeedup], left_out: Sequence[LeftOut[StepResult]], *, words: str
) -> None:
    """Draws every backend as a dot on its cell's line."""
    dots = [
        WayDot(place=place(frame, item), backend=item.variant, cell_id=str(item.step.other.cell_id),
               ratio=item.step.ratio, low=item.step.low, high=item.step.high, host=describe_host_bound(item.step))
        for item in items
    ]  # fmt: skip
    dots += [
        WayDot(place=place_of(frame, item.named.cell, beside="backend"), backend=item.named.cell.backend,
               cell_id=str(item.named.cell_id), failure=escape_text(_describe_failure(item)))
        for item in left_out
        if item.kind == "failed" and item.named.status != "skipped"
    ]  # fmt: skip
    card = Card(
        key="ways",
        title="Every backend against eager",
        note="Each line is a cell, each dot a backend; bars are 95% intervals. "
        f"{with_basis(INTERVALS, (item.step for item in items))} "
        "cuda-graphs is the eager step recorded and replayed, without a compiler. Click a dot to see the cell's "
        f"samples.{note_cut(len({dot.place for dot in dots}), 'cells')}",
        alt=f"Speedups of the whole step as dots on a log axis. {words}",
        rows=[_make_row(frame, item) for item in items],
        cells=_collect_cells(items),
    )
    draw(frame, card, lambda: way_dots(keep_places(dots)), on_click=pin)


def draw_costs(frame: Frame, items: Sequence[CompileSpeedup]) -> None:
    """Draws compile seconds, cold and warm, and says what the compiler made of the model."""
    dots = [
        CostDot(place=_place_of(frame, item), backend=item.variant, kind=kind, value=seconds)
        for item in items
        for kind, (seconds, _) in item.costs().items()
    ]
    if not dots:
        return
    words = graph_answer(items)
    draw_heading(frame, "What does compiling cost?", anchor="cost")
    say(frame, words, evidence_of_speedups(frame, items), key="compile-seconds")
    _draw_dots(
        frame,
        items,
        dots,
        Card(
            key="compile-seconds",
            title="Compile time, apart from the steps",
            note="The first step minus the median one; compiled by one thread, "
            f"{_describe_neighbors(items)}importing the compiler not counted.",
            alt=f"Compile seconds of each compiled cell on a log axis. {words}",
        ),
        unit="s",
    )


def _describe_neighbors(items: Sequence[CompileSpeedup]) -> str:
    """Says how many cells were compiled at the same time, if several were."""
    at_once = max((item.cost.compiled_at_once or 0 for item in items if item.cost), default=0)
    return f"up to {at_once} cells at the same time, " if at_once > 1 else ""


def draw_paid(frame: Frame, items: Sequence[CompileSpeedup]) -> None:
    """Draws after how many steps compiling pays off: of all cells, and as lines of one cell."""
    known = [item for item in items if item.costs()]
    if not known:
        return
    draw_heading(frame, "When does compiling pay off?", anchor="paid")
    dots = [
        CostDot(
            place=_place_of(frame, item),
            backend=item.variant,
            kind=kind,
            value=paid.steps,
            low=paid.low,
            high=paid.high,
        )
        for item in known
        for kind, (_, paid) in item.costs().items()
    ]
    words = when_answer(known)
    say(frame, words, evidence_of_speedups(frame, known), key="paid-after")
    _draw_dots(
        frame,
        known,
        dots,
        Card(
            key="paid-after",
            title="Steps until compiling pays off",
            note="Compile time over the time saved in each step; bars follow from the speedup's 95% interval.",
            alt=f"Steps after which compiling pays off, on a log axis. {words}",
        ),
        unit="steps",
    )
    _draw_crossing(frame, known)


def _draw_crossing(frame: Frame, known: Sequence[CompileSpeedup]) -> None:
    names = {f"{name_of(frame, item)}, {item.variant}": item for item in known}
    default = max(names, key=lambda name: names[name].step.ratio)
    item = names[select_one("compiled-cell", "Cell", list(names), default=default)]
    step_ms = [side.times["step"].median_ms for side in (item.step.base, item.step.other)]
    lines = [CumulatedLine(name="eager", backend="eager", start_s=0.0, step_ms=step_ms[0])]
    lines += [
        CumulatedLine(
            name=f"{item.variant}, {kind}", backend=item.variant, start_s=seconds, step_ms=step_ms[1], kind=kind
        )
        for kind, (seconds, _) in item.costs().items()
    ]
    words = paid_answer(frame, item)
    card = Card(
        key="crossing",
        folded=True,
        title="Where the lines cross",
        answer=words,
        evidence=[evidence_of_speedups(frame, [item])],
        alt=f"Time since the start over steps, eager and compiled. {words}",
        rows=[_make_row(frame, item)],
        cells=_collect_cells([item]),
    )
    draw(frame, card, lambda: crossing_lines(lines))


def evidence_of_speedups(frame: Frame, items: Sequence[CompileSpeedup]) -> LoadEvidence | None:
    """Returns a function that loads the rows of both sides of these pairs."""
    return of_cells(frame, [side for item in items for side in (item.step.base, item.step.other)])


def _draw_dots(
    frame: Frame, items: Sequence[CompileSpeedup], dots: Sequence[CostDot], card: Card, *, unit: Unit
) -> None:
    note = card.note + note_cut(len({dot.place for dot in dots}), "cells")
    card = replace(card, note=note, rows=[_make_row(frame, item) for item in items], cells=_collect_cells(items))
    draw(frame, card, lambda: cost_dots(keep_places(dots), unit=unit))


def _describe_failure(item: LeftOut[StepResult]) -> str:
    return describe_status(item.named) if item.named.status != "ok" else "eager has no result"


def _place_of(frame: Frame, item: CompileSpeedup) -> str:
    first, *rest = place(frame, item).split("<br>")
    return f"{first}<br>{' · '.join([*rest, item.variant])}"


def _collect_cells(items: Sequence[CompileSpeedup]) -> list[Any]:
    return [side.cell for item in items for side in (item.step.base, item.step.other)]


def _make_row(frame: Frame, item: CompileSpeedup) -> dict[str, Any]:
    """Returns everything that is known of one pair, as a table's row."""
    cost, base = item.cost, item.step.base
    known = item.costs()
    return {
        **key_columns(frame, item.step.other.cell),
        "Eager step (ms)": base.times["step"].median_ms,
        "Step (ms)": item.step.other.times["step"].median_ms,
        **pair_columns(item.step),
        **{f"Compile time, {kind} (s)": known[kind][0] if kind in known else None for kind in KINDS},
        **{f"Paid after, {kind} (steps)": known[kind][1].steps if kind in known else None for kind in KINDS},
        **{title_of("steps", name): getattr(cost, name) if cost else None for name in _COSTS},
        title_of("steps", "compiler_fallback"): cost.fallback if cost else None,
    }
