"""`stepscope tune`: the race on a CPU, its ranking, and what it refuses; and the answer `tune` on rows made by hand."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.answers import ask
from runner.cli.terminal import Terminal
from runner.cli.tune import RaceLines
from runner.results.cells import StepResult
from runner.results.rows import Rows
from runner.results.times import Estimate, PhaseTime, Spread
from runner.schema import new_id
from runner.sweep.race import SETTINGS
from tests.command import rows, run, run_json
from tests.runner.own.build import own_file
from tests.synthetic.rows import asked, ok
from tests.synthetic.rows import run as run_row


def test_a_race_on_a_cpu_ranks_ways_that_are_rows(db: Path) -> None:
    found = run_json("tune", *["--sizes", "toy-64", "--context", "16", "--budget", "12s", "--device", "cpu"], db=db)
    ranking = found["ranking"]
    assert [*ranking[0]["settings"]] == [*SETTINGS]
    rates = [one["tokens_per_s"] for one in ranking[1:]]
    assert rates == sorted(rates, reverse=True)
    assert ranking[0]["equal_to_first"]
    assert all(one["equal_to_first"] or ranking[0]["tokens_per_s"] > 0.9 * one["tokens_per_s"] for one in ranking)
    measured = {str(row["cell_id"]): row for row in rows(db, "SELECT * FROM steps")}
    for one in ranking:
        row = measured[one["cell_id"]]
        assert {name: row[name] for name in SETTINGS} == one["settings"]
        assert one["cost_per_billion_tokens"] == pytest.approx(2e9 / 3600 / one["tokens_per_s"])
    assert not {json.dumps(one["settings"]) for one in ranking} & {
        json.dumps(one["settings"]) for one in found["left_out"] if one["settings"]["checkpoint_blocks"]
    }
    assert all(one["why"] for one in found["left_out"])
    assert "toy-64 at 16 tokens" in run("show", "tune", db=db).stdout


def test_a_terminal_shows_the_ranking_so_far(tmp_path: Path) -> None:
    console = Terminal(file=(printed := io.StringIO()), force_terminal=True, width=120)
    bar = RaceLines(console, db=tmp_path / "r.duckdb", objective="tokens/s")
    for batch, rate in ((1, 10.0), (4, 40.0), (4, 20.0), (16, 25.0)):
        row = ok(run_row(), asked(batch=batch)).step
        bar.finished(replace(row, tokens_per_s=rate), [], left_s=0)
    table = console.render_lines(next(iter(bar.bar.get_renderables())))
    lines = ["".join(part.text for part in line).split() for line in table[1:]]
    ranked = [(line[2], line[-3], line[-1]) for line in lines]
    assert ranked == [("4", "30.0", "2"), ("16", "25.0", "1"), ("1", "10.0", "1")]
    assert "20.0 tokens/s; 30.0 tokens/s over its 2 trials  ← best so far" in printed.getvalue()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--objective", "speed"), "--objective got 'speed'. Expected tokens/s, tokens/J, cost"),
        (("--objective", "tokens/J"), "counts no energy. Expected --objective tokens/s"),
        (("--memory", "1MiB"), "predicted not to fit into 1.00 MiB"),
        (("--memory", "lots"), "--memory got 'lots'. Expected a size such as 2GiB"),
        (("--budget", "0.1s"), "one trial takes longer than"),
        (("--sizes", "small,medium"), "tune was given several models"),
        (("--sizes", "giant"), "giant"),
    ],
)
def test_what_cannot_be_raced_is_refused(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    sizes = () if "--sizes" in words else ("--sizes", "toy-64")
    assert message in run("tune", *sizes, "--device", "cpu", *words, db=tmp_path / "r.duckdb", code=2).stdout


def test_a_model_that_fails_is_one_error_and_its_trials_stay(tmp_path: Path, db: Path) -> None:
    body = """
        class Model(nn.Linear):
            def forward(self, x):
                raise ValueError("broken here")

        def build(want):
            return Model(4, 4), torch.randn(want.batch, 4)
    """
    done = run("tune", own_file(tmp_path, body), "--device", "cpu", "--budget", "60s", db=db, code=2)
    assert "No way worked" in done.stdout
    assert "broken here" in done.stdout
    assert {row["status"] for row in rows(db, "SELECT status FROM steps")} == {"error"}


def step(ms: float, *, low: float, high: float, rounds: int = 3, **settings: Any) -> StepResult:
    cell = asked(context=100, **settings)
    std = (high - low) / ms / 8
    time = Estimate(ms=ms, low_ms=low, high_ms=high, rounds=rounds, std=std, dof=20, error=Spread(std=std, dof=20))
    return StepResult(
        cell_id=new_id(), machine="m · h", cell=cell, cell_key=cell.key, torch="2",
        times={"step": PhaseTime(step=time)}, run_id=new_id(), rounds=rounds, parameters=1, tokens_per_s=None,
        mfu=0.4, compile_seconds=None,
        peak_allocated_bytes=cell.batch * 2**30, peak_reserved_bytes=cell.batch * 2**30, step_joules=ms / 10,
    )  # fmt: skip


def test_the_first_is_the_way_that_is_known_best_of_those_that_are_equal() -> None:
    lucky = step(99.0, low=90, high=109, rounds=1, batch=10, precision="bf16", backend="compiled")
    best = step(100.0, low=99, high=101, rounds=5, batch=10, precision="bf16")
    plain = step(300.0, low=298, high=302, batch=10)
    small = step(80.0, low=79, high=81, batch=4, precision="bf16")
    answer = ask("tune", Rows(every_step=(lucky, best, plain, small)), {"price": "7.2"})
    ranking, choices, front = answer.views
    assert [row.cells[0] for row in ranking.rows] == [one.cell_id for one in (best, lucky, small, plain)]
    assert ranking.column("beside") == ["first", "cannot be told apart", "0.500×", "0.333×"]
    assert ranking.column("tokens_per_s") == pytest.approx([10_000, 1e6 / 99, 5000, 1e4 / 3])
    assert ranking.column("cost")[0] == pytest.approx(7.2e9 / 3600 / 10_000)
    assert ranking.column("joules")[0] == pytest.approx(10.0)
    assert dict(zip(choices.column("choice"), choices.column("ratio"), strict=True)) == pytest.approx(
        {"batch 10 instead of 4": 2.0, "bf16": 3.0}
    )
    assert front.column("peak_gib") == [4.0, 10.0]
    assert "batch 10 · bf16" in answer.sentence
    assert "1 of the others cannot be told apart" in answer.more
    wide = step(85.0, low=65, high=112, rounds=1, batch=10, precision="bf16", backend="compiled")
    slower = step(110.0, low=109, high=111, rounds=6, batch=10, precision="bf16", optimizer="fused")
    ranking = ask("tune", Rows(every_step=(wide, slower, best, plain))).views[0]
    assert [row.cells[0] for row in ranking.rows] == [one.cell_id for one in (best, wide, slower, plain)]
    thrifty = ask("tune", Rows(every_step=(best, small)), {"by": "tokens/J"})
    assert thrifty.views[0].rows[0].cells == (best.cell_id,)
    assert "**10.0 J per 1,000 tokens**" in thrifty.sentence
    within = ask("tune", Rows(every_step=(best, small)), {"memory": "5"}).views[0]
    assert [row.cells[0] for row in within.rows] == [small.cell_id]
    cold = step(50.0, low=49, high=51, batch=10, backend="compiled", compile_cache="empty")
    assert ask("tune", Rows(every_step=(cold, plain))).views[1].column("ratio")[-1] == pytest.approx(6.0)
