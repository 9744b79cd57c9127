"""A against B: pairs, ratios, verdicts and reasons worked out by hand, and the command that prints them."""

import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from runner.analysis.compare.environments import both_uncommitted, describe_differences, find_differences
from runner.analysis.compare.pairs import Pair
from runner.analysis.compare.verdict import Side, SideResult, Verdict, select_movers, select_regressions
from runner.analysis.compare.verdict_text import change, describe_verdict, shorten_titles
from runner.cli.compare import CompareOptions, compare, percent, resolve
from runner.cli.terminal import Terminal
from runner.errors import UsageError
from runner.schema import new_id
from runner.store.queries.compare import Comparison, ComparisonRequest, load_comparison
from runner.store.queries.sides import choose_sides, load_sides
from tests.command import TINY, rows, run, run_apart
from tests.synthetic import memory_rows
from tests.synthetic import sides as made
from tests.synthetic.rows import ok, spooled, store
from tests.synthetic.rows import run as a_run


def label(name: str) -> Side:
    return Side(kind="label", value=name, title=name)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.written(tmp_path_factory.mktemp("compare"))


@pytest.fixture(scope="module")
def found(path: Path) -> Comparison:
    return load_comparison(path, ComparisonRequest(a=label("before"), b=label("after")))


def verdict_of(found: Comparison, table: str) -> Verdict:
    return next(verdict for verdict in found.verdicts if verdict.table == table)


# ------------------------------------------------------------------------------------------------------- the verdict


def test_the_sentence_says_what_can_be_worked_out_by_hand(found: Comparison) -> None:
    assert [describe_verdict(verdict) for verdict in found.verdicts] == [made.SENTENCE, made.MEMORY]


def test_pairs_and_their_ratios(found: Comparison) -> None:
    """A over B of cells that agree in everything; the noise is the least that is taken for one, 0.01% with two degrees
    of freedom, so that the interval ends e^(4.303 * 0.01% * √2) from the ratio."""
    steps = verdict_of(found, "steps")
    reach = math.exp(4.3026527 * 1e-4 * math.sqrt(2))
    assert [pair.base.cell.context for pair in steps.pairs] == [16, 32, 48]  # type: ignore[union-attr]
    assert [pair.ratio for pair in steps.pairs] == [4.0, 0.5, 1.0]
    assert [pair.low for pair in steps.pairs] == pytest.approx([4 / reach, 0.5 / reach, 1 / reach])
    assert [pair.high for pair in steps.pairs] == pytest.approx([4 * reach, 0.5 * reach, reach])
    assert steps.mean == pytest.approx(2 ** (1 / 3))
    assert [change(steps, pair) for pair in select_movers(steps)] == ["4.00× faster", "2.00× slower"]
    assert [pair.ratio for pair in verdict_of(found, "memory").pairs] == [2.0, 2.0]


def test_what_is_left_out_says_why(found: Comparison) -> None:
    known = {item.reason: item.detail for item in verdict_of(found, "steps").left_out}
    assert known["out of memory in after"] == "tried to allocate 2.5 GiB; 1.1 GiB are free"
    assert known["not the same precision"] == "fp32 was computed as ieee and as tf32."
    assert known["too few samples in both"] == "5 and 5 samples; an interval needs 6 on each side."
    assert "3 more graphs after the warm-up" in known["graded D in after"]


@pytest.mark.parametrize(
    ("ratio", "decided", "outcome"),
    [
        (1.05, True, "better"),
        (0.95, True, "worse"),
        (1.05, False, "same"),  # the interval holds 1
        (1.009, True, "same"),  # sure, and less than 1%
        (1 / 1.009, True, "same"),
    ],
)
def test_the_rule_of_noise(ratio: float, decided: bool, outcome: str) -> None:
    side = SideResult(cell=made.context(16), run_id=new_id(), cell_id=new_id(), status="ok")
    assert Pair(base=side, other=side, ratio=ratio, decided=decided).outcome == outcome


