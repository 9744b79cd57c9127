"""The query behind a sentence returns the rows that it rests on, and counts every other row under one reason."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from runner.store.database import open_reader
from runner.store.queries.attention import load_attention
from runner.store.queries.counted import inline_parameters
from runner.store.queries.evidence import Evidence, EvidenceScope, of_cells
from runner.store.queries.memory import load_peaks
from runner.store.queries.selection import Selection
from runner.store.queries.steps import load_steps
from runner.store.read.kernels import load_traces as traces_of
from tests.synthetic.small import store_small

HERE, THERE = "Example CPU · bench1", "Example GPU · bench2"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store_small(tmp_path_factory.mktemp("evidence") / "results.duckdb")


def check_sums(file: Path, found: Evidence) -> None:
    """Asserts that every row outside the answer is counted under one reason, also by the stored query for that."""
    left_out = sum(count for _, count in found.left_out)
    assert (found.cells or 0) + left_out == found.total
    with open_reader(file) as reader:
        assert tuple(reader.execute(found.left_out_sql).fetchall()) == found.left_out


def test_omitted_rows_are_counted_under_their_reason(file: Path) -> None:
    """There are 33 rows: 29 of `laptop` (4 of them a warm-up ablation), two rounds of a cell measured again, and two on
    another machine."""
    shown = [cell for cell in load_steps(file, Selection(machine=HERE, mode="train")) if cell.cell.precision == "fp32"]
    plain = [cell for cell in shown if cell.cell.backend == "eager"]
    found = of_cells(file, EvidenceScope(table="steps", machine=HERE), tuple(cell.cell_id for cell in plain))
    check_sums(file, found)
    # 9 cells of 3 sizes × 3 contexts, one of them in two rounds
    assert (found.cells, len({row[-1] for row in found.rows})) == (10, 10)
    reasons = dict(found.left_out)
    assert reasons[f"measured on {THERE}"] == 2
    assert reasons["mode is inference"] == 3
    assert reasons["precision is bf16"] == 9 + 2
    assert reasons["backend is compiled-block"] == 2
    # the cell of the first run that `again` repeats, and the ablation's cells with less warm-up or fewer steps
    assert sum(count for why, count in reasons.items() if why.startswith("asked again")) == 1 + 4


@pytest.mark.parametrize("table", ["attention", "memory", "profiles"])
def test_the_query_counts_what_the_pages_count(file: Path, table: str) -> None:
    query: Any = {"attention": load_attention, "memory": load_peaks, "profiles": traces_of}[table]
    cells = [cell for cell in query(file, Selection(machine=HERE)) if cell.cell is not None]
    found = of_cells(file, EvidenceScope(table=table, machine=HERE), tuple(cell.cell_id for cell in cells))
    assert {row[found.columns.index("cell_id")] for row in found.rows} == {cell.cell_id for cell in cells}
    check_sums(file, found)
    one = of_cells(file, EvidenceScope(table=table, machine=HERE), (cells[0].cell_id,))
    assert {row[one.columns.index("cell_id")] for row in one.rows} == {cells[0].cell_id}
    check_sums(file, one)


def test_cells_of_any_run_and_machine(file: Path) -> None:
    """The rows behind Compare, which include those that a later run has measured again."""
    with open_reader(file) as reader:
        ids = reader.execute("SELECT cell_id, machine FROM (SELECT s.cell_id, r.device_name AS machine FROM steps s "
                             "JOIN runs r USING (run_id) WHERE d_model = 64 AND context = 128 AND precision = 'fp32' "
                             "AND mode = 'train')").fetchall()  # fmt: skip
    found = of_cells(file, EvidenceScope(table="steps", latest=False), tuple(cell_id for cell_id, _ in ids))
    assert {row[found.columns.index("cell_id")] for row in found.rows} == {cell_id for cell_id, _ in ids}
    assert len(ids) == 4
    check_sums(file, found)


def test_inlined_parameters_keep_their_values(file: Path) -> None:
    odd = ["it's", None, True, 1.5, 7, UUID(int=9), ["a", "b'c"]]
    with open_reader(file) as reader:
        (said,) = reader.execute(inline_parameters("SELECT ?, ?, ?, ?, ?, ?, ?", odd)).fetchall()
    assert [float(value) if index == 3 else value for index, value in enumerate(said)] == odd
