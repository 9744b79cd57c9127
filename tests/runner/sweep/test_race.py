"""Which ways a race tries and which it leaves out, on devices that are a formula."""

import io
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from runner.cli.progress import SweepLines
from runner.cli.terminal import Terminal
from runner.engines.local import LocalEngine
from runner.experiments import kind_of
from runner.experiments.experiment import On
from runner.job import Job, Measurement, Outcome
from runner.plan.planning import Request
from runner.results.cells import StepResult
from runner.results.times import Estimate, PhaseTime
from runner.schema import StepCell, new_id
from runner.schema.axes import PLAIN
from runner.sweep.prepare import Expected, prepare
from runner.sweep.race import FILLING, Race, Tuner, list_ways, way_of
from runner.sweep.request import Settings
from tests.command import rows
from tests.synthetic.rows import ok
from tests.synthetic.rows import run as a_run

GAINS = {
    "bf16": 5.0, "fp16": 4.6, "tf32": 3.0, "sdpa": 1.5, "sdpa-cudnn": 1.62, "sdpa-flash": 1.5, "sdpa-efficient": 1.3,
    "compiled-block": 1.4, "compiled": 1.45, "fused": 1.1, "cuda-graphs": 1.02,
}  # fmt: skip
Truth = Callable[[StepCell], StepResult]


def rate(cell: StepCell) -> float:
    """Tokens per second: each setting brings its factor, and a batch of b the share b / (b + 12) of what there is."""
    names = (cell.precision, cell.attention, cell.backend, cell.optimizer, f"{cell.weights_dtype} weights")
    gain = math.prod({**GAINS, "bf16 weights": 1.05}.get(name, 1.0) for name in names)
    return 1e5 * gain * cell.batch / (cell.batch + 12) * (0.75 if cell.checkpoint_blocks else 1.0)


def result(cell: StepCell, *, status: str = "ok") -> StepResult:
    ms = cell.batch * cell.context / rate(cell) * 1e3
    times = {"step": PhaseTime(step=Estimate(ms=ms, rounds=1))} if status == "ok" else {}
    return StepResult(
        cell_id=new_id(), machine="m", cell=cell, status=status, cell_key=cell.key, torch="2", times=times,  # type: ignore[arg-type]
        run_id=new_id(), rounds=1, parameters=1, tokens_per_s=None, mfu=None, compile_seconds=None,
    )  # fmt: skip


@cache
def expect_ways() -> list[Expected]:
    on = On(device="cuda", flops_per_s=2e14, gpu="NVIDIA H200")
    return [
        Expected(experiment="benchmark", cell=one, round=0, predicted=kind_of(one).predict(one, on))
        for one in list_ways({"sizes": ("small",)}, 512, "cuda")
    ]


def make_race(*, room_gib: float = 130, budget_s: float = 600) -> Race:
    return Race(expect_ways(), device="cuda", room_bytes=round(room_gib * 2**30), budget_s=budget_s)


def run(race: Race, truth: Truth, *, most: int = 60) -> int:
    """Races as the tuner does, and returns the number of trials."""
    trials = 0
    while anchor := race.find_anchor():
        race.take([truth(anchor.cell)])  # type: ignore[arg-type]
        trials += 1
    for find in (race.list_changes, lambda: race.list_promising(4), lambda: race.list_promising(4)):
        items = find() if race.ranked() else []
        race.take([truth(item.cell) for item in items[:most]])  # type: ignore[arg-type]
        trials += len(items[:most])
    return trials


def test_a_race_finds_the_best_of_thousands_in_some_tens_of_trials() -> None:
    race = make_race()
    race.rates = {"fp32": 5e13, "tf32": 3.5e14, "bf16": 7e14}
    trials = run(race, result)
    best = max((item.cell for way, item in race.items.items() if not race.objection(way)), key=rate)  # type: ignore[arg-type]
    assert rate(race.items[race.ranked()[0]].cell) > 0.99 * rate(best)  # type: ignore[arg-type]
    assert trials < 40 < 3000 < len(race.items)
    anchor = race.items[race.anchor or ()].cell
    assert isinstance(anchor, StepCell)
    assert anchor.batch * anchor.context == FILLING["cuda"]


