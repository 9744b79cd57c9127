"""Every page's sentence opens to its rows: the query that is shown gives them, and what was left out adds up."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from pages.parts.grid import commands, missing, places
from runner.schema import RunRow, new_id
from runner.store.database import open_reader
from runner.store.queries.attention import attention_cells
from runner.store.queries.counted import inlined
from runner.store.queries.evidence import Evidence, Scope, of_cells
from runner.store.queries.kernels import traces as traces_of
from runner.store.queries.latest import Rows
from runner.store.queries.memory import peaks
from runner.store.queries.selection import Selection
from runner.store.queries.steps import measured
from tests import memory_rows, rows, timelines, traces

MAIN = Path(__file__).parent.parent / "pages/main.py"
ADDRESSES = re.findall(r'\("[^"]+", "([a-z-]+)", ":material', MAIN.read_text())
HERE, THERE = "Example CPU · bench1", "Example GPU · bench2"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small sweep of everything, one cell of it measured again later, and some of it on another machine."""
    path, of = tmp_path_factory.mktemp("evidence") / "results.duckdb", rows.run()
    rows.store(path, of, rows.laptop(of))
    again = replace(of, run_id=new_id(), label="again")
    rows.store(path, again, [rows.ok(again, rows.asked("toy-64"), round=number) for number in (0, 1)])
    other = rows.run(device="cuda", device_name="Example GPU", host="bench2", run_id=UUID(int=7))
    rows.store(path, other, [rows.ok(other, rows.asked("toy-64", context=length)) for length in (64, 128)])
    parts = {"parameters": 2**20, "activations": 2**22}
    cells = [memory_rows.attention(run, seq_len=length) for run in (of, other) for length in (256, 1024)]
    cells += [memory_rows.attention(of, seq_len=1024, implementation="sdpa-flash")]
    cells += [memory_rows.memory(of, parts, context=context) for context in (128, 256)]
    cells += [memory_rows.memory(of, parts, timeline=True)]
    memory_rows.store(path, cells)
    traces.store(path, [traces.profiled(of, mode=mode) for mode in ("inference", "train")])
    timelines.write(path, of, timelines.step(allocations=50))
    return path


def opened(file: Path, address: str, monkeypatch: pytest.MonkeyPatch, **state: Any) -> AppTest:
    """A page with its evidence open."""
    monkeypatch.setenv("STEPSCOPE_DB", str(file))
    found = AppTest.from_file(str(MAIN), default_timeout=60)
    found._page_hash = calc_hash("" if address == "overview" else address)  # pages that are functions have no path
    for key in ("answer", "steps", "attention", "memory"):
        found.session_state[f"_why-{key}"] = True
    for key, value in state.items():
        found.session_state[key] = value
    return found.run()


