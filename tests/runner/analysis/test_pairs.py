"""Two cells are compared only if they agree in every field of their key except the compared one.

The test computes the differing fields a second time (`differing`) and checks every comparison with it: over randomly
drawn rows, and over the file with rows for every sentence.
"""

import random
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from pages.attention.answers import ways
from pages.mixed_precision.prices import price_precisions
from pages.peak_memory.saved import families
from pages.torch_compile.speedups import load_speedups
from pages.torch_compile.speedups import ways as ways_of_compiling
from pages.ui.answers import speedup_answer
from pages.ui.frame import Frame
from pages.ui.grid import places
from runner.analysis.audit.findings import RowContext
from runner.analysis.audit.pair_rules import no_effect
from runner.analysis.compare.best import find_best
from runner.analysis.compare.counterfactuals import AXES, find_counterfactuals, select_bases
from runner.analysis.compare.pairs import (
    describe_effort_difference,
    describe_unusual_effort,
    describe_unusual_pairs,
    match_pair,
)
from runner.analysis.compare.peaks import pairs_of
from runner.analysis.compare.speedups import compare
from runner.analysis.compare.verdict import Kind, Side
from runner.results import StepResult
from runner.schema import Cell, StepCell, new_id
from runner.store.queries.attention import load_attention
from runner.store.queries.compare import ComparisonRequest, load_comparison
from runner.store.queries.memory import load_peaks
from runner.store.queries.overview import load_contents
from runner.store.queries.selection import Selection
from runner.store.queries.sides import OF_RUNS, load_sides
from runner.store.queries.steps import load_steps
from tests.synthetic import memory_rows, rows
from tests.synthetic.everything import store as store_everything

Named = tuple[Cell, Cell, set[str]]


def differing(a: Cell, b: Cell) -> set[str]:
    """Returns the fields of the key in which two cells differ. If either is not compiled, the compiler's cache is
    ignored."""
    names = [item.name for item in fields(StepCell)] if isinstance(a, StepCell) else list(type(a).names())
    found = {name for name in names if getattr(a, name) != getattr(b, name)}
    compiled = all(str(getattr(cell, "backend", "")).startswith("compiled") for cell in (a, b))
    return found if compiled else found - {"compile_cache"}


def every_pair(path: Path) -> Iterator[Named]:
    """Yields both sides of every ratio and difference in the file, and the fields that the sentence names."""
    held, frames = load_contents(path), []
    for machine, mode in product(held.machines, held.choices["mode"]):
        frames.append(
            Frame(path=path, state=str(new_id()), contents=held, selection=Selection(machine=machine, mode=mode))
        )
    for frame in frames:
        cells = load_steps(path, replace(frame.selection, settled=False))
        yield from _steps(cells)
        items, _ = load_speedups(frame, ways_of_compiling(frame))
        yield from ((item.step.base.cell, item.step.other.cell, {"backend"}) for item in items)
        for one in price_precisions(frame):
            if one.speedup:
                yield one.speedup.base.cell, one.speedup.other.cell, {"precision"}
    yield from _others(path)
    yield from _of_compare(path)


def _steps(cells: list[StepResult]) -> Iterator[Named]:
    for axis, values in (("precision", ("fp32", "tf32", "bf16")), ("backend", ("eager", "compiled", "compiled-block"))):
        for variant in values[1:]:
            found = compare(cells, axis=axis, baseline=values[0], variant=variant)  # type: ignore[arg-type]
            yield from ((pair.base.cell, pair.other.cell, {axis}) for pair in found.speedups)
    for best in find_best(cells):
        for other in (best.plain, *best.rivals):
            if other and (other is not best.plain or best.speedup):
                changed = {axis for axis in AXES if getattr(best.cell.cell, axis) != getattr(other.cell, axis)}
                yield best.cell.cell, other.cell, changed
    for base in select_bases(cells):
        for change in find_counterfactuals(base, cells):
            assert set(change.changed) <= set(AXES)
            yield base.cell, change.cell.cell, set(change.changed)


