"""The jobs that workers get and the results that they return. Standard library only: the sweep never imports torch.

outcome = engine.measure(Job(experiment="benchmark", cell=cell, ...), timeout_s=600)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from runner.errors import StepscopeError
from runner.schema import CeilingRow, Cell, Moment, Status
from runner.schema.own import PassFlops


@dataclass(frozen=True, kw_only=True)
class Job:
    """One cell to measure. `device` is a torch device string, `device_name` the hardware's name. `limit_bytes` is the
    memory that the worker may take; None stands for what is free, which the worker then fills in. `flops` are those of
    an own model, where they are known."""

    experiment: str
    cell: Cell
    run_id: UUID
    cell_id: UUID
    device: str
    device_name: str
    limit_bytes: int | None = None
    flops: PassFlops | None = None

    @property
    def ids(self) -> dict[str, Any]:
        """The columns of each of its rows that say whose it is."""
        return {"run_id": self.run_id, "cell_id": self.cell_id}


@dataclass(frozen=True, kw_only=True)
class CeilingJob:
    """The ceilings of this machine, to be measured at one moment of a sweep."""

    run_id: UUID
    moment: Moment
    device: str
    device_name: str


@dataclass(frozen=True, kw_only=True)
class OwnModelJob:
    """An own model to be built once, without measuring it. `points` are the batches and contexts of which the
    operations are to be counted. With `runs`, two steps are run on the device, too."""

    spec: str
    device: str
    points: tuple[tuple[int, int], ...]
    runs: bool = False


@dataclass(frozen=True, kw_only=True)
class FitJob:
    """An own model whose training step is to be counted on fake tensors, of at most so many tokens."""

    spec: str
    context: int
    attention: str
    optimizer: str


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """Measured ceilings, and the reasons why others are missing, by the ceiling's name."""

    rows: Sequence[CeilingRow]
    missing: Mapping[str, str]


class Failed(StepscopeError):
    """A cell ended without a result; `values` are known columns of its row."""

    status: Status = "error"

    def __init__(self, message: str, *, values: Mapping[str, Any], expected: str = "") -> None:
        super().__init__(message, expected=expected)
        self.values = values


class RanOut(Failed):
    """A cell ran out of memory; its values are such as the bytes it asked for."""

    status = "oom"


class Wrong(Failed):
    """A user's own attention or loss computes something else; its values are such as its error."""

    status = "wrong"


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A cell's result: the values of its row beyond the key, and the rows of its detail tables by table name."""

    values: Mapping[str, Any]
    details: Mapping[str, Sequence[object]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a cell ended. A failure has a phase and a message, and its measurement holds the values that are known."""

    status: Status
    measurement: Measurement = field(default_factory=lambda: Measurement(values={}, details={}))
    failed_phase: str | None = None
    message: str | None = None