def test_noise_is_neither_faster_nor_slower(path: Path) -> None:
    """Against `again`: 10 to 10.05 ms is 0.5%; 10 ms among samples from 7.5 to 12.5 is 10 ms."""
    steps = verdict_of(load_comparison(path, ComparisonRequest(a=label("after"), b=label("again"))), "steps")
    assert [pair.outcome for pair in steps.pairs] == ["same", "same"]
    noisy = steps.pairs[0]
    assert noisy.low is not None
    assert noisy.low < 1 < (noisy.high or 0)
    assert describe_verdict(steps).startswith(
        "Steps: again is as fast as after (geometric mean of 2 comparable cells): 0 faster"
    )


def test_a_regression_is_beyond_its_threshold(found: Comparison) -> None:
    steps = verdict_of(found, "steps")
    assert [pair.ratio for pair in select_regressions(steps, threshold=0.99)] == [0.5]
    assert select_regressions(steps, threshold=1.0) == [], "exactly twice as long is not more than 100% longer"


def test_one_phase_alone(path: Path) -> None:
    """Half of each sample is the forward pass, so its ratios are the same; there is no backward pass."""
    forward = verdict_of(
        load_comparison(path, ComparisonRequest(a=label("before"), b=label("after"), phase="forward")), "steps"
    )
    assert [pair.ratio for pair in forward.pairs] == [4.0, 0.5, 1.0]
    assert forward.pairs[0].base.value == 20.0
    assert "geometric mean of 3 comparable cells, forward pass" in describe_verdict(forward)
    backward = verdict_of(
        load_comparison(path, ComparisonRequest(a=label("before"), b=label("after"), phase="backward")), "steps"
    )
    assert backward.pairs == ()


# ------------------------------------------------------------------------------------------------- which rows are meant


def test_precisions_and_backends_stay_on_their_machine(tmp_path: Path) -> None:
    """tests.synthetic.rows: bf16 takes half of fp32. Another machine has fp32 alone, so it has no partner."""
    here, there = a_run(), a_run(host="elsewhere")
    cells = [ok(here, made.context(64, precision=precision)) for precision in ("fp32", "bf16")]
    path = store(tmp_path / "r.duckdb", here, cells)
    store(path, there, [ok(there, made.context(64))])
    memory_rows.store(path, [memory_rows.attention(here, seq_len=1024, backend=way) for way in ("eager", "compiled")])
    known = load_sides(path)
    assert choose_sides(path) is not None
    fp32, bf16 = known["precision"]
    steps = verdict_of(load_comparison(path, ComparisonRequest(a=fp32, b=bf16)), "steps")
    assert [round(pair.ratio, 2) for pair in steps.pairs] == [2.0]
    assert [item.reason for item in steps.left_out] == ["not measured in bf16"]
    machine = Side(kind="machine", value="Example CPU · bench1", title="")
    assert (
        verdict_of(load_comparison(path, ComparisonRequest(a=fp32, b=bf16, within=(machine,))), "steps").left_out == ()
    )
    eager, compiled = known["backend"]
    (attention,) = [
        v for v in load_comparison(path, ComparisonRequest(a=eager, b=compiled)).verdicts if v.table == "attention"
    ]
    assert describe_verdict(attention) == (
        "Attention: compiled is 2.00× faster than eager (1 comparable cell): 0 faster, 0 slower, 1 within noise."
    )


def test_of_a_labels_runs_the_latest_counts_and_its_rounds_are_pooled(tmp_path: Path) -> None:
    path = tmp_path / "r.duckdb"
    old, new, other = (made.run_named(name) for name in ("ours", "ours", "theirs"))
    spooled(path, old, made.timed(old, made.context(16), (99.0,) * 11))
    for number, value in enumerate((10.0, 30.0)):
        spooled(path, new, made.timed(new, made.context(16), (value,) * 7, round=number))
    spooled(path, other, made.timed(other, made.context(16), (10.0,) * 11))
    (verdict,) = load_comparison(path, ComparisonRequest(a=label("ours"), b=label("theirs"))).verdicts
    (pair,) = verdict.pairs
    assert (pair.base.samples, pair.base.time and pair.base.time.rounds) == (14, 2)
    assert pair.base.value == pytest.approx(pair.ratio * 10.0) == pytest.approx(300**0.5), "the geometric mean"
    assert pair.outcome == "same", "two rounds that differ by a factor of three decide nothing"


