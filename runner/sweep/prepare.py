"""What a sweep will do on this machine: its cells, which of them are done, and how long the others will take.

    prepared = prepare(request, Settings(db=Path("data/results.duckdb")), LocalEngine())
    print(len(prepared.owed), prepared.seconds)

Nothing is measured here. The terminal, `--dry-run` and the pages all show this forecast.

`Forecast` predicts how long cells take, scaled by how far earlier predictions were off. A cell that was measured before
on this machine takes its median. Any other cell takes its prediction times the ratio of measured to predicted seconds
of its kind, and a running sweep scales what is left by its own ratios. Limits: a kind that was never measured is scaled
by the ratio of all kinds that are not compiled. Standard library only.
"""

import hashlib
import json
import shlex
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from statistics import median
from threading import Timer
from typing import Any
from uuid import UUID

from runner.analysis.costs import hardware
from runner.engines.engine import Engine
from runner.errors import BadModel
from runner.experiments import kind_of
from runner.experiments.experiment import On, Prediction
from runner.job import OwnModelJob
from runner.plan.planning import Planned, Request, add_repeats, plan
from runner.schema import Cell, Model, PassCell, RunRow, StepCell, table_of, utc_now
from runner.schema.own import OwnModel, PassFlops
from runner.store import history
from runner.sweep.request import Settings

#: The weight of the ratio of all kinds beside a kind's own, in predicted seconds.
FAMILIAR_S = 5.0
#: The time that measuring the ceilings takes, at a sweep's start and again at its end, process start included (s).
CEILING_SECONDS: Mapping[str, float] = {"cpu": 1.5, "cuda": 5.0, "mps": 5.0}
#: Assumed until the file has rows: the share of the datasheet's dense peak that an eager step reaches, and the rate of
#: one CPU core in fp32 (FLOP/s).
ASSUMED_SHARE_OF_PEAK, ASSUMED_CORE_FLOPS = 0.3, 40e9


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
        predicted, measured = (  # of all kinds but compiled ones, whose compile time predicts nothing about others
            sum(seconds for kind, seconds in of.items() if " compiled" not in kind) + FAMILIAR_S
            for of in (self._predicted, self._measured)
        )
        return (self._measured[kind] + measured / predicted * FAMILIAR_S) / (self._predicted[kind] + FAMILIAR_S)


@lru_cache(maxsize=20_000)
def _kind(cell: Cell) -> str:
    """Returns the cell's table, and for a compiled cell its backend and compile cache, which take time of their own."""
    backend, cache = getattr(cell, "backend", "eager"), getattr(cell, "compile_cache", "shared")
    compiled = f" {backend} {cache}" if str(backend).startswith("compiled") else ""
    return f"{table_of(cell).name}{compiled}"


#: A model that takes longer to build is named (s).
BUILD_SECONDS = 3.0
#: Where the user named no context: those at which an own model's operations are counted. And the most counts of one.
CONTEXTS, MAX_POINTS = (64, 128, 512), 8


@dataclass(frozen=True, kw_only=True)
class Expected(Planned):
    """A planned cell with its prediction, whose seconds are those of the forecast."""

    predicted: Prediction

    @property
    def id(self) -> history.CellRound:
        """The cell's key and its round, which no other cell of the sweep has."""
        return self.cell.key, self.round


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A sweep on a known machine: every cell with its forecast, and what came of those already done. It has no preset
    where its cells were given. `is_auto` is whether it adds further rounds. `joined` is the run of which its cells are
    further rounds. `own` are the own models by their keys, and `left_out` says by name why others are not part."""

    preset: str | None
    machine: Mapping[str, Any]
    cells: tuple[Expected, ...]
    is_auto: bool = False
    done: Mapping[history.CellRound, history.MeasuredRound] = field(default_factory=dict)
    forecast: Forecast = field(default_factory=Forecast)
    ceiling_seconds: float = 0.0
    joined: UUID | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, OwnModel] = field(default_factory=dict)

    def counted(self, cell: Cell) -> PassFlops | None:
        """Returns the operations of an own model's cell, where they were counted before it is measured."""
        own = self.own.get(getattr(cell, "model_key", None) or "")
        return own.flops.get((cell.batch, cell.context)) if own and isinstance(cell, PassCell) else None

    def key_on(self, machine: Mapping[str, Any], place: int) -> str:
        """Returns the key by which the same sweep is found again on the same machine, in one of its places, from 0; a
        sweep of a preset does not go on with the run of given cells. One that adds rounds by itself goes on with one
        that measured every cell once."""
        counted = [item for item in self.cells if not (self.is_auto and item.round)]
        ids: list[object] = [*sorted(item.id for item in counted), *([] if self.preset else ["given"])]
        return sweep_key([*ids, place] if place else ids, machine)

    @cached_property
    def owed(self) -> tuple[Expected, ...]:
        return tuple(item for item in self.cells if item.id not in self.done)

    @property
    def seconds(self) -> float:
        """The time of the owed cells and of the ceilings before and after them."""
        return sum(item.predicted.seconds for item in self.owed) + 2 * self.ceiling_seconds


