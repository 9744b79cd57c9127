"""The rows that belong to the two sides of a comparison."""

from pathlib import Path

import pytest

from runner.analysis.compare.verdict import Side
from runner.analysis.compare.verdict_text import describe_verdict
from runner.errors import UsageError
from runner.store.queries.compare import ComparisonRequest, load_comparison
from runner.store.queries.sides import choose_sides, load_sides
from tests.synthetic import memory_rows
from tests.synthetic import sides as made
from tests.synthetic.rows import ok, spooled, store
from tests.synthetic.rows import run as a_run


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.written(tmp_path_factory.mktemp("compare"))


def test_precisions_and_backends_stay_on_their_machine(tmp_path: Path) -> None:
    """In tests.synthetic.rows bf16 takes half the time of fp32. The other machine has only fp32, so its cells have no
    partner."""
    here, there = a_run(), a_run(host="elsewhere")
    cells = [ok(here, made.context(64, precision=precision)) for precision in ("fp32", "bf16")]
    path = store(tmp_path / "r.duckdb", here, cells)
    store(path, there, [ok(there, made.context(64))])
    memory_rows.store(path, [memory_rows.attention(here, seq_len=1024, backend=way) for way in ("eager", "compiled")])
    known = load_sides(path)
    assert choose_sides(path) is not None
    fp32, bf16 = known["precision"]
    steps = made.verdict_of(load_comparison(path, ComparisonRequest(a=fp32, b=bf16)), "steps")
    assert [round(pair.ratio, 2) for pair in steps.pairs] == [2.0]
    assert [item.reason for item in steps.left_out] == ["not measured in bf16"]
    machine = Side(kind="machine", value="Example CPU · bench1", title="")
    assert (
        made.verdict_of(load_comparison(path, ComparisonRequest(a=fp32, b=bf16, within=(machine,))), "steps").left_out
        == ()
    )
    eager, compiled = known["backend"]
    (attention,) = [
        v for v in load_comparison(path, ComparisonRequest(a=eager, b=compiled)).verdicts if v.table == "attention"
    ]
    assert describe_verdict(attention) == (
        "Attention: compiled takes 0.500× as long as eager (1 comparable cell): 0 faster, 0 slower, 1 undecided."
    )


def test_the_latest_run_with_a_label_counts_and_its_rounds_are_pooled(tmp_path: Path) -> None:
    path = tmp_path / "r.duckdb"
    old, new, other = (made.run_named(name) for name in ("ours", "ours", "theirs"))
    spooled(path, old, made.timed(old, made.context(16), (99.0,) * 11))
    for number, value in enumerate((10.0, 30.0)):
        spooled(path, new, made.timed(new, made.context(16), (value,) * 7, round=number))
    spooled(path, other, made.timed(other, made.context(16), (10.0,) * 11))
    (verdict,) = load_comparison(path, ComparisonRequest(a=made.label("ours"), b=made.label("theirs"))).verdicts
    (pair,) = verdict.pairs
    assert (pair.base.samples, pair.base.time and pair.base.time.rounds) == (14, 2)
    assert pair.base.value == pytest.approx(pair.ratio * 10.0) == pytest.approx(300**0.5), "it is the geometric mean"
    assert pair.outcome == "same", "two rounds that differ by a factor of three give no verdict"


def test_sides_that_cannot_be_compared(path: Path) -> None:
    fp32 = Side(kind="precision", value="fp32", title="fp32")
    with pytest.raises(UsageError, match="A and B are both label:after"):
        load_comparison(path, ComparisonRequest(a=made.label("after"), b=made.label("after")))
    with pytest.raises(UsageError, match="cannot be compared with label:after"):
        load_comparison(path, ComparisonRequest(a=fp32, b=made.label("after")))
