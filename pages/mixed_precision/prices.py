"""What a precision costs beside its speedup: the clause above the page, and the card of errors and speedups.

clause, evidence = price(frame, "bf16"); draw_price(frame, price_precisions(frame))
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pages.figures.frame import format_error, label_values
from pages.mixed_precision.answers import place_of
from pages.mixed_precision.figures import Price, price_dots
from pages.ui.card import Card, draw
from pages.ui.chosen import rows_of
from pages.ui.comparison import comparison
from pages.ui.evidence import LoadEvidence, of_cells, of_rows, say
from pages.ui.frame import Frame
from pages.ui.marks import pair_columns
from runner.analysis.compare.pairs import Pair
from runner.formats import format_number
from runner.results import StepResult
from runner.schema import NumericsCell, NumericsRow, StepCell
from runner.store.queries.numerics import load_precisions

BASELINE = "fp32"
_SHARED = tuple(name for name in NumericsCell.names() if name != "precision")
_ANSWERS = (
    "status", "reference", "loss", "loss_error", "logits_error", "gradient_error", "worst_gradient_error",
    "worst_gradient", "zero_gradient_share", "loss_scale", "unscaled_zero_gradient_share", "matmul_precision",
    "message",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Priced:
    """One precision of one model, and the speedup of the same step."""

    row: NumericsRow
    speedup: Pair[StepResult] | None


def price_precisions(frame: Frame) -> list[Priced]:
    """Returns every precision that the sidebar's size and context leave; its backends and precisions do not count."""
    free = replace(frame, selection=frame.selection.without("precision", "backend"))
    rows = [one.row for one in frame.ask(load_precisions, rows_of(frame)) if free.selection.holds(one.row.step())]
    variants = {row.precision for row in rows if row.precision != BASELINE}
    speedups = {name: comparison(free, "precision", baseline=BASELINE, variant=name).speedups for name in variants}
    return [Priced(row=row, speedup=_find_speedup(row, speedups.get(row.precision, []))) for row in rows]


def _find_speedup(row: NumericsRow, speedups: Sequence[Pair[StepResult]]) -> Pair[StepResult] | None:
    """Returns the speedup of the plain eager step of the same shape, if it was measured."""
    plain = StepCell(**{name: getattr(row, name) for name in _SHARED}, mode="train", precision="fp32")
    names = (*_SHARED, "backend", "optimizer", "checkpoint_blocks")
    wanted = [getattr(plain, name) for name in names]
    same = (one for one in speedups if [getattr(one.base.cell, name) for name in names] == wanted)
    return next((one for one in same if one.phase == "step"), None)


def price(frame: Frame, variant: str) -> tuple[str, LoadEvidence | None]:
    """Says what `variant` costs in the largest model measured with it, with a function that loads its row; empty and
    None if there is none."""
    rows = [
        one.row
        for one in price_precisions(frame)
        if one.row.precision == variant and one.row.gradient_error is not None
    ]
    if not rows:
        return "", None
    row = rows[-1]
    words = (
        f"Cost in accuracy: gradients are off by **{format_error(row.gradient_error)}** and the loss by "
        f"{format_error(row.loss_error)} (one pass of {place_of(row)} beside {row.reference})."
    )
    return words, of_rows(frame, [row])


def draw_price(frame: Frame, priced: Sequence[Priced]) -> None:
    """Draws the card, with the sentence for the largest model."""
    largest = select_largest(priced)
    done = [one for one in priced if one.row.gradient_error is not None]
    if not largest:
        words = "None of these passes has an error: each was the reference, or has no result."
        say(frame, words, of_rows(frame, [one.row for one in priced]), key="precision-price")
        return
    words = describe_largest(largest)
    say(frame, words, *load_evidence(frame, largest), key="precision-price")
    modes = sorted({one.speedup.base.cell.mode for one in done if one.speedup})
    note = "One forward and backward pass with the same weights and tokens; errors are ‖x − reference‖ / ‖reference‖."
    if modes:
        note += " Speedups are of the eager step of the same shape, with 95% intervals."
    else:
        note += " No speedup is shown: no eager step of these shapes was measured in two precisions."
    card = Card(
        key="precision-price",
        title="Errors beside speedups",
        note=note,
        alt=f"Relative errors of loss, logits and gradients by precision. {words}",
        rows=[_make_row(one) for one in priced],
        cells=[one.row for one in priced],
    )
    draw(frame, card, lambda: price_dots([_make_price(one) for one in done], mode=", ".join(modes)))


def select_largest(priced: Sequence[Priced]) -> list[Priced]:
    """Returns the precisions of the largest model with errors; empty where nothing has one."""
    done = [one for one in priced if one.row.gradient_error is not None]
    return [one for one in done if place_of(one.row) == place_of(done[-1].row)]


def load_evidence(frame: Frame, priced: Sequence[Priced]) -> tuple[LoadEvidence | None, LoadEvidence | None]:
    """Returns a function that loads the rows of the passes, and those of the steps whose speedups stand beside them."""
    steps = [side for one in priced if one.speedup for side in (one.speedup.base, one.speedup.other)]
    return of_rows(frame, [one.row for one in priced]), of_cells(frame, steps)


def describe_largest(priced: Sequence[Priced]) -> str:
    """Says the error of each precision of one model beside its speedup, and what a gradient scaler saves."""
    row = priced[0].row
    errors = [f"**{one.row.precision}** {format_error(one.row.gradient_error)}{_format_speedup(one)}" for one in priced]
    lost = [one.row for one in priced if one.row.unscaled_zero_gradient_share]
    scaler = "".join(
        f" Without its gradient scaler, {one.precision} would lose "
        f"{format_error(one.unscaled_zero_gradient_share)} of the gradients to zero; with it, "
        f"{format_error(one.zero_gradient_share)}."
        for one in lost
    )
    return f"Gradients of {place_of(row)} are off from {row.reference} by {', '.join(errors)}.{scaler}"


def _format_speedup(one: Priced) -> str:
    return f" ({format_number(one.speedup.ratio)}× the speed of {BASELINE})" if one.speedup else ""


def _make_price(one: Priced) -> Price:
    row, speedup = one.row, one.speedup
    errors = {"loss": row.loss_error, "logits": row.logits_error, "gradients": row.gradient_error}
    return Price(
        place=place_of(row), precision=row.precision, cell_id=str(row.cell_id), errors=errors,
        ratio=speedup.ratio if speedup else None, low=speedup.low if speedup else None,
        high=speedup.high if speedup else None,
    )  # fmt: skip


def _make_row(one: Priced) -> dict[str, Any]:
    numbers = label_values("numerics", one.row, ("precision", *_ANSWERS))
    return {"Model": place_of(one.row), **numbers, **pair_columns(one.speedup)}
