"""The cells that a sweep plans: presets by hand, axes, keys, sizes, order, and the command that plans them again."""

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import field, fields, make_dataclass, replace
from typing import Any

import pytest

from runner.analysis.costs import steps as costs
from runner.errors import UsageError
from runner.experiments import KINDS, kind_of
from runner.experiments.experiment import Grid
from runner.plan.planning import PRESETS, Planned, Request, plan, preset_for, size_of, starts_cold
from runner.schema import TABLES, AttentionCell, Cell, MemoryCell, ProfileCell, StepCell, table_of
from runner.schema.axes import Model
from runner.schema.columns import column
from runner.schema.sizes import SIZES, name_models, parse_shape, size_named, title
from tests.command import planned, tiny
from tests.synthetic import rows

GIB = 2**30
#: What distinguishes the cells of a preset: width, context, mode, precision, backend, warm-up, exactly ten steps.
Short = tuple[int, int, str, str, str, int, bool]


def short(cells: Iterable[Any]) -> list[Short]:
    return sorted(
        (c.d_model, c.context, c.mode, c.precision, c.backend, c.warmup_steps, c.max_steps == 10)
        for c in (item.cell for item in cells)
    )


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (Request(), True),
        (Request(preset="cs336-2025"), True),
        (Request(experiments=("memory", "mixed-precision")), False),
        (Request(axes={"backends": ("eager", "cuda-graphs")}), False),
        (Request(axes={"backends": ("eager", "compiled-block")}), True),
        (Request(cells=(tiny(), tiny(backend="compiled"))), True),
        (Request(cells=(tiny(),)), False),
    ],
)
def test_it_is_known_beforehand_whether_a_sweep_compiles(request_: Request, expected: bool) -> None:
    assert request_.may_compile is expected


def test_laptop_has_these_22_cells() -> None:
    trained = [
        (width, context, "train", precision, "eager", 5, False)
        for width in (64, 128, 256)
        for context, precision in ((32, "fp32"), (64, "fp32"), (64, "bf16"), (128, "fp32"), (128, "bf16"))
    ]
    inference = [(width, 64, "inference", "fp32", "eager", 5, False) for width in (64, 128, 256)]
    ablation = [(128, 64, "train", "fp32", "eager", warmup, True) for warmup in (0, 1, 2, 5)]
    cells = planned()
    assert short(cells) == sorted(trained + inference + ablation)
    assert len(cells) == 22
    assert {(c.cell.batch, c.cell.vocabulary, c.cell.min_steps, c.cell.max_seconds) for c in cells} == {
        (4, 2048, 10, 1.2)
    }


def test_standard_has_at_most_44_timed_cells_and_compares_tf32() -> None:
    # benchmark: 5 sizes x 3 contexts, 5 for inference, 4 of the ablation; mixed precision: 5 x 3 in bf16, 5 in tf32.
    cells = planned("--preset", "standard")
    assert len(cells) == 15 + 5 + 4 + 15 + 5 == 44
    assert Counter(item.experiment for item in cells) == {"benchmark": 24, "mixed-precision": 20}
    assert Counter(item.cell.precision for item in cells)["tf32"] == 5
    assert {item.cell.backend for item in cells} == {"eager"}, "compiled cells belong to the experiment compile"


@pytest.mark.parametrize(
    ("preset", "shapes", "contexts", "count"),
    [
        ("cs336-2025", [(768, 12), (1024, 24), (1280, 36), (1600, 48), (2560, 32)], {128, 256, 512, 1024}, 40 + 3 + 20),
        ("cs336-2026", [(768, 12), (1024, 24), (1280, 36), (2560, 32), (4608, 50)], {512, 1024, 2048}, 10 + 8 + 3 + 5),
    ],
)
def test_editions_of_the_assignment(preset: str, shapes: list[tuple[int, int]], contexts: set[int], count: int) -> None:
    cells = [item.cell for item in planned("--preset", preset, device="cuda", memory=80 * GIB)]
    assert sorted({(cell.d_model, cell.layers) for cell in cells}) == shapes
    assert {cell.context for cell in cells} == contexts
    assert len(cells) == count
    assert {(cell.vocabulary, cell.batch, cell.min_steps, cell.max_steps) for cell in cells} == {(10_000, 4, 10, 10)}
    assert "train" in {cell.mode for cell in cells}, "the optimizer step must be timed too"