def _others(path: Path) -> Iterator[Named]:
    attended = load_attention(path, Selection(settled=False))
    for one, other in product(ways(attended), repeat=2):
        if one != other:
            pairs = compare(attended, axis="way", baseline=one, variant=other).speedups
            yield from ((pair.base.cell, pair.other.cell, {"implementation", "backend"}) for pair in pairs)
    held = load_peaks(path, Selection())
    yield from ((pair.base.cell, pair.other.cell, {"precision"}) for pair in pairs_of(held))
    for plain, *checkpointed in families(held):
        yield from ((plain.cell, cell.cell, {"checkpoint_blocks"}) for cell in checkpointed)


def _of_compare(path: Path) -> Iterator[Named]:
    known = load_sides(path)
    kinds: tuple[Kind, ...] = ("label", "precision", "backend")
    for kind in kinds:
        named: set[str] = set() if kind in OF_RUNS else {kind}
        for a, b in combinations(known[kind], 2):
            for verdict in load_comparison(path, ComparisonRequest(a=a, b=b)).verdicts:
                yield from ((pair.base.cell, pair.other.cell, named) for pair in verdict.pairs)


def check(path: Path) -> int:
    """Fails for a pair that differs in more fields than named. Returns the number of pairs."""
    count = 0
    for a, b, named in every_pair(path):
        assert differing(a, b) <= named, (a, b)
        caches = {getattr(cell, "compile_cache", "shared") for cell in (a, b)}
        if caches == {"shared", "empty"}:
            words = "The pair was measured with compile cache empty."
            assert describe_unusual_pairs([(a, b)]) == words, "every difference that is not compared is named"
        count += 1
    return count


# ---------------------------------------------------------------------------------------------------- over many cells


EFFORTS: tuple[dict[str, Any], ...] = (
    {}, {"warmup_steps": 0}, {"max_steps": 10}, {"warmup_steps": 0, "max_steps": 10}, {"compile_cache": "empty"},
)  # fmt: skip


def drawn_by_chance(path: Path, seed: int) -> Path:
    """Stores two runs of cells that differ in a few axes and in effort, some of which failed."""
    chance = random.Random(seed)
    backends = ("eager", "compiled", "compiled-block")
    possible = [
        rows.asked(precision=precision, backend=backend, batch=batch, attention=attention, **effort)
        for precision, backend, batch, attention, effort in product(
            ("fp32", "bf16"), backends, (4, 8), ("naive", "sdpa"), EFFORTS)
        if backend != "eager" or "compile_cache" not in effort
    ]  # fmt: skip
    for label in ("before", "after"):
        of = rows.run(label=label)
        chosen = chance.sample(possible, 28)
        found = [rows.failed(of, cell) if chance.random() < 0.1 else rows.ok(of, cell, steps=8) for cell in chosen]
        rows.store(path, of, found)
        tables = [
            memory_rows.attention(of, seq_len=512, implementation=how, backend=backend, warmup_steps=warmup)
            for how, backend, warmup in product(("naive", "sdpa-flash"), ("eager", "compiled"), (0, 5))
            if chance.random() < 0.6
        ]
        tables += [
            memory_rows.memory(of, {"parameters": 2**20}, precision=precision, timeline=timeline, batch=batch)
            for precision, timeline, batch in product(("fp32", "bf16"), (False, True), (4, 8)) if chance.random() < 0.6
        ]  # fmt: skip
        memory_rows.store(path, tables)
    return path


