"""What the time of a sweep was spent on, as its last lines report it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from runner.sweep.loop import Spent
from tests.command import TINY, rows, run
from tests.synthetic.rows import asked, ok
from tests.synthetic.rows import run as run_row


def test_compiling_is_subtracted_from_the_warmup_and_every_part_has_its_share() -> None:
    row = ok(run_row(), asked(backend="compiled", compile_cache="empty")).step
    row = replace(row, measure_seconds=6.0, warmup_seconds=3.5, build_seconds=0.5)
    row = replace(row, compile_seconds=2.0, compile_cold_seconds=2.0, compile_warm_seconds=1.0)
    spent = replace(Spent.of(row) + Spent.of(row), all_s=25.0)
    assert spent.describe() == "48% measured steps, 12% warm-up, 24% compiling, 4% building, 12% the rest"


def test_the_time_of_a_cell_without_parts_counts_as_the_rest() -> None:
    row = replace(ok(run_row(), asked()).step, status="oom", measure_seconds=None, warmup_seconds=None)
    row = replace(row, build_seconds=None, compile_seconds=None)
    assert replace(Spent.of(row), all_s=2.0).describe() == "100% the rest"


def test_the_last_lines_of_a_sweep_agree_with_its_rows(db: Path) -> None:
    done = run("sweep", *TINY, "--contexts", "64,128", "--steps", "50", "--max-steps", "50", db=db, code=0)
    found = re.search(r"The time went to: (.*)\.\n", done.stdout)
    assert found is not None, done.stdout
    said = {part: int(percent) for percent, part in re.findall(r"(\d+)% ([a-z -]+)", found[1])}
    assert sum(said.values()) == pytest.approx(100, abs=2)
    (cells,) = rows(db, "SELECT sum(measure_seconds) / sum(cell_seconds) AS measured FROM steps")
    assert 1 <= said["measured steps"] <= 100 * cells["measured"] + 1, "the sweep takes longer than its cells"
