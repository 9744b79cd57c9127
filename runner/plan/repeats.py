"""The cells that a sweep measures several times from the start, so that the noise of the machine is known: equal cells
in processes of their own (A/A), and a canary that shows drift.

    cells = add_repeats(cells, seconds, seed="node1")      # seconds: predicted, by cell key

The A/A cells are the cheapest eager cell of each kind, each in ROUNDS rounds, one in every third of the sweep. The
cheapest of them is the canary: it is the first cell of the sweep and the last, and comes back every CANARY_SECONDS in
between. Its measurements are rounds like any other. Standard library only.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from runner.experiments import kind_of
from runner.plan.planning import Planned
from runner.schema import AttentionCell, Cell, StepCell, table_of

#: The rounds of an A/A cell.
ROUNDS = 3
#: The time between two rounds of the canary (s), and how often it is measured.
CANARY_SECONDS = 600.0
MIN_CANARY, MAX_CANARY = 3, 10
#: A cell that takes longer is not repeated (s).
MAX_CELL_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class Goal:
    """When a cell has enough rounds: once half the width of its interval is this share of its time, or after so many;
    only the canary is measured more often."""

    width: float
    rounds: int


USUAL = Goal(width=0.02, rounds=5)
#: Rounds on a CPU are short, and what disturbs them comes and goes within seconds. The numbers come from recordings of
#: a virtual machine with two cores (`python -m tests.bench noise`). Rounds that happen to agree end a cell too early:
#: where that was at 2% up to 2.2% of pairs of equal cells were called different, and at 1% up to 0.9%. Of comparisons
#: with a step that took 5% longer 20 rounds decided 96% and more, 15 in one recording only 52%. Where equal steps
#: differ by 10%, as beside a neighbor that never rests, 20 do not decide that either.
ON_CPU = Goal(width=0.01, rounds=20)


def repeatable_keys(cells: Iterable[Cell]) -> frozenset[str]:
    """Returns the keys of the cells that may be measured in further rounds: timed ones, but for those compiled with an
    empty cache and those of a warm-up ablation, which differ in nothing but their warm-up steps."""
    timed = {cell.key: cell for cell in cells if table_of(cell).timed and not _starts_cold(cell)}
    variants: dict[str, list[str]] = {}
    for key, cell in timed.items():
        same = replace(cell, warmup_steps=0).key if isinstance(cell, StepCell | AttentionCell) else key
        variants.setdefault(same, []).append(key)
    return frozenset(keys[0] for keys in variants.values() if len(keys) == 1)


def _starts_cold(cell: Cell) -> bool:
    return isinstance(cell, StepCell) and cell.backend.startswith("compiled") and cell.compile_cache == "empty"


def choose_repeated(cells: Sequence[Planned], seconds: Mapping[str, float]) -> list[Planned]:
    """Returns the A/A cells, the canary first: the cheapest of each kind, by predicted seconds; the cheapest of all
    where the plan has none of these kinds. Equal predictions are told apart by key, so that the same plan always
    chooses the same cells."""
    keys = repeatable_keys(item.cell for item in cells)
    usable = [item for item in cells if item.cell.key in keys and seconds[item.cell.key] <= MAX_CELL_SECONDS]
    usable.sort(key=lambda item: (seconds[item.cell.key], item.cell.key))
    first: dict[str, Planned] = {}
    for item in usable:
        if group := kind_of(item.cell).repeat_group(item.cell):
            first.setdefault(group, item)
    return list(first.values()) or usable[:1]


def add_repeats(cells: Sequence[Planned], seconds: Mapping[str, float], *, seed: str) -> list[Planned]:
    """Returns the cells of a first round with the further rounds of the A/A cells and of the canary among them.

    `seconds` are predictions by cell key. They must not depend on what the file holds, so that the same sweep makes the
    same plan when it is started again."""
    chosen = choose_repeated(cells, seconds)
    if not chosen:
        return list(cells)
    canary, *others = chosen
    order = random.Random(f"{seed} repeats")
    total = sum(seconds[item.cell.key] for item in cells)
    count = min(MAX_CANARY, max(MIN_CANARY, 1 + int(total // CANARY_SECONDS)))
    repeats = [(number / (count - 1), replace(canary, round=number)) for number in range(count)]
    for item in others:
        moments = ((number + order.random()) / ROUNDS for number in range(ROUNDS))
        repeats += [(moment, replace(item, round=number)) for number, moment in enumerate(moments)]
    return spread([item for item in cells if item not in chosen], repeats, seconds)


def spread(
    cells: Sequence[Planned], repeats: Sequence[tuple[float, Planned]], seconds: Mapping[str, float]
) -> list[Planned]:
    """Returns the cells with the repeats among them, each at its moment: a share of the cells' time, from 0 for before
    them to 1 for after them."""
    total, passed = sum(seconds[item.cell.key] for item in cells), 0.0
    placed = list(repeats)
    for item in cells:
        own = seconds[item.cell.key]
        placed.append(((passed + own / 2) / total, item))
        passed += own
    return [item for _, item in sorted(placed, key=lambda pair: pair[0])]
