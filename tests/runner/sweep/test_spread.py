"""One plan in two places at once: every cell once, what is compared in one place, what a place leaves in the other.

The places are two engines of this CPU: they slow each other down, which a test of what is measured where allows."""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.engines.engine import Engine, PlaceLost
from runner.engines.local import LocalEngine
from runner.errors import UsageError
from runner.job import Job, Outcome
from runner.plan.planning import Shard, take_shard
from runner.schema import Row
from runner.store.read.runs import load_progress
from runner.sweep.loop import SweepEnd
from runner.sweep.start import spread
from tests.command import TINY, make_job, parsed, planned, rows, run, tiny

#: 4 sizes × 2 modes × 2 precisions in 2 rounds.
WORDS = (*TINY, "--contexts", "8,16,24,32", "--modes", "inference,train", "--precisions", "fp32,bf16",
         "--rounds", "2", "--no-ceilings")  # fmt: skip
CELLS, ROUNDS = 16, 2


class Watched:
    def __init__(self) -> None:
        self.said, self.ends = list[str](), list[SweepEnd]()

    def waiting(self, reason: str) -> None:
        self.said.append(reason)

    def ended(self, how: SweepEnd) -> None:
        self.ends.append(how)

    def began(self, *words: Any, **more: Any) -> None: ...

    added = doing = finished = began


class Leaving(LocalEngine):
    """A place that is lost while it measures its third cell."""

    measured = 0

    def measure(self, job: Job, *, timeout_s: float, beat: Callable[[str], None] = lambda phase: None) -> Outcome:
        self.measured += 1
        if self.measured == 3:
            raise PlaceLost("It has left.")
        return super().measure(job, timeout_s=timeout_s, beat=beat)


def two() -> list[Engine]:
    return [LocalEngine(goes_on=True), LocalEngine(goes_on=True)]


def measure(db: Path, engines: Sequence[Engine], words: Sequence[str] = WORDS, **settings: Any) -> Watched:
    request, usual = parsed(*words, "--db", str(db))
    watched = Watched()
    try:
        spread(request, replace(usual, **settings), engines, watcher=watched)
    finally:
        for engine in engines:
            engine.end()
    return watched


def test_each_cell_is_measured_once_and_what_is_compared_in_one_place(db: Path) -> None:
    assert 0 < sum(measure(db, two(), budget_s=1.0).ends[0].statuses.values()) < CELLS * ROUNDS, "the budget ended it"
    (progress,) = load_progress(db)
    assert progress.total == CELLS * ROUNDS, "one plan, not one a place"
    rest = measure(db, two())
    assert any(text.startswith("2 places: 2 × ") for text in rest.said)
    (end,) = rest.ends
    assert (end.code, end.out_of_budget) == (0, 0)
    found = rows(db, "SELECT cell_key, round, context, run_id FROM steps")
    assert len({(row["cell_key"], row["round"]) for row in found}) == len(found) == CELLS * ROUNDS
    runs = rows(db, "SELECT places, count(DISTINCT sweep_key) OVER () AS keys FROM runs")
    assert runs == [{"places": 2, "keys": 2}] * 2, "the second sweep goes on with the runs of the first"
    assert {row["run_id"] for row in found} == {row["run_id"] for row in rows(db, "SELECT run_id FROM runs")}
    assert len({(row["context"], row["run_id"]) for row in found}) == 4, "a size is in one place, in all rounds"
    assert load_progress(db) == []


def test_what_is_owed_is_shared_out(db: Path) -> None:
    """Of four lengths two are measured, those that one of two shares of the whole plan would have."""
    half = take_shard([item.cell for item in planned(*WORDS)], Shard(1, 2), device="cpu")
    done = ",".join(sorted({str(getattr(cell, "context", "")) for cell in half}))
    measure(db, [LocalEngine(goes_on=True)], words=[done if word == "8,16,24,32" else word for word in WORDS])
    measure(db, two())
    found = rows(db, "SELECT context, run_id FROM steps JOIN runs USING (run_id) WHERE places = 2 GROUP BY ALL")
    assert len({row["run_id"] for row in found}) == len({row["context"] for row in found}) == len(found) == 2


