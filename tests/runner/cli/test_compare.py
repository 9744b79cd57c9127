"""`compare` through the real command: two labels with ratios worked out by hand, the gate, JSON and refusals."""

import re
from pathlib import Path

import pytest

from tests.command import run, run_json, run_line
from tests.runner.answers.shipped import FOLDER
from tests.synthetic import sides as made


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.written(tmp_path_factory.mktemp("compare"))


@pytest.mark.parametrize("sides", [("precision:fp32", "precision:bf16"), ("standard", "cs336-2025")])
def test_rounds_are_those_of_all_runs_of_a_side(sides: tuple[str, str]) -> None:
    """Those of attention are in JSON too."""
    found = run_json("compare", *sides, db=FOLDER)
    assert max(row["rounds"]["a"] for row in found["rows"] if "seq_len" in row["cell"]) == 3


def test_every_compared_cell_is_listed_farthest_from_one_first(file: Path) -> None:
    """40 against 10 ms is 4×, 10 against 20 is 0.5×, 10 against 10 is 1×; a ratio is the time of A over that of B."""
    found = run_json("compare", "before", "after", db=file)
    assert (found["a"], found["b"]) == ("before", "after")
    ratios = {row["cell"]["context"]: row["clocks"]["latency"]["ratio"] for row in found["rows"]}
    assert {16: ratios[16], 32: ratios[32], 48: ratios[48]} == pytest.approx({16: 4.0, 32: 0.5, 48: 1.0})
    assert [row["cell"]["context"] for row in found["rows"]][:2] in ([16, 32], [16, 112])
    assert found["summary"]["faster"] + found["summary"]["slower"] + found["summary"]["same"] >= 3
    verdicts = {row["cell"]["context"]: row["verdict"] for row in found["rows"]}
    assert verdicts.items() >= {16: "faster", 32: "slower", 48: "same"}.items()
    assert all(len(row["cell_ids"]["a"]) == 1 for row in found["rows"])
    assert {row["phase"] for row in found["rows"]} <= {"step", "forward", "forward_backward"}
    for row in found["rows"]:
        assert row["clock"] in row["clocks"]
        assert row["rounds"].keys() == {"a", "b"}
        for clock in row["clocks"].values():
            assert clock["ratio"] == pytest.approx(clock["a_ms"] / clock["b_ms"])
            assert clock["level"] in (0.99, 0.995)
        assert row["clocks"][row["clock"]]["verdict"] == row["verdict"]
    assert {row["a_bytes"] / row["b_bytes"] for row in found["memory"]} == {2.0}
    assert {row["verdict"] for row in found["memory"]} == {"smaller"}
    assert {row["cell"]["context"] for row in found["left_out"]} >= {80, 96}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--fail-on-regression",), 1, "Regressions beyond 5%"),
        (("--fail-on-regression", "--threshold", "200%"), 1, "80"),
        ((), 0, ""),
    ],
)
def test_the_gate(file: Path, words: tuple[str, ...], code: int, said: str) -> None:
    assert said in run("compare", "before", "after", *words, db=file, code=code).stdout


def test_the_terminal_and_markdown_have_the_ratios(file: Path) -> None:
    """Of real rows `test_a_pair_has_one_ratio_interval_and_verdict_everywhere` compares all forms."""
    narrow = run_line("compare", "before", "after", "--db", str(file), columns=80, code=0).stdout
    assert ("4.00" in narrow, "0.500" in narrow) == (True, True)
    done = run("compare", "before", "after", "--format", "markdown", db=file)
    assert done.stdout.startswith("## after against before")
    assert re.search(r"\\| .*4\.00", done.stdout)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("before", "before"), "A and B are both label:before. Expected two different things"),
        (("before", "nobody"), "Nothing in the file is called 'nobody'"),
        (("label:before", "precision:fp32"), "cannot be compared with precision:fp32"),
        (("before", "after", "--format", "pdf"), "There is no format 'pdf'"),
        (("before", "after", "--clock", "wall"), "There is no clock 'wall'"),
        (("before", "after", "--phase", "loss"), "'loss' is not compared"),
        (("before", "after", "--threshold", "much"), "--threshold is 'much'"),
    ],
)
def test_what_is_refused(file: Path, words: tuple[str, ...], said: str) -> None:
    assert said in re.sub(r"\s+", " ", run("compare", *words, db=file, code=2).stdout)