def test_the_edition_of_2026_profiles_two_sizes_and_looks_for_the_memory_of_xl() -> None:
    everything = [word for name in ("kernels", "memory", "numerics") for word in ("--experiment", name)]
    cells = [item.cell for item in planned("--preset", "cs336-2026", *everything, device="cuda")]
    profiles = Counter((cell.d_model, cell.context, cell.mode) for cell in cells if isinstance(cell, ProfileCell))
    assert profiles == Counter(itertools.product((768, 1280), (512, 1024, 2048), ("inference", "train")))
    timed = [item.cell for item in planned("--preset", "cs336-2026", "--experiment", "benchmark", device="cuda")]
    assert {(cell.d_model, cell.context, cell.mode) for cell in timed} > {*profiles}, "the clock beside the profiler"
    memory = [cell for cell in cells if isinstance(cell, MemoryCell)]
    assert {(cell.d_model, cell.layers) for cell in memory} == {(2560, 32)}
    asked = itertools.product((128, 2048), ("inference", "forward", "train"), ("fp32", "bf16"))
    plain = [cell for cell in memory if not cell.timeline and not cell.checkpoint_blocks and cell.mode != "backward"]
    assert sorted((cell.context, cell.mode, cell.precision) for cell in plain) == sorted(asked)
    recorded = {(cell.context, cell.mode) for cell in memory if cell.timeline}
    assert recorded == {*itertools.product((128, 2048), ("inference", "train"))}
    searched = {(cell.context, cell.mode, cell.checkpoint_blocks) for cell in memory if cell.checkpoint_blocks}
    assert searched == {*itertools.product([2048], ("backward", "train"), (1, 2, 6))}, "the best is 1; 6 is √32"


@pytest.mark.parametrize("preset", [name for name, preset in PRESETS.items() if preset.grids["benchmark"]])
def test_every_preset_of_steps_has_the_warmup_ablation(preset: str) -> None:
    """It has 0, 1, 2 and 5 warm-up steps of cells that differ in nothing else."""
    groups: dict[str, set[int]] = {}
    for item in planned("--preset", preset, device="cuda", memory=16 * GIB):
        groups.setdefault(replace(item.cell, warmup_steps=5).key, set()).add(item.cell.warmup_steps)
    assert {0, 1, 2, 5} in groups.values()


def test_a_cell_of_two_experiments_is_measured_once() -> None:
    both, alone = planned(), planned("--experiment", "mixed-precision")
    keys = [item.cell.key for item in both]
    assert len(keys) == len(set(keys))
    assert Counter(item.experiment for item in both) == {"benchmark": 16, "mixed-precision": 6}
    assert len(alone) == 12, "alone, it also has six cells in fp32"


