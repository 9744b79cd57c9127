"""What a sweep will do on this machine: its cells, which of them are done, and how long the others will take.

    prepared = prepare(request, Settings(db=Path("data/results.duckdb")), LocalEngine())
    print(len(prepared.owed), prepared.seconds)

Nothing is measured here. The forecast is the only one: the terminal, `--dry-run` and the pages show the same.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from runner.engines.local import LocalEngine
from runner.experiments import kind_of
from runner.experiments.experiment import Prediction
from runner.plan.forecast import CEILING_SECONDS, Forecast
from runner.plan.planning import Planned, Request, plan
from runner.plan.prediction import predict, rate
from runner.plan.presets import preset_for
from runner.schema import Cell
from runner.store import history


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a sweep is run, apart from what it measures. Times in seconds."""

    db: Path
    device: str = "auto"
    label: str | None = None
    timeout_s: float = 600.0
    budget_s: float | None = None
    fresh: bool = False
    skip_predicted_oom: bool = False
    ceilings: bool = True


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A planned cell with what is predicted of it; its seconds are those of the forecast."""

    planned: Planned
    predicted: Prediction

    @property
    def name(self) -> tuple[str, int]:
        """What tells it from every other cell of its sweep."""
        return self.planned.cell.key, self.planned.round


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A sweep that knows its machine: every cell with its forecast, and those already done."""

    preset: str
    machine: Mapping[str, Any]
    cells: tuple[Expected, ...]
    done: history.Done
    forecast: Forecast = field(default_factory=Forecast)
    ceiling_seconds: float = 0.0

    @property
    def key(self) -> str:
        """Names this sweep: what is asked, and where."""
        asked = sorted((item.planned.cell.key, item.planned.round) for item in self.cells)
        where = [self.machine[name] for name in ("host", "device_name", "torch", "git_commit")]
        return hashlib.sha256(json.dumps([asked, where]).encode()).hexdigest()[:16]

    @cached_property
    def owed(self) -> tuple[Expected, ...]:
        return tuple(item for item in self.cells if item.name not in self.done)

    @property
    def seconds(self) -> float:
        """What is owed, and the ceilings before and after it."""
        return sum(item.predicted.seconds for item in self.owed) + 2 * self.ceiling_seconds


def prepare(request: Request, settings: Settings, engine: LocalEngine) -> Prepared:
    """Asks the machine what it is, makes the plan for it and looks up what is done. Measures nothing."""
    machine = engine.describe(settings.device)
    device, memory = machine["device"], machine["device_memory_bytes"]
    cells = plan(request, device=device, device_memory_bytes=memory, seed=machine["host"] or "")
    for item in cells:
        kind_of(item.cell).check(item.cell)
    done = {} if settings.fresh else history.done_cells(settings.db, machine)
    forecast, expected = _expected(cells, machine, db=settings.db)
    preset = request.preset or preset_for(device)
    ceilings = CEILING_SECONDS[device] if settings.ceilings else 0.0
    return Prepared(
        preset=preset, machine=machine, cells=expected, done=done, forecast=forecast, ceiling_seconds=ceilings
    )


def _expected(cells: list[Planned], machine: Mapping[str, Any], *, db: Path) -> tuple[Forecast, tuple[Expected, ...]]:
    """The cells with what to expect of each; and the forecast, which knows what earlier cells of this machine took."""
    rates, predictions = history.measured_rates(db, machine), dict[str, Prediction]()

    def predicted(cell: Cell) -> Prediction:
        if cell.key not in predictions:
            speed = rate(machine, getattr(cell, "precision", "fp32"), measured=rates)
            gpu = machine["device_name"] or ""
            predictions[cell.key] = predict(cell, device=machine["device"], flops_per_s=speed, gpu=gpu)
        return predictions[cell.key]

    past = history.past_cells(db, machine)
    forecast = Forecast((cell, predicted(cell).seconds, seconds) for cell, seconds in past)
    expected = []
    for item in cells:
        found = predicted(item.cell)
        seconds = forecast.seconds(item.cell, predicted=found.seconds)
        expected.append(Expected(planned=item, predicted=replace(found, seconds=seconds)))
    return forecast, tuple(expected)
