"""The cells that a sweep measures several times from the start, and when it measures them."""

import itertools
from dataclasses import replace
from typing import Any

from runner.plan.planning import Planned, add_repeats, choose_repeated, repeatable_keys
from runner.schema import AttentionCell, Cell, MemoryCell
from tests.command import planned, tiny
from tests.synthetic.rows import TOYS

MEMORY = MemoryCell(**TOYS["toy-64"], context=16, mode="train", precision="fp32")


def attention(**values: Any) -> AttentionCell:
    return AttentionCell(**{"implementation": "naive", "precision": "fp32", "seq_len": 64, "d_head": 16, **values})


def items(*cells: Cell) -> list[Planned]:
    return [Planned(experiment="benchmark", cell=cell, round=0) for cell in cells]


def test_the_warm_up_ablation_has_one_round() -> None:
    ablation = [tiny(warmup_steps=steps) for steps in (0, 1, 5)]
    alone = tiny(warmup_steps=0, context=32)
    cold = tiny(backend="compiled", compile_cache="empty")
    shared = tiny(backend="compiled")
    found = repeatable_keys([*ablation, alone, cold, shared, MEMORY, attention()])
    assert found == {alone.key, cold.key, shared.key, attention().key}


def test_the_cheapest_eager_cell_of_each_kind_is_repeated_and_the_cheapest_of_them_is_the_canary() -> None:
    cells = {
        tiny(context=64): 5.0,
        tiny(context=32): 4.0,  # the cheapest train step in fp32
        tiny(context=8, backend="compiled"): 0.1,
        tiny(context=8, mode="backward"): 0.2,
        tiny(context=8, precision="bf16"): 3.0,
        tiny(context=8, mode="inference", precision="bf16"): 2.0,
        attention(): 6.0,
        attention(implementation="sdpa-flash"): 0.3,
        tiny(context=16, mode="inference"): 301.0,
    }
    seconds = {cell.key: own for cell, own in cells.items()}
    assert [seconds[item.cell.key] for item in choose_repeated(items(*cells), seconds)] == [2.0, 3.0, 4.0, 6.0]


def test_in_a_plan_without_such_cells_the_cheapest_is_repeated() -> None:
    fast, slow = tiny(mode="backward"), tiny(mode="backward", context=32)
    assert [item.cell for item in choose_repeated(items(slow, fast), {fast.key: 1.0, slow.key: 2.0})] == [fast]
    assert add_repeats(items(MEMORY), {MEMORY.key: 1.0}, seed="host") == items(MEMORY)


def test_the_canary_is_first_and_last_and_measured_every_ten_minutes() -> None:
    """39 cells of 100 s and the canary of 1 s take 3,901 s, so it is measured seven times, after each sixth."""
    canary = tiny(mode="backward")
    others = [tiny(mode="backward", context=32 + number) for number in range(39)]
    seconds = {cell.key: 100.0 for cell in others} | {canary.key: 1.0}
    found = add_repeats(items(*others, canary), seconds, seed="host")
    places = [place for place, item in enumerate(found) if item.cell == canary]
    assert [found[place].round for place in places] == list(range(7))
    # There are 6.5 cells between two of its rounds; the cell in between is counted on the side where its middle is.
    assert [after - before - 1 for before, after in itertools.pairwise(places)] == [6, 7, 6, 7, 6, 7]
    assert (places[0], places[-1], len(found)) == (0, 45, 46)
    assert [item.cell for item in found if item.cell != canary] == others, "the order of the others is unchanged"


def test_an_a_a_cell_is_measured_once_in_each_third_of_a_sweep() -> None:
    canary, other = tiny(mode="inference"), tiny()
    rest = [tiny(mode="backward", context=32 + number) for number in range(30)]
    seconds = {cell.key: 1.0 for cell in (other, *rest)} | {canary.key: 0.5}
    found = add_repeats(items(*rest, other, canary), seconds, seed="host")
    assert add_repeats(items(*rest, other, canary), seconds, seed="host") == found
    ahead = [sum(item.cell in rest for item in found[:place]) for place, item in enumerate(found) if item.cell == other]
    assert [10 * third <= count <= 10 * third + 10 for third, count in enumerate(ahead)] == [True] * 3
    assert [item.round for item in found if item.cell == other] == [0, 1, 2]
    assert [item.round for item in found if item.cell == canary] == [0, 1, 2]


def test_the_laptops_plan_gains_eight_rounds_of_four_cells() -> None:
    cells = planned("--preset", "laptop", "--experiment", "benchmark", "--experiment", "mixed-precision",
                    "--experiment", "attention")  # fmt: skip
    seconds = {item.cell.key: getattr(item.cell, "context", 1024) / 1000 for item in cells}
    found = add_repeats(cells, seconds, seed="host")
    assert len(found) == len(cells) + 4 * 2
    assert {(item.cell.key, item.round) for item in found} >= {(item.cell.key, 0) for item in cells}
    assert len({(item.cell.key, item.round) for item in found}) == len(found)
    assert replace(found[-1], round=0) == found[0]
