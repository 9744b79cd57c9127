"""Sentences about something missing are true: files for which such a sentence used to be false."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from pages.attention.answers import agreement
from pages.attention.answers import answer as attention_answer
from pages.mixed_precision.headline import answer_speedup
from pages.navigation import OPEN
from pages.peak_memory.answers import answer as memory_answer
from pages.torch_compile.headline import answer_compiled
from pages.ui.answers import step_answer
from pages.ui.comparison import comparison
from pages.ui.frame import Frame
from runner.analysis.compare.speedups import compare
from runner.schema import new_id
from runner.store.queries.attention import load_attention
from runner.store.queries.memory import load_peaks
from runner.store.queries.overview import load_contents
from runner.store.queries.selection import Model, Selection
from runner.store.queries.steps import load_steps
from tests.synthetic import memory_rows, rows, traces

MAIN = Path(__file__).parents[2] / "pages/main.py"
COMPILED = {"backend": "compiled-block"}


def frame_of(path: Path, **selected: Any) -> Frame:
    held = load_contents(path)
    selection = Selection(**{"machine": held.machines[0], "mode": "train", **selected})
    return Frame(path=path, state=str(new_id()), contents=held, selection=selection)


def stored(path: Path, *cells: Any) -> Path:
    of = rows.run()
    return rows.store(path, of, [rows.ok(of, cell) for cell in cells])


def test_compiled_cells_without_an_eager_partner_are_not_called_missing(tmp_path: Path) -> None:
    path = stored(tmp_path / "r.duckdb", rows.asked(context=64), rows.asked(context=128, precision="bf16", **COMPILED))
    frame = frame_of(path)
    assert answer_compiled(frame).words == "No cell in this file was measured both in eager and in another backend."
    assert answer_speedup(frame).words == "No cell in this file was measured both in fp32 and in another precision."


def test_a_partner_that_failed_is_not_called_missing(tmp_path: Path) -> None:
    of = rows.run()
    cells = [rows.ok(of, rows.asked()), rows.failed(of, rows.asked(**COMPILED), status="crashed")]
    path = rows.store(tmp_path / "r.duckdb", of, cells)
    words = "No cell in this file can be compared in eager and in another backend: compiled-block crashed."
    assert answer_compiled(frame_of(path)).words == words


def test_cells_left_out_by_filters_or_the_mode_are_not_called_missing(tmp_path: Path) -> None:
    cells = (rows.asked(), rows.asked("toy-128"), rows.asked("toy-128", **COMPILED), rows.asked(mode="inference"))
    path = stored(tmp_path / "r.duckdb", *cells)
    small = Model(**rows.TOYS["toy-64"])
    assert (
        answer_compiled(frame_of(path, size=(small,))).words
        == "Only eager was measured in mode train with these filters."
    )
    assert (
        answer_compiled(frame_of(path, mode="inference")).words
        == "Only eager was measured in mode inference in this file."
    )
    assert "faster" in answer_compiled(frame_of(path)).words
    assert answer_compiled(frame_of(path, mode="forward")).words == "No step was measured in mode forward in this file."
    lone = stored(tmp_path / "b.duckdb", rows.asked(**COMPILED))
    assert answer_compiled(frame_of(lone)).words == "Only compiled-block was measured in this file."


def test_rows_of_another_torch_are_not_called_missing(tmp_path: Path) -> None:
    path = tmp_path / "r.duckdb"
    for of, precision in ((rows.run(), "fp32"), (rows.run(torch="2.14.0"), "bf16")):
        rows.store(path, of, [rows.ok(of, rows.asked(precision=precision))])
    asked = Selection(settled=False)
    found = compare(load_steps(path, asked), axis="precision", baseline="fp32", variant="bf16")
    alike = "on the same machine with the same torch"
    assert {item.reason for item in found.left_out} == {f"not measured in {p} {alike}" for p in ("fp32", "bf16")}
    assert comparison(frame_of(path), "precision", baseline="fp32", variant="bf16").speedups == []


def test_published_rows_without_the_whole_step_have_a_result(tmp_path: Path) -> None:
    """The table gives only forward and backward, and nothing failed."""
    of = rows.run(source="published")
    made = rows.ok(of, rows.asked())
    kept = tuple(timing for timing in made.timings if timing.phase in ("forward", "backward"))
    path = rows.store(tmp_path / "r.duckdb", of, [replace(made, timings=kept, samples=())])
    frame = frame_of(path)
    assert step_answer(frame, frame.measured()) == "None of these cells has a time of a whole step."
    memory_rows.store(path, [memory_rows.memory(of, {}, values={"peak_allocated_bytes": None})])
    assert memory_answer(load_peaks(path, Selection()), frame.sizes) == "None of these cells has a peak."


def test_an_error_of_zero_counts_as_compared(tmp_path: Path) -> None:
    exact = {"output_error": 0.0, "gradient_error": 0.0, "tolerance": 1e-6}
    path = memory_rows.store(tmp_path / "r.duckdb", [memory_rows.attention(rows.run(), seq_len=256, values=exact)])
    (cell,) = load_attention(path, Selection())
    assert "1 of 1 cells were compared with float64 results: all agree" in agreement([cell])
    unsummed = replace(cell, times={phase: t for phase, t in cell.times.items() if phase == "forward"})
    assert attention_answer([unsummed]) == "None of these cells has a time of forward and backward together."


def page(path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Returns all words of a page as it opens."""
    monkeypatch.setenv("STEPSCOPE_DB", str(path))
    found = AppTest.from_file(str(MAIN), default_timeout=120)
    found.session_state[OPEN] = address
    found.run()
    assert not found.exception
    return re.sub(r"\s+", " ", " ".join(node.value for node in (*found.markdown, *found.caption)))


def test_pages_of_rows_that_failed_or_have_no_partner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed profile, memory in two precisions of which one is recorded as a timeline, and skipped attention."""
    of = rows.run()
    path = rows.store(tmp_path / "r.duckdb", of, [rows.ok(of, rows.asked()), rows.ok(of, rows.asked(warmup_steps=0))])
    traces.store(path, [traces.profiled(of, values={"status": "crashed", "message": "killed"})])
    tables = [
        memory_rows.memory(of, {"parameters": 2**20}),
        memory_rows.memory(of, {}, precision="bf16", timeline=True),
    ]
    tables += [memory_rows.attention(of, seq_len=256)]
    tables += [memory_rows.attention(of, seq_len=256, implementation="sdpa-flash", status="skipped")]
    memory_rows.store(path, tables)
    words = page(path, "kernels", monkeypatch)
    assert "No profiled step has a result with these filters." in words
    words = page(path, "peak-memory", monkeypatch)
    assert "No two cells here with a peak differ in nothing but fp32 and bf16." in words
    words = page(path, "attention", monkeypatch)
    assert "Apart from skipped cells, naive and another implementation were not both measured." in words
    words = page(path, "training-step", monkeypatch)
    assert "has results after several of 0, 1, 2 and 5 warm-up steps with one fixed number of measured ones" in words