def test_a_custom_shape_replaces_the_sizes_and_can_be_added_to_named_ones() -> None:
    own = "d_model=96,d_ff=160,layers=3,heads=6"
    assert {item.cell.d_model for item in planned("--shape", own)} == {96}
    both = planned("--shape", own, "--shape", f"{own},vocabulary=500", "--sizes", "small")
    assert {(item.cell.d_model, item.cell.vocabulary) for item in both} == {(96, 10_000), (96, 500), (768, 10_000)}


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (tiny(heads=3), "multiple of heads"),
        (tiny(weights_dtype="bf16"), "precision bf16"),
        (tiny(weights_dtype="bf16", precision="fp16"), "precision bf16"),
        (tiny(min_steps=0), "at least 1"),
        (tiny(warmup_steps=-1), "at least 0"),
        (tiny(max_seconds=-1.0), "at least 0"),
        (tiny(max_seconds=float("nan")), "at least 0"),
        (tiny(max_seconds=float("inf")), "at least 0"),
    ],
)
def test_impossible_cells_are_refused(cell: StepCell, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        kind_of(cell).check(cell)


def test_cells_just_within_the_limits_are_accepted() -> None:
    for cell in (
        tiny(context=1, batch=1, min_steps=1, warmup_steps=0, max_seconds=0.0),
        tiny(weights_dtype="bf16", precision="bf16"),
    ):
        kind_of(cell).check(cell)
    for preset in PRESETS:
        for item in plan(Request(preset=preset), device="cpu", device_memory_bytes=None):
            kind_of(item.cell).check(item.cell)


@pytest.mark.parametrize("gib", [8, 24, 48, 80, 141])
def test_standard_leaves_out_cells_that_will_not_fit(gib: int) -> None:
    everything = planned("--preset", "standard")
    kept = {item.cell.key for item in planned("--preset", "standard", device="cuda", memory=gib * GIB)}
    fits = {
        item.cell.key for item in everything if costs.predicted_peak_bytes(replace(item.cell, mode="train")) < gib * GIB
    }
    assert kept == fits
    # By hand: weights, gradients and two moments in fp32 are 16 bytes a parameter, 54.5 GB for the widest model.
    widest = [item.cell.key for item in everything if item.cell.d_model == 2560]
    assert gib > 48 or not kept & set(widest)
    assert gib < 141 or kept & set(widest)
    assert gib > 8 or {item.cell.d_model for item in everything if item.cell.key in kept} <= {768, 1024}


def test_requested_sizes_are_tried_even_if_they_will_not_fit() -> None:
    cells = planned("--preset", "standard", "--sizes", "xl@2026", device="cuda", memory=8 * GIB)
    assert {item.cell.d_model for item in cells} == {2560}
    editions = planned("--preset", "cs336-2026", device="cuda", memory=8 * GIB)
    assert 4608 in {item.cell.d_model for item in editions}, "an edition is the same on every machine"


@pytest.mark.parametrize(("device", "preset"), [("cpu", "laptop"), ("mps", "laptop"), ("cuda", "standard")])
def test_the_device_decides_the_preset_if_none_is_named(device: str, preset: str) -> None:
    assert preset_for(device) == preset
    assert planned(device=device) == planned("--preset", preset, device=device)


def test_keys_are_unchanged_and_a_size_has_no_name_in_them() -> None:
    """If this fails, all existing files would measure their cells again: give a new field a default instead."""
    one, other = ([item.cell.key for item in planned("--sizes", name)] for name in ("2.7B", "xl@2026"))
    assert one == other
    assert tiny(**size_named("xl@2025").numbers).key != tiny(**size_named("xl@2026").numbers).key
    assert tiny().key == "cf1a926dd61b0479"
    full = tiny(precision="bf16", weights_dtype="bf16", backend="compiled", attention="sdpa", optimizer="fused")
    assert full.key == "45dee767deafc078"


def test_a_new_field_with_a_default_does_not_change_old_keys() -> None:
    old = [(item.name, item.type, field(default=item.default, metadata=item.metadata)) for item in fields(StepCell)]
    new = ("window", int, column("Window", "tokens", "How far attention looks back.", default=0))
    later = make_dataclass("StepCell", [*old, new], bases=(Cell,), frozen=True, kw_only=True)
    numbers = {name: getattr(tiny(), name) for name in StepCell.names()}
    assert later(**numbers).key == tiny().key
    assert later(**numbers, window=0).key == tiny().key
    assert later(**numbers, window=128).key != tiny().key


def test_a_title_names_values_that_are_not_the_default() -> None:
    small: dict[str, Any] = {**size_named("small").numbers}
    cell = StepCell(**small, context=512, mode="train", precision="bf16", backend="compiled")
    assert title(cell) == "small · 512 · train · bf16 · compiled"
    assert title(replace(cell, batch=8, attention="sdpa")).endswith("compiled · batch 8 · attention sdpa")
    assert title(replace(cell, warmup_steps=0, min_steps=10, max_steps=10)).endswith("exactly 10 steps · warm-up 0")
    assert title(replace(cell, d_model=512, layers=8)).startswith("512×8 (d_ff 3072) · 512 · train")
    recorded = MemoryCell(**small, context=512, mode="train", precision="bf16", timeline=True)
    assert title(recorded) == "small · 512 · train · bf16 · timeline"
    alone = AttentionCell(implementation="sdpa-flash", seq_len=256, d_head=64, precision="fp16", causal=False)
    assert title(alone) == "sdpa-flash · S 256 · d 64 · fp16 · eager · not causal"
    titles = [title(item.cell) for item in planned()]
    assert len(set(titles)) == 22, "cells of one plan have different titles"


def test_sizes_by_name_and_by_numbers() -> None:
    assert size_named("2.7B") is size_named("xl@2026") is SIZES["xl@2026"]
    for size in SIZES.values():
        text = ",".join(f"{name}={number}" for name, number in size.numbers.items())
        assert parse_shape(text).numbers == size.numbers
    assert parse_shape("heads=8, layers=8, d_ff=2048, d_model=512").vocabulary == 10_000


@pytest.mark.parametrize(
    "text",
    ["", "d_model=8", "8,8,1,1", *(f"d_model=8,d_ff=8,layers=1,heads={last}" for last in ("0", "x", "1,depth=2"))],
)
def test_an_incomplete_shape_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"Expected d_model=512"):
        parse_shape(text)


