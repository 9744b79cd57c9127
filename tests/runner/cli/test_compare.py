"""`python -m runner compare`: its output, its exit codes, and the names that it accepts."""

import statistics
from pathlib import Path
from typing import Any

import pytest

from runner.analysis.compare.environments import describe_differences, find_differences
from runner.analysis.compare.verdict_text import describe_verdict
from runner.cli.compare import CompareOptions, compare, percent, resolve
from runner.cli.terminal import Terminal
from runner.errors import UsageError
from runner.store.queries.compare import ComparisonRequest, load_comparison
from runner.store.queries.sides import choose_sides, load_sides
from tests.command import TINY, rows, run, run_apart
from tests.synthetic import sides as made


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.written(tmp_path_factory.mktemp("compare"))


def test_the_command_prints_the_comparison(path: Path) -> None:
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
    """The code is 1 for a cell twice as slow and for one that no longer fits, 0 for noise, and 2 if nothing can be
    compared."""
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
def test_a_wrong_value_is_explained(path: Path, asked: CompareOptions, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        compare(Terminal(), asked, db=path)


def test_an_unknown_name_in_a_shell(path: Path) -> None:
    done = run_apart("compare", "before", "nobody", "--threshold", "5 %", db=path)
    assert done.returncode == 2
    assert "Nothing in the file is called 'nobody'" in done.stdout
    assert (percent("5%"), percent("2.5"), percent("10 %")) == (0.05, 0.025, 0.1)
    with pytest.raises(UsageError, match=r"--threshold is 'much'\. Expected percent"):
        percent("much")


def test_sides_are_found_by_a_part_of_their_name(path: Path) -> None:
    known = load_sides(path)
    run_id = known["run"][0].value
    assert resolve(run_id[:35], known).value == run_id
    assert resolve(f"run:{run_id.replace('-', '')[:31]}", known).value == run_id
    assert resolve("machine:example cpu", known).value == "Example CPU · bench1"
    assert resolve("commit:abc", known).value == "abcdef1"


@pytest.mark.soak
def test_two_real_sweeps(tmp_path: Path) -> None:
    """The ratio of two measured runs is that of the medians of their samples. The runs differ in their threads, and are
    of inference: on a busy machine a tiny step's backward pass may be faster than its forward pass, which the audit
    does not believe."""
    path = tmp_path / "real.duckdb"
    for name, threads in (("one", "1"), ("two", "2")):
        swept = run_apart("sweep", *TINY, "--modes", "inference", "--steps", "8", "--max-steps", "8", "--fresh",
                    "--label", name, db=path, env={"OMP_NUM_THREADS": threads})  # fmt: skip
        assert swept.returncode == 0, swept.stdout
    (verdict,) = (found := load_comparison(path, ComparisonRequest(a=made.label("one"), b=made.label("two")))).verdicts
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
    assert [side.title.split()[0] for side in known] == ["one", "two"], "the latest run is compared with the one before"
    beginning = str(pair.base.run_id)[:23]
    assert describe_verdict(verdict).split(":")[0] in run("compare", beginning, "two", db=path).stdout
