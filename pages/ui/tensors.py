"""A card of tensors, predicted and measured, of a model's block or of attention.

draw_tensors(frame, Card(…), beside(predicted, measured), cell_id=cell.cell_id)
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from pages.figures.colors import color_of
from pages.figures.frame import escape_text
from pages.figures.tensors import SizePair, size_pairs
from pages.ui.card import Card, draw
from pages.ui.evidence import of_details
from pages.ui.frame import Frame
from runner.analysis.costs.tensors import TensorPair
from runner.formats import format_bytes

_WHOLE = ("attention", "feed_forward")


def draw_tensors(frame: Frame, card: Card, pairs: Sequence[TensorPair], *, cell_id: UUID) -> None:
    """Draws the card with these pairs of one cell; its answer, rows and description follow from them."""
    answer = _describe(pairs)
    card = replace(
        card,
        answer=answer,
        evidence=[of_details(frame, "saved tensors", [cell_id])],
        rows=_make_rows(pairs),
        alt=f"Predicted and measured bytes of each tensor that is kept for backward. {answer} {card.note}",
    )
    draw(frame, card, lambda: size_pairs(_pair_sizes(pairs), state=card.key))


def _pair_sizes(pairs: Sequence[TensorPair]) -> list[SizePair]:
    """Returns the pairs for the chart, each under a name of its own."""
    names = [escape_text(_name_tensor(pair)) for pair in pairs]
    return [
        SizePair(
            name=name if names.count(name) == 1 else f"{name} ({names[:position].count(name) + 1})",
            predicted=pair.predicted.size if pair.predicted else None,
            measured=pair.measured.size if pair.measured else None,
            color=color_of("autocast copy" if pair.predicted and pair.predicted.is_weight_copy else "activation"),
        )
        for position, (name, pair) in enumerate(zip(names, pairs, strict=True))
    ]


def _name_tensor(pair: TensorPair) -> str:
    """Returns the tensor's name after its innermost module, unless that is all of attention or of the feed-forward
    layer."""
    if pair.predicted:
        module = pair.predicted.module.split(".")[-1]
        return " · ".join(part for part in (module, pair.predicted.tensor) if part not in ("", *_WHOLE))
    assert pair.measured is not None
    return " · ".join(part for part in (pair.measured.module, pair.measured.operation, pair.measured.shape) if part)


def _describe(pairs: Sequence[TensorPair]) -> str:
    """Says how many tensors are as predicted to the byte, and what was not predicted or not found."""
    both = [pair for pair in pairs if pair.ratio is not None]
    exact = sum(pair.ratio == 1 for pair in both)
    predicted = sum(pair.predicted.size for pair in pairs if pair.predicted)
    measured = sum(pair.measured.size for pair in pairs if pair.measured)
    words = (
        f"{exact} of {len(pairs)} tensors are as predicted to the byte; together {format_bytes(measured)}, "
        f"predicted {format_bytes(predicted)}."
    )
    extra = sum(pair.predicted is None for pair in pairs)
    missing = sum(pair.measured is None for pair in pairs)
    return (
        words + (f" {extra} were not predicted." if extra else "") + (f" {missing} were not found." if missing else "")
    )


def _make_rows(pairs: Sequence[TensorPair]) -> list[dict[str, Any]]:
    """Returns the rows for the table: tensor, formula, both sizes, and the operation that keeps it."""
    return [
        {
            "Module": next((side.module for side in (pair.predicted, pair.measured) if side), None),
            "Tensor": pair.predicted.tensor if pair.predicted else None,
            "Formula": pair.predicted.formula if pair.predicted else None,
            "Predicted (bytes)": pair.predicted.size if pair.predicted else None,
            "Measured (bytes)": pair.measured.size if pair.measured else None,
            "Measured / predicted": pair.ratio,
            "Kept by": pair.measured.operation if pair.measured else None,
            "Shape": pair.measured.shape if pair.measured else None,
        }
        for pair in pairs
    ]
