"""The app's queries, compared with values computed by hand."""

import itertools
import math
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from statistics import fmean, variance
from typing import Any
from uuid import UUID

import pytest

from runner.analysis.pair import Pair, pair_cells, partner_key
from runner.analysis.statistics import estimate, ratio
from runner.results.cells import StepResult
from runner.results.times import Estimate, Noise, RoundTime
from runner.schema import TABLES, Model, StepCell, utc_now
from runner.store.database import open_reader
from runner.store.read import runs, selection, tables
from runner.store.read import timed as timed_cells
from runner.store.read.findings import load_findings
from runner.store.read.selection import Selection
from runner.store.read.tables import MAX_ROWS, Window
from runner.store.read.timed import NoiseKind, load_noise
from runner.store.spool import Spool
from tests.command import run
from tests.rounds import estimate_within_rounds
from tests.some import some
from tests.synthetic import rows
from tests.synthetic.sides import timed

TOY_256 = Model(**rows.TOYS["toy-256"])


@pytest.fixture(scope="module")
def laptop(module_db: Path) -> Path:
    return rows.store(module_db, of := rows.run(label="first look"), rows.laptop(of))


def test_contents(laptop: Path) -> None:
    """Of 29 cells are 18 of the grid (of which 2 failed), 4 compiled, 3 for inference, and a warm-up ablation of 4."""
    held = runs.load_contents(laptop)
    assert [(run.label, run.ok, run.failed, run.skipped) for run in held.runs] == [("first look", 27, 2, 0)]
    assert held.machines == ("Example CPU · bench1",)
    assert [shape.d_model for shape in held.shapes] == [64, 128, 256]
    assert held.choices["context"] == (64, 128, 256)
    assert set(held.choices["precision"]) == {"fp32", "bf16"}
    assert set(held.choices["mode"]) == {"train", "inference"}


def test_the_edition_follows_the_data(tmp_path: Path) -> None:
    """A copy has the same edition, another row changes it; whether rows wait in the spool does not matter."""
    of, path = rows.run(), tmp_path / "a.duckdb"
    rows.spooled(path, of, rows.ok(of, rows.asked()))
    before = runs.load_contents(path).edition
    rows.store(path, of, [])
    copy = tmp_path / "b.duckdb"
    copy.write_bytes(path.read_bytes())
    assert runs.load_contents(path).edition == runs.load_contents(copy).edition == before
    rows.store(path, of, [rows.ok(of, rows.asked(context=64))])
    assert runs.load_contents(path).edition != before


def test_measured_times(laptop: Path) -> None:
    """The synthetic step is symmetric about layers * d_model**1.5 * context / 20,000 ms, its median."""
    cells = timed_cells.load_steps(laptop, Selection(mode="train", precision=("fp32",), backend=("eager",)))
    found = {(cell.cell.d_model, cell.cell.context): cell for cell in cells}
    assert list(found) == list(itertools.product((64, 128, 256), (64, 128, 256)))
    whole = found[128, 64].times["step"]
    assert whole.step.ms == pytest.approx(3 * 128**1.5 * 64 / 20_000, rel=1e-9)
    assert (whole.step.low_ms, whole.step.high_ms) == (None, None), "without repeats, processes may vary in any way"
    assert whole.n == 11
    assert found[128, 64].times["backward"].step.ms == pytest.approx(0.56 * whole.step.ms, rel=1e-9)
    assert sorted(found[128, 64].times) == ["backward", "forward", "forward_backward", "loss", "optimizer", "step"]