def sweep_key(cells: Sequence[object], machine: Mapping[str, Any]) -> str:
    """Returns 16 hex digits for these cells on this machine, torch version and commit."""
    where = [machine[name] for name in history.SAME_RUN]
    return hashlib.sha256(json.dumps([cells, where]).encode()).hexdigest()[:16]


def new_run(
    run_id: UUID, settings: Settings, machine: Mapping[str, Any], *, sweep_key: str = "", preset: str | None = None
) -> RunRow:
    """Returns the row of a run that starts now."""
    return RunRow(
        run_id=run_id,
        sweep_key=sweep_key,
        label=settings.label,
        preset=preset,
        argv=settings.command or shlex.join(["python", "-m", "runner", *sys.argv[1:]]),
        started_at=utc_now(),
        **machine,
    )


def prepare(
    request: Request,
    settings: Settings,
    engine: Engine,
    *,
    machine: Mapping[str, Any] | None = None,
    own: Mapping[str, OwnModel] | None = None,
    report: Callable[[str], None] = lambda what: None,
) -> Prepared:
    """Describes the machine, plans the cells for it and looks up which are done. Measures nothing. `machine`, and `own`
    models by key, are given where they were described before. `report` is told of a model that takes long to build.

    Raises UsageError for a cell that cannot be built."""
    machine = machine or engine.describe(settings.device)
    device = machine["device"]
    seed, is_auto = machine["host"] or "", request.rounds == "auto"
    left_out: Mapping[str, str] = {}
    if own is None:
        own, left_out = describe_models(request, settings, engine, machine, report=report)
    if "model" in request.axes:
        request = replace(request, axes={**request.axes, "model": tuple(own.values())})
    planned = plan(request, device=device, device_memory_bytes=machine["device_memory_bytes"], seed=seed)
    for item in planned:
        kind_of(item.cell).check(item.cell)
    if is_auto:
        predict = _predictor(machine, rates={}, own=own)
        planned = add_repeats(planned, {item.cell.key: predict(item.cell).seconds for item in planned}, seed=seed)
    following = history.next_rounds(settings.db, settings.joins, machine) if settings.joins else None
    if following:
        planned = [replace(item, round=item.round + following.get(item.cell.key, 0)) for item in planned]
    forecast, cells = _forecast(planned, machine, own, db=settings.db)
    return Prepared(
        preset=request.named_preset(device),
        machine=machine,
        cells=cells,
        done={} if settings.fresh else _find_done(settings, machine, planned),
        forecast=forecast,
        is_auto=is_auto,
        ceiling_seconds=CEILING_SECONDS[device] if settings.ceilings else 0.0,
        joined=settings.joins if following else None,
        left_out=left_out,
        own=own,
    )


def _find_done(
    settings: Settings, machine: Mapping[str, Any], planned: Sequence[Planned]
) -> dict[history.CellRound, history.MeasuredRound]:
    """Returns the rounds that need not be measured again. Rounds of two commits never count together: of a cell that
    another commit measured in fewer rounds than are planned, all are measured at this one."""
    own = history.measured_rounds(settings.db, machine)
    if not settings.any_commit:
        return own
    done = history.measured_rounds(settings.db, machine, any_commit=True)
    short = {key for key, _ in own} | {item.cell.key for item in planned if (item.cell.key, item.round) not in done}
    return {place: found for place, found in done.items() if place in own or place[0] not in short}


