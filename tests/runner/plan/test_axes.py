"""Axes given by the user make exactly the requested grid; meaningless values are refused."""

import shlex
from collections import Counter
from pathlib import Path

import pytest

from runner.errors import UsageError
from runner.experiments import kind_of
from runner.plan.planning import PRESETS, QUESTIONS
from tests.command import ROOT, planned

#: A value for every axis that distinguishes the cells of an experiment's grids.
ONE = {
    **dict.fromkeys(
        ("benchmark", "mixed-precision", "compile", "kernels"),
        "--sizes small --contexts 512 --modes train --precisions bf16 --backends eager",
    ),
    "attention": "--attention naive --seq-lens 512 --d-heads 64 --precisions bf16 --backends eager",
    "memory": "--sizes small --contexts 512 --modes train --precisions bf16",
    "numerics": "--sizes small --contexts 512 --precisions bf16",
}
#: The presets of every experiment; that of attention alone ties its batch to the length.
WHOLE = [name for name, preset in PRESETS.items() if preset.grids["benchmark"]]
TWO = {"train": "inference,train", "bf16": "bf16,fp32", "eager": "eager,compiled", "512": "256,512"}


@pytest.mark.parametrize("preset", WHOLE)
@pytest.mark.parametrize("experiment", ONE)
def test_one_value_of_each_axis_is_one_cell_and_two_give_the_product(preset: str, experiment: str) -> None:
    words = shlex.split(f"--preset {preset} --experiment {experiment} {ONE[experiment]}")
    assert len(planned(*words, device="cuda", memory=2**37)) == 1
    doubled = [TWO.get(word, word) for word in words]
    cells = {item.cell.key for item in planned(*doubled, device="cuda", memory=2**37)}
    assert len(cells) == 2 ** sum(word in TWO for word in words)


def test_a_requested_grid_has_no_warmup_ablation() -> None:
    words = "--experiment benchmark --sizes small,medium --contexts 512 --precisions fp32,bf16 --modes inference,train"
    assert len(planned(*words.split())) == 2 * 2 * 2
    assert len(planned(*words.split(), "--backends", "compiled")) == 2 * 2 * 2
    assert len(planned(*words.split(), "--warmup", "0,1,2,5")) == 4 * 2 * 2 * 2


def test_other_axes_have_the_values_of_the_presets_first_grid() -> None:
    cells = [item.cell for item in planned("--contexts", "32,48", "--warmup", "3")]
    assert {(cell.context, cell.warmup_steps, cell.mode) for cell in cells} == {(32, 3, "train"), (48, 3, "train")}
    # benchmark measures fp32 and mixed precision fp32 and bf16, of three sizes; cells of both are measured once
    assert Counter(cell.precision for cell in cells) == {"fp32": 3 * 2, "bf16": 3 * 2}
    assert {cell.backend for cell in cells} == {"eager"}


def test_effort_is_not_an_axis_and_axes_of_other_experiments_change_nothing() -> None:
    warm = [item.cell.warmup_steps for item in planned("--steps", "20")]
    assert sorted(warm) == sorted(item.cell.warmup_steps for item in planned())
    both = ("--experiment", "attention", "--experiment", "memory")
    assert Counter(item.experiment for item in planned(*both, "--seq-lens", "96", "--d-heads", "8")) == {
        "attention": 2, "memory": len(planned("--experiment", "memory")),
    }  # fmt: skip


@pytest.mark.parametrize("preset", WHOLE)
@pytest.mark.parametrize("words", ["--precisions fp32", "--precisions bf16", "--backends compiled", "--sizes small"])
def test_counterfactuals_keep_the_variants_that_make_sense(preset: str, words: str) -> None:
    cells = [item.cell for item in planned("--preset", preset, "--experiment", "counterfactuals", *words.split())]
    for cell in cells:
        kind_of(cell).check(cell)
    assert len({(cell.attention, cell.optimizer) for cell in cells}) >= 4, "the naive step and what may help"
    name, value = {"--sizes": ("d_model", 768)}.get(words.split()[0], (words.split()[0][2:-1], words.split()[1]))
    assert {getattr(cell, name) for cell in cells} == {value}


def test_sums_can_be_requested_alone_or_left_out() -> None:
    every, alone = planned("--experiment", "numerics"), planned("--experiment", "numerics", "--sums", "fp16,fp32")
    assert Counter(type(item.cell).__name__ for item in every) == {"AccumulationCell": 4, "NumericsCell": 4}
    assert [(item.cell.accumulator, item.cell.addend) for item in sorted(alone, key=lambda item: item.cell.addend)] == [
        ("fp16", "fp16"), ("fp32", "fp32"),
    ]  # fmt: skip
    assert len(planned("--experiment", "numerics", "--precisions", "bf16")) == 1


@pytest.mark.parametrize(
    ("words", "got"),
    [
        ("--experiment benchmark --seq-lens 512", "--seq-lens means nothing to benchmark"),
        ("--experiment memory --steps 5 --sizes small", "--steps means nothing to memory"),
        ("--experiment kernels --experiment memory --warmup 1 --d-heads 8", "--d-heads, --warmup means nothing"),
        ("--experiment attention --backends compiled-block", "No cell is left"),
        ("--experiment counterfactuals --weights bf16 --precisions fp32", "No cell is left"),
        ("--steps 100 --max-steps 10", "At least 100 steps and at most 10 contradict each other"),
    ],
)
def test_meaningless_values_are_refused(words: str, got: str) -> None:
    with pytest.raises(UsageError) as error:
        planned(*words.split())
    assert got in str(error.value)


def test_a_limit_of_steps_that_is_set_decides_the_other() -> None:
    def limits(*words: str) -> set[tuple[int, int]]:
        items = planned("--preset", "cs336-2026", "--sizes", "small", *words)
        return {(item.cell.min_steps, item.cell.max_steps) for item in items}

    assert limits() == {(10, 10)}
    assert limits("--steps", "30") == {(30, 30)}
    assert limits("--max-steps", "4") == {(4, 4)}
    assert limits("--max-steps", "40") == {(10, 40)}
    assert limits("--steps", "3", "--max-steps", "4") == {(3, 4)}


def test_the_sweeps_of_the_documents_can_be_planned_for_a_gpu(tmp_path: Path) -> None:
    """`tests/test_documents.py` plans them for the device that is here."""
    (tmp_path / "sweep.toml").write_text('sizes = ["small"]')
    text = "\n".join((ROOT / name).read_text() for name in ("README.md", "docs/measuring.md"))
    lines = text.replace("sweep.toml", str(tmp_path / "sweep.toml")).splitlines()
    found = [line.partition("stepscope sweep")[2] for line in lines if line.startswith("stepscope sweep")]
    others = ("--model", "--again", "frontier")  # the reader's own files and rows, and what is no plan
    found = [words for words in found if not any(option in words for option in others)]
    assert len(found) > 5
    for words in found:
        experiments = () if "--experiment" in words else [word for name in QUESTIONS for word in ("--experiment", name)]
        for item in planned(*experiments, *shlex.split(words, comments=True), device="cuda"):
            kind_of(item.cell).check(item.cell)