def test_a_time_is_estimated_once_and_only_if_it_is_asked_for(laptop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    estimated: list[int] = []

    def record(rounds: Sequence[RoundTime], noise: Noise | None = None) -> Estimate:
        estimated.append(len(rounds))
        return estimate(rounds, noise)

    monkeypatch.setattr(timed_cells, "estimate", record)
    cell = timed_cells.load_steps(laptop, Selection(mode="train"))[0]
    assert (len(cell.times), "step" in cell.times, estimated) == (6, True, [])
    assert cell.times["step"] is cell.times["step"]
    assert estimated == [1]
    assert (len(list(cell.times.values())), estimated) == (6, [1] * 6)


def test_a_failed_cell_keeps_its_key_and_reason(laptop: Path) -> None:
    cells = timed_cells.load_steps(laptop, Selection(mode="train", context=(256,), size=(TOY_256,)))
    assert [(cell.status, cell.failed_phase, cell.times) for cell in cells] == [
        ("oom", "backward", {}),
        ("timeout", "warmup", {}),
    ]
    assert cells[0].message == "tried to allocate 2.5 GiB; 1.1 GiB are free"


def test_the_longest_warmup_is_shown(laptop: Path) -> None:
    """Of five cells that differ only in effort, the most thorough one is shown."""
    one = Selection(mode="train", size=(TOY_256,), context=(128,), precision=("fp32",), backend=("eager",))
    assert [(cell.cell.warmup_steps, cell.cell.max_steps) for cell in timed_cells.load_steps(laptop, one)] == [(5, 200)]
    early = timed_cells.load_early_steps(laptop, one)
    assert sorted({step.cell.warmup_steps for step in early}) == [0, 1, 2, 5]
    first = next(step for step in early if step.cell.warmup_steps == 0 and step.step == 0)
    assert not first.is_warmup
    assert first.step_ms == pytest.approx(6 * 4 * 256**1.5 * 128 / 20_000)


def test_rounds_are_pooled(tmp_path: Path) -> None:
    """Three rounds give the geometric mean of their medians, and its Student's interval with two degrees of freedom."""
    of, cell = rows.run(), rows.asked()
    rounds = [rows.ok(of, cell, round=number) for number in range(3)]
    path = rows.store(tmp_path / "r.duckdb", of, rounds)
    (found,) = timed_cells.load_steps(path, Selection())
    timings = [next(t for t in item.timings if t.phase == "forward") for item in rounds]
    assert (found.rounds, found.times["forward"].n) == (3, 33)
    logs = [math.log(t.median_ms or 0) for t in timings]
    assert found.times["forward"].step.ms == pytest.approx(math.exp(fmean(logs)))
    with open_reader(path) as reader:
        kind = NoiseKind(device=found.machine, bound=None, phase="forward")
        noise = load_noise(reader, "steps", [found.machine])[kind]
    spread = math.sqrt((2 * variance(logs) + noise.dof * noise.std**2) / (2 + noise.dof))
    within = math.sqrt(fmean(math.log((t.high_ms or 0) / (t.low_ms or 0)) ** 2 for t in timings)) / (2 * 1.959964)
    reach = math.exp(3.182446 * max(spread, within) / math.sqrt(3))
    assert noise.dof == 1, "one half, from this cell alone"
    assert found.times["forward"].step.low_ms == pytest.approx(found.times["forward"].step.ms / reach)
    assert found.times["forward"].step.high_ms == pytest.approx(found.times["forward"].step.ms * reach)
    assert {sample.round for sample in selection.load_samples(path, "steps", found.cell_id)} == {0, 1, 2}


def test_cells_of_the_same_rounds_are_paired(tmp_path: Path) -> None:
    """Two cells that a drifting machine measured in three rounds, and one in two of them: what is left within rounds is
    what Python makes of the same times, and so is the ratio of the two."""
    of, size, drift = rows.run(), ("toy-64", "toy-128", "toy-256"), (1.0, 1.2, 1.5)
    cells = [rows.asked(name) for name in size]
    stored = [
        timed(of, cell, (10.0 * drift[number] * (1 + 0.01 * (number == place)),) * 11, round=number)
        for place, cell in enumerate(cells)
        for number in range(3 if place < 2 else 2)
    ]
    path = rows.store(tmp_path / "p.duckdb", of, stored)
    found = {cell.cell.d_model: cell.times["step"].step for cell in timed_cells.load_steps(path, Selection())}
    times = [[RoundTime(median_ms=ms, id=id) for id, ms in found[cell.shape.d_model].medians.items()] for cell in cells]
    assert [len(one) for one in times] == [3, 3, 2]
    within = found[64].noise and found[64].noise.within_rounds
    expected = estimate_within_rounds(times)
    assert within
    assert expected
    assert (within.std, within.dof) == pytest.approx((expected.std, expected.dof))
    a, b = found[64], found[128]
    reach = math.log((ratio(a, b).high or 0) / ratio(a, b).ratio)
    assert reach < math.log((a.high_ms or 0) / a.ms) / 3, "unpaired, it is √2 times as wide"


def test_the_latest_run_and_the_last_try_count(tmp_path: Path) -> None:
    path, cell = tmp_path / "l.duckdb", rows.asked()
    old = rows.run(label="old")
    time.sleep(0.002)  # ids are ordered by the millisecond
    new = rows.run(label="new")
    rows.store(path, old, [rows.ok(old, cell)])
    tries = [rows.failed(new, cell, status="crashed")]
    time.sleep(0.002)
    rows.store(path, new, [*tries, rows.ok(new, cell)])
    (latest,) = timed_cells.load_steps(path, Selection())
    assert (latest.run_id, latest.status, latest.rounds) == (new.run_id, "ok", 1)
    (chosen,) = timed_cells.load_steps(path, Selection(run=old.run_id))
    assert chosen.run_id == old.run_id


def test_rounds_of_a_sweep_that_goes_on_elsewhere_count_together(tmp_path: Path) -> None:
    """Another GPU of the same name measures the rounds that a sweep had left: one cell of three rounds. A run at
    another commit, and one that measures the cell from its first round on, stand alone."""
    path, cell, ids, ms = tmp_path / "l.duckdb", rows.asked(), list[UUID](), rows.step_ms(rows.asked())
    for commit, numbers, together in (
        ("a", (0, 1), {0: 0, 1: 0}),
        ("a", (2,), {0: 0, 1: 0, 2: 1}),
        ("b", (2,), {2: 2}),
        ("b", (0,), {0: 3}),
    ):
        time.sleep(0.002)  # ids are ordered by the millisecond
        own = rows.run(git_commit=commit, device_uuid=f"GPU-{len(ids)}")
        rows.store(path, own, [rows.ok(own, cell, round=number, slower=1.0 + number) for number in numbers])
        ids.append(own.run_id)
        (found,) = timed_cells.load_steps(path, Selection())
        assert (found.run_id, found.rounds) == (own.run_id, len(together))
        expected = {(ids[place], number): ms * (1 + number) for number, place in together.items()}
        step = found.times["step"].step
        assert (step.medians or {(own.run_id, numbers[0]): step.ms}) == pytest.approx(expected)
        assert {one.round for one in selection.load_samples(path, "steps", found.cell_id)} == {*together}
        since = [*ids[-2:-1]] if commit == "b" else []
        assert timed_cells.find_latest(path, Selection()) == [own.run_id, *since], "a run is no change since its own"
    (history,) = timed_cells.load_history(path, Selection())
    assert history.times["step"] == pytest.approx((2 * ms, 3 * ms, ms)), "a point for each sweep"
    assert run("note", str(ids[0]), "--baseline", db=path).returncode == 0
    assert timed_cells.find_latest(path, Selection()) == [ids[3], ids[0]]


def compare(cells: list[StepResult], axis: str, base: str, other: str) -> list[Pair[StepResult]]:
    sides = ([cell for cell in cells if getattr(cell.cell, axis) == value] for value in (base, other))
    return pair_cells(*sides, key=lambda one: partner_key(one, axis))


def test_speedups(laptop: Path) -> None:
    """bf16 was made exactly twice as fast, and compiled 1.2 times. A pair that failed says how."""
    cells = timed_cells.load_steps(laptop, Selection(mode="train"))
    pairs = compare(cells, "precision", "fp32", "bf16")
    ratios = [one for pair in pairs for phase in ("forward", "backward", "step") if (one := pair.ratio(phase=phase))]
    assert [found.ratio for found in ratios] == pytest.approx([2.0] * 30, rel=1e-3)
    assert {found.outcome for found in ratios} == {"undecided"}, "one process is not enough for a verdict"
    assert [pair.objection for pair in pairs if pair.objection] == ["oom and timeout"]
    compiled = [pair.ratio() for pair in compare(cells, "backend", "eager", "compiled-block")]
    assert [found and found.ratio for found in compiled] == pytest.approx([1.2] * 4, rel=1e-3)


OTHER_CELLS = (
    {"batch": 8}, {"attention": "sdpa"}, {"context": 64}, {"weights_dtype": "bf16"}, {"mode": "backward"},
    {"optimizer": "fused"}, {"checkpoint_blocks": 1},
)  # fmt: skip
OTHER_MACHINES = ({"host": "bench2"}, {"device_name": "Other CPU"}, {"torch": "2.14.0"})


@pytest.mark.parametrize(
    ("other", "machine"), some([*((other, {}) for other in OTHER_CELLS), *(({}, one) for one in OTHER_MACHINES)])
)
def test_only_comparable_cells_are_compared(tmp_path: Path, other: dict[str, Any], machine: dict[str, str]) -> None:
    path, of, elsewhere = tmp_path / "c.duckdb", rows.run(), rows.run(**machine)
    rows.store(path, of, [rows.ok(of, rows.asked())])
    rows.store(path, elsewhere, [rows.ok(elsewhere, rows.asked(precision="bf16", **other))])
    cells = timed_cells.load_steps(path, Selection())
    assert len(cells) == 2
    assert not compare(cells, "precision", "fp32", "bf16")


@pytest.mark.parametrize("table", TABLES)
def test_the_pages_of_a_table(laptop: Path, table: str) -> None:
    whole = tables.load_page(laptop, table, Selection(), Window(limit=MAX_ROWS))
    assert whole.total == len(whole.rows) == tables.count_rows(laptop)[table]
    starts = range(0, whole.total, 500)
    pages = [tables.load_page(laptop, table, Selection(), Window(limit=500, offset=start)).rows for start in starts]
    assert [row for page in pages for row in page] == whole.rows
    assert all(len(row) == len(TABLES[table].columns) for row in whole.rows)


def test_tables_follow_the_selection(laptop: Path) -> None:
    assert tables.load_page(laptop, "steps", Selection(), Window(statuses=("oom",))).total == 1
    one = Selection(mode="train", context=(64,), size=(Model(**rows.TOYS["toy-64"]),), precision=("bf16",))
    assert tables.load_page(laptop, "timings", one, Window()).total == 6
    assert tables.load_page(laptop, "samples", one, Window()).total == 4 * (5 + 11)


def test_progress(tmp_path: Path) -> None:
    """Two of five are done and the third is running, so three times two seconds remain; after 15 s without a heartbeat
    the sweep counts as dead."""
    of, path = rows.run(), tmp_path / "p.duckdb"
    Spool(path).write_plan(rows.plan(of, list("abcde"), done=2), of.run_id)
    (sweep,) = runs.load_progress(path)
    assert (sweep.done, sweep.total, sweep.current, sweep.waiting) == (2, 5, "c", ("d", "e"))
    assert sweep.seconds_left == 6.0
    assert sweep.is_alive()
    assert not sweep.is_alive(now=utc_now() + timedelta(seconds=16))
    Spool(path).write_plan(rows.plan(of, list("ab"), done=2), of.run_id)
    assert runs.load_progress(path) == []


def test_a_cell_is_read_back_as_a_cell(laptop: Path) -> None:
    for measured in timed_cells.load_steps(laptop, Selection()):
        assert isinstance(measured.cell, StepCell)
        assert measured.cell.key == measured.cell_key


def test_the_audit_reads_the_steps_of_each_cell(laptop: Path) -> None:
    """A synthetic cell without warm-up begins with a step six times as long, which the audit finds; a cell with five
    warm-up steps has no finding."""
    cells = timed_cells.load_steps(laptop, Selection(mode="train", settled=False))
    of_warmup = {cell.cell.warmup_steps: cell.cell_id for cell in cells if cell.cell.min_steps == cell.cell.max_steps}
    out_of_memory = next(cell.cell_id for cell in cells if cell.status == "oom")
    findings = load_findings(laptop, (of_warmup[0], of_warmup[5], out_of_memory))
    wide, cold = findings[of_warmup[0]]
    assert (cold.code, wide.code) == ("cold_step", "wide_interval")
    assert float(cold.evidence["first_ms"]) / float(cold.evidence["median_ms"]) == pytest.approx(6, rel=0.02)
    assert (findings[of_warmup[5]], findings[out_of_memory]) == ([], [])
