"""The order in which the cells of a sweep are measured: rounds, blocks within a round, and what stays the same."""

import itertools

from runner.plan.planning import Planned, Request, plan, size_of
from runner.schema import StepCell


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


def test_cells_that_are_compared_are_measured_one_after_the_other() -> None:
    cells = plan(Request(rounds=6), device="cpu", device_memory_bytes=None, seed="host")
    blocks = [(item.round, type(item.cell), getattr(item.cell, "mode", ""), size_of(item.cell)) for item in cells]
    in_order = [block for block, _ in itertools.groupby(blocks)]
    assert len(in_order) == len(set(in_order)), "a block is never taken up again in its round"
    assert len({tuple(block[1:] for block in in_order if block[0] == number) for number in range(6)}) == 6
    steps = [item.cell for item in cells if isinstance(item.cell, StepCell)]
    both = [cell.precision for cell in steps if (cell.d_model, cell.context, cell.mode) == (64, 128, "train")]
    pairs = {tuple(both[first : first + 2]) for first in range(0, len(both), 2)}
    assert pairs == {("bf16", "fp32"), ("fp32", "bf16")}, "neither always comes first"