def test_what_cannot_win_is_left_out_with_the_reason() -> None:
    race = make_race(room_gib=30)
    race.rates = {"fp32": 5e13}
    run(race, lambda cell: result(cell, status="oom" if cell.batch > 16 else "ok"))
    reasons = race.list_left_out(race.known.values())
    assert set(reasons) | set(race.known) == set(race.items)
    assert not set(reasons) & set(race.known)
    kinds = {
        "predicted not to fit into 30.0 GiB", "a smaller batch ran out of memory",
        "computes activations again that fit", "fp32 products alone would take longer than the best way",
        "not promising, by what its settings brought elsewhere",
    }  # fmt: skip
    assert {*reasons.values()} == kinds
    for way, why in reasons.items():
        cell = race.items[way].cell
        assert isinstance(cell, StepCell)
        if "fp32" in why:
            assert cell.precision == "fp32"
        if "again" in why:
            kept = way_of(replace(cell, checkpoint_blocks=0))
            assert cell.checkpoint_blocks
            assert race.known.get(kept, result(cell)).status != "oom"
    long = make_race(budget_s=60).list_left_out([])
    assert {"compiled", "compiled-block"} <= {way[3] for way, why in long.items() if "one trial takes longer" in why}


def test_a_device_without_a_compiler_begins_eager_and_a_broken_model_ends_the_race() -> None:
    race = make_race()
    run(race, lambda cell: result(cell, status="ok" if cell.backend == "eager" else "error"), most=8)
    assert [one.status for one in race.known.values()][:2] == ["error", "ok"]
    assert race.anchor
    assert race.anchor[3] == "eager"
    broken = make_race()
    assert run(broken, lambda cell: result(cell, status="error")) == 4
    assert not broken.ranked()


def test_by_energy_the_way_of_most_tokens_a_joule_leads() -> None:
    race = make_race()
    race.by_energy = True
    one, other = (item.cell for item in list(race.items.values())[:2])
    assert isinstance(one, StepCell)
    assert isinstance(other, StepCell)
    race.take([replace(result(one), step_joules=1e9), replace(result(other), step_joules=1.0)])
    assert race.ranked()[0] == way_of(other)


class Formula:
    """An engine on which a cell takes what a formula says, at once; and less with each setting that is not plain."""

    def __init__(self) -> None:
        self.cells: list[StepCell] = []

    def describe(self, device: str) -> dict[str, Any]:
        return LocalEngine().describe("cpu")

    def measure(self, job: Job, *, timeout_s: float, beat: Any = None) -> Outcome:
        assert isinstance(job.cell, StepCell)
        self.cells.append(job.cell)
        slower = 0.8 ** sum(getattr(job.cell, name) != value for name, value in PLAIN.items())
        made = ok(a_run(run_id=job.run_id), job.cell, slower=slower)
        timings = [replace(one, run_id=job.run_id, cell_id=job.cell_id) for one in made.timings]
        values = {"tokens_per_s": made.step.tokens_per_s, "steps": made.step.steps}
        return Outcome(status="ok", measurement=Measurement(values=values, details={"timings": timings}))


def race_by_formula(db: Path) -> tuple[Tuner, list[StepCell]]:
    engine: Any = Formula()
    settings = Settings(db=db, device="cpu", ceilings=False)
    prepared = prepare(Request(cells=tuple(list_ways({"sizes": ("toy-64",)}, 128, "cpu"))), settings, engine)
    race = Race(prepared.cells, device="cpu", room_bytes=None, budget_s=3600)
    lines = SweepLines(Terminal(file=io.StringIO()), db=db)
    tuner = Tuner(prepared, settings, engine=engine, watcher=lines, race=race, began=time.monotonic())
    assert tuner.run()
    return tuner, engine.cells


def test_a_whole_race_ends_with_the_winner_beside_itself_without_each_choice(tmp_path: Path) -> None:
    tuner, cells = race_by_formula(tmp_path / "r.duckdb")
    finals = [cell for cell in cells if cell.warmup_steps == 5]
    winner = max(finals, key=finals.count)
    assert (winner.precision, winner.weights_dtype, winner.batch) == ("bf16", "bf16", 32)
    assert (winner.backend, winner.attention, winner.optimizer) == ("compiled", "sdpa", "fused")
    assert finals.count(winner) > 2
    plain: dict[str, Any] = {**PLAIN, "batch": 4}
    others = {name: replace(winner, **{name: value}) for name, value in plain.items() if getattr(winner, name) != value}
    others["precision"] = replace(others["precision"], weights_dtype="fp32")
    assert len(others) == 6
    assert {*others.values()} <= {*finals}
    (counts,) = rows(tmp_path / "r.duckdb", "SELECT count(*) AS n, count(DISTINCT (cell_key, round)) AS d FROM steps")
    assert counts["n"] == counts["d"] == len(cells)
    again, more = race_by_formula(tmp_path / "r.duckdb")
    assert not more
    assert again.run_id == tuner.run_id
