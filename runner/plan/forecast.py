"""How long a sweep will take: predictions, scaled by how far earlier predictions were off.

    flops_per_s = estimate_rate(machine, "bf16", measured={})
    forecast = Forecast(past)                   # (cell, predicted, measured seconds) of earlier rows of this machine
    seconds = forecast.seconds(cell, predicted=4.2)
    forecast.learn(cell, predicted=seconds, measured=5.0)
    left = forecast.left(cell, seconds)

A cell that was measured before on this machine takes its median. Any other cell takes its prediction times the ratio of
measured to predicted seconds of its kind, and a running sweep scales what is left by its own ratios. Limits: a kind
that was never measured is scaled by the ratio of all kinds that are not compiled. Standard library only.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from statistics import median
from typing import Any

from runner.analysis.costs import hardware
from runner.schema import Cell, table_of

#: The weight of the ratio of all kinds beside a kind's own, in predicted seconds.
FAMILIAR_S = 5.0
#: The time that measuring the ceilings takes, at a sweep's start and again at its end, process start included (s).
CEILING_SECONDS: Mapping[str, float] = {"cpu": 1.5, "cuda": 5.0, "mps": 5.0}
#: Assumed until the file has rows: the share of the datasheet's dense peak that an eager step reaches, and the rate of
#: one CPU core in fp32 (FLOP/s).
ASSUMED_SHARE_OF_PEAK, ASSUMED_CORE_FLOPS = 0.3, 40e9


def estimate_rate(machine: Mapping[str, Any], precision: str, *, measured: Mapping[str, float]) -> float:
    """Returns the FLOP/s to expect of `precision` on a machine as `describe` returns it.

    `measured` are medians of earlier rows by precision. Without any, it is a share of the datasheet's peak or, where no
    datasheet is known, a figure per CPU core."""
    if measured:
        return measured.get(precision, max(measured.values()))
    name = machine["device_name"] or ""
    peak = hardware.peak_flops(name, precision) or hardware.peak_flops(name, "fp32")
    return peak * ASSUMED_SHARE_OF_PEAK if peak else ASSUMED_CORE_FLOPS * (machine["cpu_cores"] or 1)


class Forecast:
    """The seconds that cells will take, from (cell, predicted seconds, measured seconds) of the past."""

    def __init__(self, past: Iterable[tuple[Cell, float, float]] = ()) -> None:
        self._before, self._now = _Ratios(), _Ratios()
        measured: defaultdict[str, list[float]] = defaultdict(list)
        for cell, predicted, seconds in past:
            measured[cell.key].append(seconds)
            self._before.add(_kind(cell), predicted, seconds)
        self._known = {key: median(times) for key, times in measured.items()}

    def seconds(self, cell: Cell, *, predicted: float) -> float:
        """Returns the cell's time (s) as forecast before the sweep begins."""
        return self._known.get(cell.key, predicted * self._before.ratio(_kind(cell)))

    def learn(self, cell: Cell, *, predicted: float, measured: float) -> None:
        """Records a cell that has ended and for which this forecast was `predicted` seconds."""
        self._now.add(_kind(cell), predicted, measured)

    def left(self, cell: Cell, seconds: float) -> float:
        """Returns a cell's time (s), first forecast as `seconds`, scaled by what the sweep has learned since."""
        return seconds * self._now.ratio(_kind(cell))


class _Ratios:
    """Sums of predicted and measured seconds by kind of cell."""

    def __init__(self) -> None:
        self._predicted, self._measured = defaultdict[str, float](float), defaultdict[str, float](float)

    def add(self, kind: str, predicted: float, measured: float) -> None:
        self._predicted[kind] += predicted
        self._measured[kind] += measured

    def ratio(self, kind: str) -> float:
        """Returns measured over predicted; 1 before anything was measured."""
        overall = (self._sum(self._measured) + FAMILIAR_S) / (self._sum(self._predicted) + FAMILIAR_S)
        return (self._measured[kind] + overall * FAMILIAR_S) / (self._predicted[kind] + FAMILIAR_S)

    def _sum(self, seconds: Mapping[str, float]) -> float:
        """Returns the seconds of all kinds but compiled ones, whose compile time predicts nothing about other kinds."""
        return sum(seconds[kind] for kind in seconds if _COMPILED not in kind)


_COMPILED = " compiled"


@lru_cache(maxsize=20_000)
def _kind(cell: Cell) -> str:
    """Returns the cell's table, and for a compiled cell its backend and compile cache, which take time of their own."""
    backend, cache = getattr(cell, "backend", "eager"), getattr(cell, "compile_cache", "shared")
    compiled = f" {backend} {cache}" if str(backend).startswith("compiled") else ""
    return f"{table_of(cell).name}{compiled}"