def test_registries_agree() -> None:
    assert all({*(grid := Grid.of(kind.cell)).columns} <= grid.settable for kind in KINDS)
    known = {name for name, table in TABLES.items() if table.key}
    assert {table_of(kind.cell).name for kind in KINDS} == known - {"frontier"}


def test_each_round_has_every_cell_once_in_its_own_order() -> None:
    def asked(seed: str) -> list[Planned]:
        steps = ("benchmark", "mixed-precision")
        return plan(Request(experiments=steps, rounds=3), device="cpu", device_memory_bytes=None, seed=seed)

    cells = asked("host")
    rounds = [[item.cell.key for item in cells if item.round == number] for number in range(3)]
    assert [item.round for item in cells] == [0] * 22 + [1] * 22 + [2] * 22
    assert all(sorted(keys) == sorted(rounds[0]) for keys in rounds)
    assert len({tuple(keys) for keys in rounds}) == 3, "every round is shuffled again"
    assert asked("host") == cells, "an interrupted sweep must get the same order again"
    assert asked("another") != cells
    assert rounds[0] != [item.cell.key for item in asked("another")[:22]]


def test_rounds_after_the_first_are_of_timed_cells_and_find_what_it_compiled() -> None:
    items = plan(Request(preset="cs336-2025", rounds=2), device="cuda", device_memory_bytes=2**37)
    again = [item for item in items if item.round]
    assert {type(item.cell) for item in again} == {StepCell, AttentionCell} < {type(item.cell) for item in items}
    caches = {(item.round, getattr(item.measured, "compile_cache", "")) for item in items if starts_cold(item.cell)}
    assert caches == {(0, "empty"), (1, "shared")}
    memory = plan(Request(experiments=("memory",), rounds=2), device="cpu", device_memory_bytes=None)
    assert len(memory) == 2 * len({item.cell.key for item in memory})


def test_cells_that_are_compared_are_measured_one_after_the_other() -> None:
    cells = plan(Request(rounds=6), device="cpu", device_memory_bytes=None, seed="host")
    blocks = [(item.round, type(item.cell), getattr(item.cell, "mode", ""), size_of(item.cell)) for item in cells]
    in_order = [block for block, _ in itertools.groupby(blocks)]
    assert len(in_order) == len(set(in_order)), "a block is never taken up again in its round"
    assert len({tuple(block[1:] for block in in_order if block[0] == number) for number in range(6)}) > 3
    steps = [item.cell for item in cells if isinstance(item.cell, StepCell)]
    both = [cell.precision for cell in steps if (cell.d_model, cell.context, cell.mode) == (64, 128, "train")]
    pairs = {tuple(both[first : first + 2]) for first in range(0, len(both), 2)}
    assert pairs == {("bf16", "fp32"), ("fp32", "bf16")}, "neither always comes first"


@pytest.mark.parametrize("seed", ["host", "another", "third"])
def test_the_first_quarter_of_laptop_answers_something_of_each_question(seed: str) -> None:
    cells = plan(Request(), device="cpu", device_memory_bytes=None, seed=seed)
    first = [item.cell for item in cells[: len(cells) // 4]]
    assert {type(cell) for cell in first} == {type(item.cell) for item in cells}
    steps = {replace(cell, precision="fp32"): set[str]() for cell in first if isinstance(cell, StepCell)}
    for cell in first:
        if isinstance(cell, StepCell):
            steps[replace(cell, precision="fp32")].add(cell.precision)
    assert {"fp32", "bf16"} in steps.values(), "a pair of precisions"


def test_a_model_added_by_a_running_sweep_has_a_name_of_its_own() -> None:
    """A page may read the sizes of a file shortly before it reads the cells; two models may have one name."""
    names = name_models([Model.of(rows.asked("toy-64"))])
    assert names[Model.of(rows.asked("toy-128"))] == "toy-128"
    assert names[Model.of(rows.asked("toy-64"))] == "toy-64"
    assert len(names) == 1
    one, other = (Model.of(rows.asked("toy-64", vocabulary=vocabulary)) for vocabulary in (4096, 8192))
    both = name_models([one, other])
    assert both[one] != both[other]
    later = name_models([one])
    assert later[other] != later[one]
