"""Pairs the tensors that a formula predicts with those that were measured.

    >>> size_of("B × S² × 4 bytes", {"B": 8, "S²": 1024**2})
    33554432
    >>> beside(predicted, measured)[0].ratio        # [PredictedTensor], [MeasuredTensor]

Limits: few measured tensors have a name. Where several of one module have the same size, the first measured is paired
with the first predicted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PredictedTensor:
    """A predicted tensor: its name, the module that keeps it, its size as a formula and in bytes."""

    tensor: str
    formula: str
    size: int
    module: str = ""
    is_weight_copy: bool = False


@dataclass(frozen=True, kw_only=True)
class MeasuredTensor:
    """A measured tensor: the operation and module that keep it, its shape and dtype, its bytes. `tensor` is its name,
    where known."""

    operation: str
    shape: str
    size: int
    module: str = ""
    tensor: str | None = None


@dataclass(frozen=True, kw_only=True)
class TensorPair:
    """A predicted tensor and the measured one, None where it was not predicted or not found."""

    predicted: PredictedTensor | None
    measured: MeasuredTensor | None

    @property
    def ratio(self) -> float | None:
        """Measured bytes over predicted ones."""
        return self.measured.size / self.predicted.size if self.predicted and self.measured else None


def size_of(formula: str, numbers: Mapping[str, int]) -> int:
    """Returns the value of a product as it is shown: letters, and numbers with or without commas, joined by ` × `."""
    size = 1
    for factor in formula.removesuffix("s").removesuffix(" byte").split(" × "):
        size *= numbers[factor] if factor in numbers else int(factor.replace(",", ""))
    return size


def beside(predicted: Sequence[PredictedTensor], measured: Sequence[MeasuredTensor]) -> list[TensorPair]:
    """Pairs every predicted tensor with the measured one of its name, else of its module and size, else of its module
    alone. Measured tensors that were not predicted come last."""
    left = list(measured)
    found: dict[int, MeasuredTensor] = {}
    rules = (
        lambda wanted, seen: seen.tensor == wanted.tensor,
        lambda wanted, seen: seen.tensor is None and (seen.module, seen.size) == (wanted.module, wanted.size),
        lambda wanted, seen: seen.tensor is None and seen.module == wanted.module,
    )
    for rule in rules:
        for position, wanted in enumerate(predicted):
            seen = None if position in found else next((item for item in left if rule(wanted, item)), None)
            if seen is not None:
                found[position] = seen
                left.remove(seen)
    pairs = [TensorPair(predicted=wanted, measured=found.get(position)) for position, wanted in enumerate(predicted)]
    return pairs + [TensorPair(predicted=None, measured=seen) for seen in left]