def test_sides_that_cannot_stand_against_each_other(path: Path) -> None:
    fp32 = Side(kind="precision", value="fp32", title="fp32")
    with pytest.raises(UsageError, match="A and B are both label:after"):
        load_comparison(path, ComparisonRequest(a=label("after"), b=label("after")))
    with pytest.raises(UsageError, match="cannot be compared with label:after"):
        load_comparison(path, ComparisonRequest(a=fp32, b=label("after")))


def test_environments(found: Comparison) -> None:
    differ = find_differences(found.a_runs, found.b_runs)
    assert describe_differences(differ) == "The environments differ in torch (2.12.0 → 2.13.0) and threads (2 → 1)."
    assert not both_uncommitted(found.a_runs, found.b_runs)
    one = a_run(cpu_flags="avx2 fma", device_memory_bytes=8 * 2**30, git_dirty=True)
    other = a_run(cpu_flags="avx2 fma avx512f", device_memory_bytes=16 * 2**30, git_dirty=True)
    said = {item.label: (item.a, item.b) for item in find_differences([one], [other])}
    assert said == {"CPU flags": ("none further", "avx512f"), "Device memory": ("8.0 GiB", "16.0 GiB")}
    assert both_uncommitted([one], [other])
    assert describe_differences(find_differences([one], [one])).startswith("Both sides ran in the same environment")


def test_titles_leave_out_what_all_of_them_say() -> None:
    cells = [made.context(16), made.context(32, precision="bf16")]
    assert shorten_titles(cells, without=("eager",)) == ("toy-64 · train", ["16 · fp32", "32 · bf16"])
    assert shorten_titles(cells[:1]) == ("", ["toy-64 · 16 · train · fp32 · eager"])


# -------------------------------------------------------------------------------------------------------- the command


def test_the_command_says_the_same(path: Path) -> None:
    done = run("compare", "before", "label:after", db=path)
    assert done.returncode == 0
    assert made.SENTENCE in done.stdout
    assert made.MEMORY in done.stdout
    assert "The environments differ in torch (2.12.0 → 2.13.0) and threads (2 → 1)." in done.stdout
    moved = [line.split() for line in done.stdout.splitlines() if "4.00× faster" in line]
    assert moved == [["16", "40.0", "ms", "10.0", "ms", "4.00×", "faster", "4.00–4.00×"]]
    assert "Left out, graded D in after: toy-64 · 144 · train · fp32 · compiled." in done.stdout


def test_markdown_for_a_pull_request(path: Path) -> None:
    lines = run("compare", "before", "after", "--format", "markdown", db=path).stdout.splitlines()
    assert lines[0] == "### after against before"
    assert f"**{made.SENTENCE}**" in lines
    at = lines.index("| cell (toy-64 · train · fp32 · eager) | before | after | after is | 95% interval |")
    assert lines[at + 1 : at + 4] == [
        "| --- | --: | --: | --: | --: |",
        "| 16 | 40.0 ms | 10.0 ms | 4.00× faster | 4.00–4.00× |",
        "| 32 | 10.0 ms | 20.0 ms | 2.00× slower | 2.00–2.00× |",
    ]


