"""What goes into a worker and what comes out. Standard library only: the sweep itself never imports torch.

outcome = engine.measure(Job(experiment="benchmark", cell=cell, ...), timeout_s=600)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from runner.schema import Status, StepCell


@dataclass(frozen=True, kw_only=True)
class Job:
    """One cell to measure, as it reaches a worker. `device` is a torch device string; `device_name` the hardware's."""

    experiment: str
    cell: StepCell
    run_id: UUID
    cell_id: UUID
    device: str
    device_name: str


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What came of a cell: the values of its row beyond the key, and the rows of its detail tables by table name."""

    values: Mapping[str, Any]
    details: Mapping[str, Sequence[object]]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a cell ended: with a measurement, or with a status, the phase and the reason."""

    status: Status
    measurement: Measurement = field(default_factory=lambda: Measurement(values={}, details={}))
    failed_phase: str | None = None
    message: str | None = None
