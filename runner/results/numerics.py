"""Holds the cost of precision: sums with their partial sums, errors of a pass, statistics of normalization."""

from dataclasses import dataclass

from runner.schema import AccumulationRow, FloatName, NormStatistic, NumericsRow


@dataclass(frozen=True, kw_only=True)
class AccumulationResult:
    """A sum; `on_the_way` are its partial sums as (addends so far, sum so far)."""

    row: AccumulationRow
    machine: str
    on_the_way: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class PrecisionResult:
    """One precision of one model, on one machine."""

    row: NumericsRow
    machine: str


@dataclass(frozen=True, kw_only=True)
class NormalizationResult:
    """A statistic in one dtype at one scale, over all blocks: the worst error and the mean shares."""

    statistic: NormStatistic
    computed_in: FloatName
    scale: float
    error: float | None
    overflowed_share: float
    underflowed_share: float
