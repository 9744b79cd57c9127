"""The fastest way of each size, and what each choice buys: nothing slower is ever recommended."""

import re
from itertools import islice

import pytest

from runner.answers import ask
from runner.answers.shared import CLOCKS, sizes_of
from runner.results.rows import Rows
from runner.schema import Model
from tests.runner.answers.shipped import shipped
from tests.runner.answers.test_every_answer import answers


def test_nothing_measured_is_faster_than_the_recommended_way() -> None:
    rows = shipped("every_step")
    tried = [one for one in rows.every_step if one.cell.mode == "train" and one.status == "ok"]
    sizes = sizes_of(tried)
    for answer in islice(answers("overview"), 40):
        chosen = {one.name: one.chosen for one in answer.choices}
        clock = CLOCKS[chosen["clock"]]
        best = answer.views[0]
        for row in best.rows:
            cell = answer.cells[row.cells[0]]
            alike = [
                one.times["step"].by(clock)
                for one in tried
                if sizes[Model.of(one.cell)] == row.values[0]
                and (one.cell.context, one.cell.batch, one.cell.warmup_steps)
                == (cell.context, cell.batch, cell.warmup_steps)  # type: ignore[attr-defined]
                and "step" in one.times
            ]
            ms = best.get(row, "ms")
            assert ms is None or ms == min(time.ms for time in alike if time), (chosen, row.values)
        if times := re.search(r"\*\*([\d.,]+)×\*\* the plain", answer.sentence):
            assert float(times[1].replace(",", "")) > 1, answer.sentence


def test_each_bar_of_the_ladder_is_one_pair_or_says_that_it_is_none() -> None:
    answer = ask("overview", shipped("every_step"), {"size": "xl@2026", "clock": "latency"})
    ladder = next(view for view in answer.views if view.name == "ladder")
    steps = {one.cell_id: one for one in shipped("every_step").every_step}
    for row in ladder.rows[1:]:
        before, after = (steps[cell_id] for cell_id in row.cells)
        if ladder.get(row, "joined"):
            assert ladder.get(row, "ratio") is None
            assert row.wanted, "the cells between, which nothing has measured"
        else:
            times = [one.times["step"].median_ms for one in (before, after)]
            assert ladder.get(row, "ratio") == pytest.approx(times[0] / times[1], rel=0.02)


def test_without_rows_the_answer_names_the_cells_to_begin_with() -> None:
    (missing,) = ask("overview", Rows()).missing
    assert [cell.context for cell in missing.cells] == [512]  # type: ignore[attr-defined]