def test_the_cells_of_a_lost_place_are_measured_in_the_other(db: Path) -> None:
    watched = measure(db, [LocalEngine(goes_on=True), Leaving(goes_on=True)])
    assert "It has left." in watched.said
    (end,) = watched.ends
    assert (end.statuses, end.code) == ({"ok": CELLS * ROUNDS}, 0)
    counts = rows(db, "SELECT run_id, count(*) AS count FROM steps GROUP BY ALL ORDER BY count")
    assert [row["count"] for row in counts] == [2, CELLS * ROUNDS - 2]


def test_an_interrupt_ends_both_places_and_keeps_what_was_measured(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def finished(watched: Watched, row: Row, *words: object, **more: object) -> None:
        watched.said.append(row.status)
        if len(watched.said) == 5:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Watched, "finished", finished)
    with pytest.raises(KeyboardInterrupt):
        measure(db, two())
    statuses = [row["status"] for row in rows(db, "SELECT status FROM steps")]
    assert {*statuses} == {"ok"}, "the cells that were being measured have no row"
    assert 4 <= len(statuses) < CELLS * ROUNDS
    monkeypatch.undo()
    assert measure(db, [LocalEngine(goes_on=True)]).ends[0].code == 0
    assert len(rows(db, "SELECT cell_key FROM steps")) == CELLS * ROUNDS


def test_a_place_without_a_share_leaves_no_rows(db: Path) -> None:
    """A plan of one size on two places: what the second can do at most is nobody's."""
    measure(db, two(), words=(*TINY, "--ceilings"))
    (of,) = rows(db, "SELECT run_id FROM runs")
    ceilings = rows(db, "SELECT DISTINCT run_id, moment FROM ceilings ORDER BY moment")
    assert [(row["run_id"], row["moment"]) for row in ceilings] == [(of["run_id"], "end"), (of["run_id"], "start")]


class Other(LocalEngine):
    def describe(self, device: str) -> dict[str, Any]:
        return super().describe(device) | {"device_name": "Other"}


def test_another_device_measures_the_whole_plan_again(db: Path) -> None:
    (end,) = measure(db, [LocalEngine(goes_on=True), Other(goes_on=True)]).ends
    assert (end.statuses, end.code) == ({"ok": 2 * CELLS * ROUNDS}, 0), "one end for both"
    counts = rows(db, "SELECT device_name, count(*) AS count FROM runs JOIN steps USING (run_id) GROUP BY ALL")
    assert [row["count"] for row in counts] == [CELLS * ROUNDS] * 2


def test_a_sweep_without_a_place_left_ends_with_an_error(db: Path) -> None:
    with pytest.raises(PlaceLost, match="All places are lost"):
        measure(db, [Leaving(goes_on=True), Leaving(goes_on=True)])
    assert len(rows(db, "SELECT cell_key FROM steps")) == 4


def test_ending_an_engine_ends_what_runs_in_another_thread() -> None:
    engine, begun, found = LocalEngine(), threading.Event(), list[BaseException]()

    def work() -> None:
        cell = tiny(context=512, min_steps=100_000, max_steps=100_000, max_seconds=600.0)
        try:
            engine.measure(make_job(cell), timeout_s=600, beat=lambda phase: begun.set() if phase != "start" else None)
        except PlaceLost as lost:
            found.append(lost)

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(60)
    engine.end()
    thread.join(30)
    assert not thread.is_alive()
    assert len(found) == 1


@pytest.mark.parametrize("on", ["H200", "cuda", "cuda:0,cuda:0", "cpu --dry-run"])
def test_what_is_no_gpu_of_this_machine_is_refused(on: str, tmp_path: Path) -> None:
    assert "such as cuda:0,cuda:1" in run("sweep", *TINY, "--on", *on.split(), db=tmp_path / "r.duckdb", code=2).stdout


def test_a_gpu_that_is_missing_is_refused(tmp_path: Path) -> None:
    engine = LocalEngine(device="cuda:77")
    with pytest.raises(UsageError, match="no device 'cuda:77'"):
        engine.describe("auto")