@pytest.mark.parametrize("address", ADDRESSES)
def test_the_sentence_of_every_page_opens_to_the_query_that_gives_its_rows(
    file: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = opened(file, address, monkeypatch)
    assert not page.exception
    boxes = [box for box in page.expander if box.label == "How do we know?" and box.code]
    queries = [code.value for box in boxes for code in box.code]
    shown = [frame for box in boxes for frame in box.dataframe if "Left out because" not in frame.value.columns]
    assert len(queries) == len(shown) == sum(len(box.markdown) for box in boxes) >= 1
    for query, frame in zip(queries, shown, strict=True):
        with open_reader(file) as reader:
            expected = reader.execute(query).df()
        assert _texts(expected) == _texts(frame.value)
    assert not shown[0].value.empty


def _texts(table: pd.DataFrame) -> list[list[str]]:
    """Every value as text; pandas makes floats of whole numbers beside NULL, and NaN of NULL."""
    return [[_text(value) for value in row] for row in table.astype(object).values.tolist()]


def _text(value: Any) -> str:
    if pd.isna(value):
        return ""
    return repr(float(value)) if isinstance(value, int | float) else str(value)


def everything_adds_up(file: Path, found: Evidence) -> None:
    """Whatever is not in the answer is left out for one reason, by the query that says so."""
    left_out = sum(count for _, count in found.left_out)
    assert (found.cells or 0) + left_out == found.total
    with open_reader(file) as reader:
        assert tuple(reader.execute(found.left_out_sql).fetchall()) == found.left_out


def test_rows_left_out_are_counted_under_the_reason_that_holds(file: Path) -> None:
    """Of 33 rows: laptop's 30 (4 of them a warm-up ablation), two later ones, two elsewhere, minus none."""
    shown = [cell for cell in measured(file, Selection(machine=HERE, mode="train")) if cell.cell.precision == "fp32"]
    plain = [cell for cell in shown if cell.cell.backend == "eager"]
    found = of_cells(file, Scope(table="steps", machine=HERE), tuple(cell.cell_id for cell in plain))
    everything_adds_up(file, found)
    # 9 cells of 3 sizes × 3 contexts, one of which in two rounds
    assert (found.cells, len({row[-1] for row in found.rows})) == (10, 10)
    reasons = dict(found.left_out)
    assert reasons[f"measured on {THERE}"] == 2
    assert reasons["mode is inference"] == 3
    assert reasons["precision is bf16"] == 9 + 2
    assert reasons["backend is compiled-block"] == 2
    # the cell of the first run that `again` answers anew, and the ablation's with less warm-up or fewer steps
    assert sum(count for why, count in reasons.items() if why.startswith("asked again")) == 1 + 4


@pytest.mark.parametrize("table", ["attention", "memory", "profiles"])
def test_the_query_counts_what_the_pages_count(file: Path, table: str) -> None:
    query: Any = {"attention": attention_cells, "memory": peaks, "profiles": traces_of}[table]
    cells = [cell for cell in query(file, Rows(machine=HERE)) if cell.cell is not None]
    found = of_cells(file, Scope(table=table, machine=HERE), tuple(cell.cell_id for cell in cells))
    assert {row[found.columns.index("cell_id")] for row in found.rows} == {cell.cell_id for cell in cells}
    everything_adds_up(file, found)
    one = of_cells(file, Scope(table=table, machine=HERE), (cells[0].cell_id,))
    assert {row[one.columns.index("cell_id")] for row in one.rows} == {cells[0].cell_id}
    everything_adds_up(file, one)


def test_cells_of_any_run_and_machine(file: Path) -> None:
    """What Compare rests on: also rows that a later run has answered anew."""
    with open_reader(file) as reader:
        ids = reader.execute("SELECT cell_id, machine FROM (SELECT s.cell_id, r.device_name AS machine FROM steps s "
                             "JOIN runs r USING (run_id) WHERE d_model = 64 AND context = 128 AND precision = 'fp32' "
                             "AND mode = 'train')").fetchall()  # fmt: skip
    found = of_cells(file, Scope(table="steps", latest=False), tuple(cell_id for cell_id, _ in ids))
    assert {row[found.columns.index("cell_id")] for row in found.rows} == {cell_id for cell_id, _ in ids}
    assert len(ids) == 4
    everything_adds_up(file, found)


def test_values_are_written_out_so_that_they_mean_what_they_said(file: Path) -> None:
    odd = ["it's", None, True, 1.5, 7, UUID(int=9), ["a", "b'c"]]
    with open_reader(file) as reader:
        (said,) = reader.execute(inlined("SELECT ?, ?, ?, ?, ?, ?, ?", odd)).fetchall()
    assert [float(value) if index == 3 else value for index, value in enumerate(said)] == odd


def test_missing_cells_and_the_commands_for_exactly_those(file: Path) -> None:
    """A row is wanted at every length, and no command asks for more."""
    of = rows.run()
    asked = [("fp32", 64), ("fp32", 128), ("fp32", 256), ("bf16", 128), ("fp16", 128)]
    cells = [_Asked(rows.asked("toy-64", precision=precision, context=context), of) for precision, context in asked]
    cells += [_Asked(rows.asked("toy-128", context=64), of)]
    gaps: list[Any] = missing(cells)
    assert {(gap.d_model, gap.precision, gap.context) for gap in gaps} == {
        (64, "bf16", 64), (64, "bf16", 256), (64, "fp16", 64), (64, "fp16", 256), (128, "fp32", 128), (128, "fp32", 256)
    }  # fmt: skip
    found = commands(gaps)
    assert len(found) == 2
    assert [place.row for place in places(cells)][:1] == ["train · fp32 · eager"]
    assert _planned(found) == {(gap.d_model, gap.precision, gap.context) for gap in gaps}


class _Asked:
    """As much of a query's row as the grid looks at."""

    def __init__(self, cell: Any, of: RunRow) -> None:
        self.cell, self.cell_id, self.status = cell, of.run_id, "ok"


def _planned(found: Sequence[str]) -> set[tuple[int, str, int]]:
    """What such commands ask for, by their flags."""
    cells: set[tuple[int, str, int]] = set()
    for text in found:
        words = shlex.split(text)
        assert "--fresh" not in words, "what is there is not measured again"
        flags = dict(pair for pair in pairwise(words) if pair[0].startswith("--"))
        sizes, precisions, contexts = (flags[name].split(",") for name in ("--sizes", "--precisions", "--contexts"))
        asked = {(rows.TOYS[s]["d_model"], p, int(c)) for s in sizes for p in precisions for c in contexts}
        assert not asked & cells
        cells |= asked
    return cells
