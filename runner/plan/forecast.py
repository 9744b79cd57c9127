"""How long will a sweep take? What is predicted of its cells, held against what cells of their kind took.

    forecast = Forecast(past)                   # (cell, predicted, measured seconds) of earlier rows of this machine
    seconds = forecast.seconds(cell, predicted=4.2)
    forecast.learn(cell, predicted=seconds, measured=5.0)
    left = forecast.left(cell, seconds)

A cell that was measured here before takes its median. For any other the prediction is scaled as those of its kind were
off, and what a sweep learns while it runs scales what is left. Limits: of a kind that was never measured, all that is
known is how far the others were off. Standard library only.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from statistics import median

from runner.schema import Cell, table_of

#: Predicted seconds of one kind that have to be seen before its own measurements count as much as all the others'.
FAMILIAR_S = 5.0
#: What the ceilings take at a sweep's start and again at its end, their process included, by device (s).
CEILING_SECONDS: Mapping[str, float] = {"cpu": 1.5, "cuda": 5.0, "mps": 5.0}
#: A cell, what was predicted of it and what it took (s).
Past = tuple[Cell, float, float]


class Forecast:
    """Seconds of cells, from predictions and from what came of them."""

    def __init__(self, past: Iterable[Past] = ()) -> None:
        self._before, self._now = _Ratios(), _Ratios()
        measured: defaultdict[str, list[float]] = defaultdict(list)
        for cell, predicted, seconds in past:
            measured[cell.key].append(seconds)
            self._before.add(_kind(cell), predicted, seconds)
        self._known = {key: median(found) for key, found in measured.items()}

    def seconds(self, cell: Cell, *, predicted: float) -> float:
        """What the cell will take, before the sweep has begun."""
        return self._known.get(cell.key, predicted * self._before.of(_kind(cell)))

    def learn(self, cell: Cell, *, predicted: float, measured: float) -> None:
        """A cell has ended that was to take `predicted` seconds by this forecast."""
        self._now.add(_kind(cell), predicted, measured)

    def left(self, cell: Cell, seconds: float) -> float:
        """What the cell will take, by all that the sweep has shown since `seconds` were forecast."""
        return seconds * self._now.of(_kind(cell))


class _Ratios:
    """How far predictions were off, by kind of cell. A kind that was hardly seen is taken to be off as all are."""

    def __init__(self) -> None:
        self._predicted: defaultdict[str, float] = defaultdict(float)
        self._measured: defaultdict[str, float] = defaultdict(float)

    def add(self, kind: str, predicted: float, measured: float) -> None:
        self._predicted[kind] += predicted
        self._measured[kind] += measured

    def of(self, kind: str) -> float:
        """Measured over predicted; 1 before anything was measured."""
        every = (sum(self._measured.values()) + FAMILIAR_S) / (sum(self._predicted.values()) + FAMILIAR_S)
        return (self._measured[kind] + every * FAMILIAR_S) / (self._predicted[kind] + FAMILIAR_S)


@lru_cache(maxsize=20_000)
def _kind(cell: Cell) -> str:
    """Cells of one table; compiling is work of another kind, and without a cache there is more of it."""
    backend, cache = getattr(cell, "backend", "eager"), getattr(cell, "compile_cache", "shared")
    compiled = f" {backend} {cache}" if str(backend).startswith("compiled") else ""
    return f"{table_of(cell).name}{compiled}"