def _predictor(
    machine: Mapping[str, Any], *, rates: Mapping[str, float], own: Mapping[str, OwnModel]
) -> Callable[[Cell], Prediction]:
    """Returns a function that predicts a cell on a machine as `describe` returns it. `rates` are the median FLOP/s of
    earlier rows by precision; without any, a share of the datasheet's peak counts or, where no datasheet is known, a
    figure per CPU core."""
    gpu = machine["device_name"] or ""

    @cache
    def predict(cell: Cell) -> Prediction:
        precision = getattr(cell, "precision", "fp32")
        if rates:
            rate = rates.get(precision, max(rates.values()))
        elif peak := hardware.peak_flops(gpu, precision) or hardware.peak_flops(gpu, "fp32"):
            rate = peak * ASSUMED_SHARE_OF_PEAK
        else:
            rate = ASSUMED_CORE_FLOPS * (machine["cpu_cores"] or 1)
        return kind_of(cell).predict(cell, On(device=machine["device"], flops_per_s=rate, gpu=gpu, own=own))

    return predict


def _forecast(
    planned: list[Planned], machine: Mapping[str, Any], own: Mapping[str, OwnModel], *, db: Path
) -> tuple[Forecast, tuple[Expected, ...]]:
    """Returns the forecast from this machine's earlier cells, and each planned cell with its prediction."""
    predict = _predictor(machine, rates=history.measured_rates(db, machine), own=own)
    forecast = Forecast((cell, predict(cell).seconds, seconds) for cell, seconds in history.past_cells(db, machine))
    expected = []
    for item in planned:
        predicted = predict(item.measured)
        seconds = forecast.seconds(item.measured, predicted=predicted.seconds)
        expected.append(Expected(**vars(item), predicted=replace(predicted, seconds=seconds)))
    return forecast, tuple(expected)


def describe_models(
    request: Request,
    settings: Settings,
    engine: Engine,
    machine: Mapping[str, Any],
    *,
    report: Callable[[str], None],
) -> tuple[Mapping[str, OwnModel], Mapping[str, str]]:
    """Builds every own model of a request once, within the limit of a cell, which builds it, too. Returns them by key,
    and by name why others cannot be built.

    Raises BadModel where none can, and where a cell that was given is of another version of its source."""
    specs: tuple[str, ...] = request.axes.get("model", ())
    given = [cell for cell in request.cells if isinstance(cell, Model) and cell.model_key is not None]
    own, failed = dict[str, OwnModel](), dict[str, BadModel]()
    for spec in dict.fromkeys((*specs, *(cell.model or "" for cell in given))):
        waiting = f"Building {spec} …, for at most {settings.timeout_s:g} s (--timeout)."
        (timer := Timer(BUILD_SECONDS, report, (waiting,))).start()
        try:
            job = OwnModelJob(spec=spec, device=settings.torch_device(machine), points=list_points(request, spec))
            described = engine.describe_model(job, timeout_s=settings.timeout_s)
            own[described.key] = described
        except BadModel as error:
            failed[spec] = error
        finally:
            timer.cancel()
    if failed and (not own or given):
        raise next(iter(failed.values()))
    for cell in given:
        if cell.model_key not in own:
            raise BadModel(
                f"{cell.model} is another version than that of the row, whose key is {cell.model_key}.",
                do="Bring back that version of the source, or measure the new one with sweep --model.",
            )
    return own, {spec: str(error) for spec, error in failed.items()}


def list_points(request: Request, spec: str) -> tuple[tuple[int, int], ...]:
    """Returns the batches and contexts at which an own model may be measured, at most MAX_POINTS."""
    given = {(cell.batch, cell.context) for cell in request.cells if isinstance(cell, PassCell) and cell.model == spec}
    asked = {
        (batch, context)
        for batch in request.axes.get("batch", (StepCell.batch,))
        for context in request.axes.get("contexts", CONTEXTS)
    }
    return tuple(sorted(given or asked)[:MAX_POINTS])