@pytest.fixture(scope="module", params=[0, pytest.param(1, marks=pytest.mark.soak)])
def by_chance(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return drawn_by_chance(tmp_path_factory.mktemp("pairs") / "r.duckdb", request.param)


@pytest.mark.soak
def test_pairs_agree_in_all_fields_that_are_not_named(by_chance: Path) -> None:
    assert check(by_chance) > 40


def test_pairs_of_every_page_agree(tmp_path: Path) -> None:
    of = rows.run()
    path = rows.store(tmp_path / "r.duckdb", of, rows.laptop(of))
    assert check(store_everything(path)) > 50


def test_no_pair_is_missed(by_chance: Path) -> None:
    """Each question with two cells that agree has its pair, and only one."""
    asked = Selection(settled=False)
    cells = load_steps(by_chance, asked)
    found = compare(cells, axis="precision", baseline="fp32", variant="bf16").speedups
    pairs = [pair.base.cell for pair in found if pair.phase == "step"]
    questions = {
        (a.cell.batch, a.cell.attention, a.cell.backend)
        for a, b in product(cells, repeat=2)
        if a.status == b.status == "ok" and (a.cell.precision, b.cell.precision) == ("fp32", "bf16")
        if differing(a.cell, b.cell) == {"precision"}
    }
    assert sorted((cell.batch, cell.attention, cell.backend) for cell in pairs) == sorted(questions)


# ------------------------------------------------------------------------------------------------------------- by hand


def stored(path: Path, *cells: StepCell) -> Path:
    of = rows.run()
    return rows.store(path, of, [rows.ok(of, cell) for cell in cells])


def pairs(path: Path, axis: Any, baseline: str, variant: str) -> tuple[list[tuple[StepCell, StepCell]], list[str]]:
    asked = Selection(mode="train", settled=False)
    found = compare(load_steps(path, asked), axis=axis, baseline=baseline, variant=variant)
    shown = [(pair.base.cell, pair.other.cell) for pair in found.speedups if pair.phase == "step"]
    return shown, [item.reason for item in found.left_out]


FP32, BF16 = rows.asked(backend="compiled-block"), rows.asked(backend="compiled-block", precision="bf16")
COLD = replace(FP32, compile_cache="empty")


def test_a_cell_compiled_with_both_caches_is_paired_with_its_match(tmp_path: Path) -> None:
    """bf16 was compiled with the shared cache, so it is compared with the fp32 cell that was too, and eager with that
    cell."""
    path = stored(tmp_path / "r.duckdb", FP32, COLD, BF16, rows.asked())
    assert pairs(path, "precision", "fp32", "bf16") == ([(FP32, BF16)], ["not measured in bf16"])
    assert pairs(path, "backend", "eager", "compiled-block")[0] == [(rows.asked(), FP32)]
    (verdict,) = load_comparison(path, ComparisonRequest(a=of_precision("fp32"), b=of_precision("bf16"))).verdicts
    assert [(pair.base.cell, pair.other.cell) for pair in verdict.pairs] == [(FP32, BF16)]
    shown = [cell.cell for cell in load_steps(path, Selection(mode="train")) if cell.cell.backend != "eager"]
    assert shown == [FP32, BF16], "the shared cache is the usual one"


def of_precision(name: str) -> Side:
    return Side(kind="precision", value=name, title=name)


def test_cells_that_both_lack_warmup_or_a_shared_cache_are_compared(tmp_path: Path) -> None:
    cold, thorough = replace(BF16, compile_cache="empty"), rows.asked(warmup_steps=9)
    hasty = rows.asked(warmup_steps=0), rows.asked(warmup_steps=0, precision="bf16")
    path = stored(tmp_path / "r.duckdb", FP32, COLD, cold, thorough, *hasty)
    assert pairs(path, "precision", "fp32", "bf16") == ([hasty, (COLD, cold)], [])
    frame = Frame(path=path, state=str(new_id()), contents=load_contents(path), selection=Selection(mode="train"))
    asked = Selection(mode="train", settled=False)
    found = compare(load_steps(path, asked), axis="precision", baseline="fp32", variant="bf16")
    words = speedup_answer(found, baseline="fp32", variant="bf16")
    assert (
        "1 of the 2 pairs was measured with warm-up 0 steps. 1 of the 2 pairs was measured with compile cache empty."
    ) in words
    assert [frame.size_of(pair[0]) for pair in ((COLD, cold), hasty)] == [
        "toy-64 · compile cache empty", "toy-64 · warm-up 0 steps"
    ]  # fmt: skip


def test_cells_with_different_effort_are_left_out_with_the_reason(tmp_path: Path) -> None:
    hasty = rows.asked(precision="bf16", warmup_steps=0)
    path = stored(tmp_path / "r.duckdb", rows.asked(), hasty, COLD, BF16)
    shown, reasons = pairs(path, "precision", "fp32", "bf16")
    assert shown == []
    assert reasons == ["measured with warm-up 5 against 0 steps (fp32 against bf16)",
                       "measured with compile cache empty against shared (fp32 against bf16)"]  # fmt: skip
    (verdict,) = load_comparison(path, ComparisonRequest(a=of_precision("fp32"), b=of_precision("bf16"))).verdicts
    assert verdict.pairs == ()
    assert {(item.reason, item.detail) for item in verdict.left_out} == {
        ("measured in another way", "With warm-up 5 against 0 steps, fp32 against bf16."),
        ("measured in another way", "With compile cache empty against shared, fp32 against bf16."),
    }


def test_a_pair_that_worked_comes_before_a_preferred_one_that_failed(tmp_path: Path) -> None:
    of = rows.run()
    hasty: dict[str, Any] = {"warmup_steps": 0}
    cells = [rows.ok(of, rows.asked()), rows.failed(of, rows.asked(precision="bf16"))]
    cells += [rows.ok(of, rows.asked(**hasty)), rows.ok(of, rows.asked(precision="bf16", **hasty))]
    path = rows.store(tmp_path / "r.duckdb", of, cells)
    assert pairs(path, "precision", "fp32", "bf16")[0] == [
        (rows.asked(**hasty), rows.asked(precision="bf16", **hasty))
    ]  # fmt: skip


def test_unusual_effort_is_named() -> None:
    """Less warm-up, an empty cache and a timeline are named. The end of a cell and a cache that a cell does not use are
    not."""
    assert describe_unusual_effort(rows.asked(warmup_steps=9, max_steps=10, max_seconds=0.3)) == ""
    assert describe_unusual_effort(rows.asked(compile_cache="empty")) == ""
    assert describe_unusual_effort(replace(COLD, warmup_steps=2)) == "warm-up 2 steps, compile cache empty"
    assert describe_effort_difference(rows.asked(), rows.asked(compile_cache="empty")) == ""
    assert match_pair([], []) is None


def test_the_audit_compares_cells_with_equal_effort() -> None:
    """A cell compiled with an empty cache takes as long as an eager one with less warm-up, which says nothing about the
    compiler."""
    of = rows.run()
    with patch.dict(rows.FASTER, {"compiled-block": 1.0}):
        eager, compiled = (rows.ok(of, cell) for cell in (rows.asked(warmup_steps=2), COLD))
        like = rows.ok(of, rows.asked())
    known = [(item.step, _seen(item)) for item in (eager, compiled, like)]
    assert list(no_effect(known[:2])) == []
    assert [finding.code for _, finding in no_effect(known)] == ["no_effect"]


def _seen(item: rows.Rows) -> RowContext:
    return RowContext(timings={timing.phase: timing for timing in item.timings})


def test_the_grid_has_a_row_for_each_way(tmp_path: Path) -> None:
    """A fused, compiled cell and a plain one of equal precision and size have different places, and so do two
    batches."""
    cells = [rows.asked(), rows.asked(attention="sdpa", optimizer="fused", backend="compiled"), rows.asked(batch=8),
             rows.asked(precision="bf16", warmup_steps=0)]  # fmt: skip
    found = places(load_steps(stored(tmp_path / "r.duckdb", *cells), Selection(mode="train")))
    assert [(place.block, place.row, len(place.cells)) for place in found] == [
        ("toy-64", "fp32 · eager", 1),
        ("toy-64", "fp32 · compiled · sdpa · optimizer fused", 1),
        ("toy-64", "bf16 · eager · warm-up 0 steps", 1),
        ("toy-64", "fp32 · eager · batch 8", 1),
    ]