def test_exit_codes_for_ci(path: Path) -> None:
    """1 for a cell twice as slow and one that no longer fits; 0 for noise; 2 when nothing can be compared."""
    worse = run("compare", "before", "after", "--fail-on-regression", db=path)
    assert worse.returncode == 1
    assert "2 regressions beyond 5%:" in worse.stdout
    assert "- toy-64 · 32 · train · fp32 · eager: 2.00× slower" in worse.stdout
    assert "- toy-64 · 80 · train · fp32 · eager: out of memory in after" in worse.stdout
    alike = run("compare", "after", "again", "--fail-on-regression", "--threshold", "0.1%", db=path)
    assert alike.returncode == 0, "0.5% is within noise, whatever the threshold"
    assert "No regression beyond 0.1%." in alike.stdout
    nothing = run("compare", "after", "again", "--phase", "backward", "--fail-on-regression", db=path)
    assert nothing.returncode == 2
    assert "No cell of A and B can be compared" in nothing.stdout


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            CompareOptions(a="before", b="nobody"),
            "called 'nobody'. Expected a run's id or its beginning, a label, or machine:…",
        ),
        (
            CompareOptions(a="before", b="precision:bf16"),
            "There are: run .*; label again, after, before; machine Example CPU",
        ),
        (CompareOptions(a="before", b="after", form="xml"), "There is no format 'xml'. Expected text or markdown"),
        (
            CompareOptions(a="before", b="after", phase="loss"),
            "'loss' is not compared. Expected step, forward, backward",
        ),
        (
            CompareOptions(a="before", b="after", within=("precision:fp32",)),
            "Nothing in the file is called 'precision:fp32'",
        ),
        (
            CompareOptions(a="before", b="run:0"),
            "'run:0' may be run:.*, run:.*, run:.*Expected the beginning of one alone",
        ),
    ],
)
def test_a_wrong_word_is_explained(path: Path, asked: CompareOptions, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        compare(Terminal(), asked, db=path)


def test_an_unknown_name_in_a_shell(path: Path) -> None:
    done = run_apart("compare", "before", "nobody", "--threshold", "5 %", db=path)
    assert done.returncode == 2
    assert "Nothing in the file is called 'nobody'" in done.stdout
    assert (percent("5%"), percent("2.5"), percent("10 %")) == (0.05, 0.025, 0.1)
    with pytest.raises(UsageError, match=r"--threshold is 'much'\. Expected percent"):
        percent("much")


def test_sides_by_a_part_of_their_name(path: Path) -> None:
    known = load_sides(path)
    run_id = known["run"][0].value
    assert resolve(run_id[:35], known).value == run_id
    assert resolve(f"run:{run_id.replace('-', '')[:31]}", known).value == run_id
    assert resolve("machine:example cpu", known).value == "Example CPU · bench1"
    assert resolve("commit:abc", known).value == "abcdef1"


@pytest.mark.soak
def test_two_real_sweeps(tmp_path: Path) -> None:
    """The ratio of two measured runs is that of the medians of their samples; the threads are what differs."""
    path = tmp_path / "real.duckdb"
    for name, threads in (("one", "1"), ("two", "2")):
        swept = run_apart("sweep", *TINY, "--steps", "8", "--max-steps", "8", "--fresh", "--label", name, db=path,
                    env={"OMP_NUM_THREADS": threads})  # fmt: skip
        assert swept.returncode == 0, swept.stdout
    (verdict,) = (found := load_comparison(path, ComparisonRequest(a=label("one"), b=label("two")))).verdicts
    samples: dict[str, list[Any]] = {"one": [], "two": []}
    for row in rows(path, "SELECT label, duration_ms FROM samples JOIN runs USING (run_id) "
                          "WHERE phase = 'step' AND NOT is_warmup"):  # fmt: skip
        samples[row["label"]].append(row["duration_ms"])
    (pair,) = verdict.pairs
    assert [len(values) for values in samples.values()] == [8, 8]
    assert pair.ratio == pytest.approx(statistics.median(samples["one"]) / statistics.median(samples["two"]))
    assert (
        describe_differences(find_differences(found.a_runs, found.b_runs))
        == "The environments differ in threads (1 → 2)."
    )
    known = choose_sides(path)
    assert known is not None
    assert [side.title.split()[0] for side in known] == ["one", "two"], "the latest run against the one before"
    beginning = str(pair.base.run_id)[:23]
    assert describe_verdict(verdict).split(":")[0] in run("compare", beginning, "two", db=path).stdout
