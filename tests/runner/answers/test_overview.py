"""The fastest way of each size, and what each choice buys: nothing slower is ever recommended."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from runner.answers import QUESTIONS, ask
from runner.answers.shared import sizes_of
from runner.answers.tune import name_way
from runner.answers.words import CLOCKS
from runner.results.cells import StepResult
from runner.results.rows import CellHistory, Rows, RunSteps
from runner.results.times import Estimate
from runner.schema import Model, new_id
from runner.schema.axes import PLAIN
from runner.store.read import read
from runner.store.read.selection import Selection
from tests.runner.answers.shipped import shipped
from tests.runner.answers.test_every_answer import answers
from tests.synthetic import rows as synthetic

NEEDS = ("every_step", "latest", "history", "runs")


@pytest.mark.parametrize("combinations", [10, pytest.param(40, marks=pytest.mark.soak)])
def test_nothing_measured_is_faster_than_the_recommended_way(combinations: int) -> None:
    """Of a way that was measured with several limits, that with the most steps counts."""
    rows = shipped(*NEEDS)
    tried = [one for one in rows.every_step if one.cell.mode == "train" and one.status == "ok"]
    sizes = sizes_of(tried)
    for answer in islice(answers("overview"), combinations):
        chosen = {one.name: one.chosen for one in answer.choices}
        clock = CLOCKS[chosen["clock"]]
        best = answer.views[0]
        for row in best.rows:
            cell = answer.cells[row.cells[0]]
            alike = {
                tuple(getattr(one.cell, name) for name in PLAIN): one.times["step"].by(clock)
                for one in sorted(tried, key=lambda one: one.cell.max_steps)
                if sizes[Model.of(one.cell)] == row.values[0]
                and (one.cell.context, one.cell.batch, one.cell.warmup_steps)
                == (cell.context, cell.batch, cell.warmup_steps)  # type: ignore[attr-defined]
                and one.times.get("step") is not None
                and one.times["step"].by(clock)
            }
            ways = ask("tune", rows, {**chosen, "size": row.values[0]}).views[0].rows
            assert clock != "loop" or best.get(row, "tried") in (0, len(ways)), "both count the same ways"
            ms = best.get(row, "ms")
            assert ms is None or ms == min(time.ms for time in alike.values() if time), (chosen, row.values)
        if times := re.search(r"\*\*([\d.,]+)×\*\* the plain", answer.sentence):
            assert float(times[1].replace(",", "")) > 1, answer.sentence


def test_a_gain_that_may_be_none_is_undecided() -> None:
    """Of one process each, on a machine without repeated cells, nothing is known of the noise, and the ratio has no
    interval."""
    rows = shipped(*NEEDS)
    alone = [one for one in rows.every_step if one.times and one.times["step"].step.std is None]
    sentence = ask("overview", replace(rows, every_step=tuple(alone))).sentence
    assert re.search(r"[\d.]+×\*\* the plain fp32 step, undecided \(", sentence)


def test_each_bar_of_the_ladder_is_one_pair_or_says_that_it_is_none() -> None:
    answer = ask("overview", shipped(*NEEDS), {"size": "xl@2026", "clock": "latency"})
    ladder = next(view for view in answer.views if view.name == "ladder")
    steps = {one.cell_id: one for one in shipped(*NEEDS).every_step}
    for row in ladder.rows[1:]:
        before, after = (steps[cell_id] for cell_id in row.cells)
        if ladder.get(row, "joined"):
            assert ladder.get(row, "ratio") is None
            assert row.wanted, "the cells between, which nothing has measured"
        else:
            times = [one.times["step"].step.ms for one in (before, after)]
            assert ladder.get(row, "ratio") == pytest.approx(times[0] / times[1], rel=0.02)


def _with(one: RunSteps, steps: Sequence[StepResult]) -> RunSteps:
    return replace(one, load=lambda: {one.run.run_id: {"steps": steps}})


def test_what_got_slower_since_the_run_before_is_said_first() -> None:
    rows = shipped(*NEEDS)
    now = rows.latest[0]
    traced = [one for one in now.steps if "step" in one.times and one.times["step"].by("device")]
    assert len(traced) > 1
    cell = traced[0]

    def longer(time: Estimate) -> Estimate:
        return replace(time, ms=1.1 * time.ms, low_ms=1.1 * (time.low_ms or 0), high_ms=1.1 * (time.high_ms or 0))

    times = {phase: replace(time, step=longer(time.step), others={key: longer(one) for key, one in time.others.items()})
             for phase, time in cell.times.items()}  # fmt: skip
    latest = (_with(now, [replace(cell, times=times), *traced[1:]]), _with(now, traced))
    history = (CellHistory(machine=cell.machine, cell_key=cell.cell.key, times={"device": (10.0, 10.0, 11.0)}),)
    answer = ask("overview", replace(rows, latest=latest, history=history))
    assert answer.views[0].name == "regressions"
    (row,) = answer.views[0].rows
    assert row.values[5] == "▁▁█"
    assert row.values[1] == pytest.approx(1 / 1.1)
    assert (row.values[4], row.cells) == ("GPU time", (cell.cell_id, cell.cell_id))
    assert answer.more.startswith("1 cell of ")
    same = ask("overview", replace(rows, latest=(now, _with(now, now.steps))))
    assert not [view for view in same.views if view.name == "regressions"]
    assert f"is known to be slower: {len(now.steps)} equal cells" in same.more
    assert "NVIDIA H200, 140 GiB" in same.more


def test_a_first_step_has_no_faster_way_and_no_interval(tmp_path: Path) -> None:
    db, of = tmp_path / "own.duckdb", synthetic.run()
    cells = [synthetic.asked(mode="train", precision=precision) for precision in ("fp32", "bf16")]
    synthetic.store(db, of, [synthetic.ok(of, cells[0]), synthetic.ok(of, cells[1], slower=2.0)])
    answer = ask("overview", read(db, Selection(), NEEDS))
    assert answer.sentence.startswith("The fastest measured way to train **toy-64** is **fp32, eager**")
    assert [view.note for view in answer.views][-1] == "Above 1× it is faster than the plain fp32 step."
    assert answer.views[0].column("next_way") == [None], "of one process each nothing is known"


def test_a_fastest_way_is_told_apart_from_the_next_where_their_interval_says_so() -> None:
    """As the answer about all ways of one size says it."""
    rows = shipped(*{*NEEDS, *QUESTIONS["tune"].needs})
    best = ask("overview", rows, {"context": "512"}).views[0]
    verdicts = {row.values[0]: best.get(row, "next_way") for row in best.rows if row.values[0] != "10B"}
    ways = {size: ask("tune", rows, {"size": size, "context": "512"}) for size in verdicts}
    alike = {size for size, answer in ways.items() if "told apart" in f"{answer.sentence} {answer.more}"}
    assert {size for size, verdict in verdicts.items() if verdict == "undecided"} == alike
    assert 0 < len(alike) < len(verdicts)
    known = len([*filter(None, verdicts.values())])
    assert f"the next way: {len(alike)} of {known} sizes." in ask("overview", rows, {"context": "512"}).more


def test_the_fastest_way_is_that_of_the_most_tokens_per_second_at_any_batch() -> None:
    rows = shipped(*NEEDS)
    key = (512, 5, "fp32", "train", 768, None, "fp32, eager")
    one = next(one for one in rows.every_step if key == (one.cell.context, one.cell.warmup_steps, one.cell.precision,
               one.cell.mode, one.cell.d_model, one.cell.model_key, name_way(one.cell)))  # fmt: skip
    twice = replace(one, cell=replace(one.cell, batch=8), cell_id=new_id())  # in the same time
    answer = ask("overview", replace(rows, every_step=(one, twice), latest=()), {"batch": "4"})
    best = answer.views[0]
    assert best.rows[0].cells == (twice.cell_id,)
    assert best.get(best.rows[0], "tokens_per_s") == pytest.approx(2 * (one.rate or 0))
    assert "**batch 8 · fp32, eager**" in answer.sentence
    own = replace(one.cell, optimizer="parts.py:sgd@0123456789abcdef")  # type: ignore[arg-type]
    assert name_way(own) == "parts:sgd@0123", "which is no AdamW"


def test_without_rows_the_answer_names_the_cells_to_begin_with() -> None:
    (missing,) = ask("overview", Rows()).missing
    assert [cell.context for cell in missing.cells] == [512]  # type: ignore[attr-defined]
