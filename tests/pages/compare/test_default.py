"""Compare opens with two sides that share cells, whatever else the file contains; tested with measured rows."""

import re
from pathlib import Path
from typing import Any

import pytest

from pages.offline.visit import Visits, nodes
from runner.analysis.compare.verdict import Kind
from runner.schema.sizes import SIZES
from runner.store.queries.sides import choose_pair, choose_sides
from tests.command import TINY, run
from tests.runner.own.build import own_file
from tests.synthetic import rows
from tests.synthetic.sides import run_named


def sweep(path: Path, label: str, *words: str) -> None:
    done = run("sweep", *TINY, "--steps", "8", "--max-steps", "8", "--fresh", "--label", label, *words, db=path)
    assert done.returncode == 0, done.stdout


def labels(path: Path, kind: Kind) -> list[str] | None:
    """Returns the labels of the default A and B of a kind; the labels of runs are without the suffix of their id."""
    pair = choose_pair(path, kind)
    return [side.title.split()[0] for side in pair] if pair else None


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file with two runs that share no cell: they differ in length and in precision."""
    path = tmp_path_factory.mktemp("apart") / "results.duckdb"
    sweep(path, "first", "--contexts", "16")
    sweep(path, "second", "--contexts", "32", "--precisions", "bf16")
    return path


@pytest.fixture(scope="module")
def shared(apart: Path) -> Path:
    """Returns that file with a run that shares its cell with the first, and a later run that shares none."""
    path = apart.with_name("shared.duckdb")
    assert run("export", str(path), db=apart).returncode == 0
    sweep(path, "third", "--contexts", "16")
    sweep(path, "fourth", "--contexts", "48")
    return path


def visit_words(path: Path, **choices: str) -> str:
    """Returns the words of Compare. After it, no sweep can start in this process until the next test."""
    visit = Visits(path).visit("compare", {name: [value] for name, value in choices.items()})
    return " ".join(str(getattr(node, "value", "")) for node in nodes(visit.main))


def test_runs_without_a_common_cell_are_not_compared(apart: Path) -> None:
    """The page says so instead of comparing fp32 at 16 tokens with bf16 at 32."""
    assert choose_sides(apart) is None
    assert "share a measured cell" in visit_words(apart)


def test_the_latest_runs_that_share_a_cell_are_compared(shared: Path) -> None:
    assert labels(shared, "run") == ["first", "third"], "the latest run shares no cell"
    assert labels(shared, "label") == ["first", "third"]
    assert labels(shared, "precision") is None, "no cell was measured in both"
    for words in (visit_words(shared), visit_words(shared, compare="Labels")):
        # On a busy machine, such as one that runs tests, the audit may find a time impossible.
        assert re.search("1 comparable cell|graded D in", words)


@pytest.mark.soak
def test_two_versions_of_an_own_model_share_their_cells(tmp_path: Path) -> None:
    path, words = tmp_path / "results.duckdb", ("--experiment", "benchmark", "--rounds", "1", "--max-steps", "4")
    for width in (4, 5):
        model = own_file(
            tmp_path,
            f"""
            def build(want):
                return nn.Linear({width}, 1), torch.ones(want.batch, {width}), lambda out: out.sum()
            """,
        )
        done = run("sweep", "--model", model, *words, "--device", "cpu", "--label", f"v{width}", db=path)
        assert done.returncode == 0, done.stdout
    assert labels(path, "run") == ["v4", "v5"]


def test_the_year_of_an_edition_is_not_a_number_of_tokens(tmp_path: Path) -> None:
    path = tmp_path / "results.duckdb"
    for label in ("before", "after"):
        of = run_named(label)
        shapes: list[dict[str, Any]] = [dict(SIZES[size].numbers) for size in ("small", "xl@2025")]
        rows.store(path, of, [rows.ok(of, rows.asked(**shape, context=1024)) for shape in shapes])
    visit = Visits(path).visit("compare", {})
    pairs, *_ = [node.proto.spec for node in nodes(visit.main) if node.type == "plotly_chart"]
    assert '"xl@2025"' in pairs
    assert "2,025" not in pairs
