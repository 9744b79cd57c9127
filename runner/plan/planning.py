"""What a sweep will measure: a preset and axes become cells, some of them several times. Nothing is measured here.

    python -m runner sweep --preset cs336-2025 --sizes small,medium --dry-run

Where the user sets an axis, an experiment is one grid: the preset's first that has it, with that axis changed. The
preset's other grids (a warm-up ablation, timelines, cold caches, …) are left out; each has its own flag. Equal cells
are measured once. Presets are named plans; each experiment declares its own grids by preset.

`--shard 2/8` shares a plan out among machines: every cell on exactly one, each machine with about as much to do. Every
machine computes all shares and takes its own, so that the machines need to agree on the command only. The
shares follow from the cells and their predicted time on a machine of no particular speed, not from what a file or the
machine knows. What is compared stays together: cells of one shape, batch and length are in one share, whatever their
precision, backend or implementation. Limits: where the device's memory decides which cells there are, as in the preset
`standard`, all machines must have the same device.

The noise of the machine is known by equal cells in processes of their own (A/A), the cheapest eager cell of each kind,
each in ROUNDS rounds, one in every third of the sweep. The cheapest of them is the canary, which shows drift: it is the
first cell of the sweep and the last, and comes back every CANARY_SECONDS in between.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from math import fsum, prod
from typing import Any, Literal, TypeGuard, TypeVar

from runner.errors import UsageError
from runner.experiments import EXPERIMENTS, experiment_of, kind_of
from runner.experiments.experiment import Grid, On, Variants
from runner.schema import AttentionCell, Cell, Model, StepCell, flags, table_of


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named plan. `fitting` leaves out cells that are predicted not to fit the device's memory."""

    name: str
    doc: str
    fitting: bool = False

    @property
    def grids(self) -> Mapping[str, tuple[Grid | Variants, ...]]:
        """The preset's grids by experiment."""
        return {experiment.name: experiment.grids.get(self.name, ()) for experiment in EXPERIMENTS}


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="laptop",
            doc="Three toy shapes, fp32 and bf16, eager; the largest also compiled block by block. A few minutes.",
        ),
        Preset(
            name="standard",
            doc="Every size that fits the GPU, fp32, tf32 and bf16, eager and compiled. About half an hour.",
            fitting=True,
        ),
        Preset(
            name="cs336-2025",
            doc="Edition 2025 of the assignment: its sizes at contexts 128, 256, 512 and 1024; "
            "5 warm-up and 10 measured steps.",
        ),
        Preset(
            name="cs336-2026",
            doc="Edition 2026: its sizes at context 512, profiles of two sizes at three contexts, memory of xl at 128 "
            "and 2,048 tokens, checkpointing by the blocks recomputed together.",
        ),
        Preset(
            name="flash",
            doc="Attention alone, as papers on kernels time it: 64 and 128 wide, 512 to 65,536 tokens, as many "
            "problems as keep the tokens of a pass the same; your own too, by --attention. About ten minutes.",
        ),
    )
}
#: The question of each experiment.
QUESTIONS: Mapping[str, str] = {experiment.name: experiment.question for experiment in EXPERIMENTS}


def preset_for(device: str) -> str:
    """Returns the preset of a sweep that names none: `standard` on CUDA, `laptop` elsewhere."""
    return "standard" if device == "cuda" else "laptop"


#: The columns of a cell's size, if the cell has them.
_SIZE = ("model", "d_model", "d_ff", "layers", "heads", "vocabulary", "batch", "context", "seq_len", "d_head")
#: The machine of no particular speed, by device.
_ON: Mapping[str, On] = {
    "cuda": On(device="cuda", flops_per_s=1e14),
    "mps": On(device="mps", flops_per_s=5e12),
    "cpu": On(device="cpu", flops_per_s=1e11),
}


@dataclass(frozen=True)
class Shard:
    """One share of a plan: its number, from 1, of so many."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def parse_shard(text: str) -> Shard:
    """Returns `2/8` as a share. Raises UsageError for anything else."""
    number, slash, count = text.partition("/")
    if slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count):
        return Shard(int(number), int(count))
    raise UsageError(
        f"--shard got {text!r}.",
        expected="the number of this share and how many there are, such as 1/8 to 8/8",
        do="Schedulers that count from 0 need one more: $((JOB_COMPLETION_INDEX + 1))/8.",
    )


def take_shard(cells: Sequence[Cell], shard: Shard, *, device: str) -> list[Cell]:
    """Returns the cells of one share, in the order given. Raises UsageError where there are fewer sizes than shares,
    and none is left for this one."""
    groups: dict[tuple[object, ...], list[float]] = {}
    for cell in cells:
        groups.setdefault(size_of(cell), []).append(kind_of(cell).predict(cell, _ON[device]).seconds)
    # `fsum` gives the same sum in any order, and equal sums must be equal on every machine.
    shares = share_out({size: fsum(seconds) for size, seconds in groups.items()}, [0.0] * shard.of)
    mine = [cell for cell in cells if shares[size_of(cell)] == shard.number - 1]
    if not mine:
        raise UsageError(
            f"--shard {shard}: nothing is left for this share, because the plan has cells of {len(shares)} sizes.",
            expected=f"at most {len(shares)} shares",
            do="Cells of one size stay together, so that they are compared on one machine.",
        )
    return mine


def share_out(seconds: Mapping[tuple[object, ...], float], loads: Sequence[float]) -> Mapping[tuple[object, ...], int]:
    """Returns the share of each size, from 0, by the time that each takes and the time of what each share has already.
    The longest comes first, each to whoever has least to do: no share exceeds the least by more than one size."""
    loads, shares = [*loads], dict[tuple[object, ...], int]()
    for size in sorted(seconds, key=lambda size: (-seconds[size], repr(size))):
        shares[size] = loads.index(min(loads))
        loads[shares[size]] += seconds[size]
    return shares


def size_of(cell: Cell) -> tuple[object, ...]:
    """Returns the cell's shape, batch and length: cells that are equal in these are compared with each other."""
    return tuple(getattr(cell, name, None) for name in _SIZE)


#: How often every cell is measured; `auto` decides it cell by cell, while the sweep runs.
Rounds = int | Literal["auto"]
#: The flags that say how carefully a cell is measured; every other flag of a column is an axis.
LIMITS = frozenset(name for name, column in flags().items() if column.sets == "limit")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user wants measured. `axes` are the values set by flags; `shape` replaces the preset's sizes, so it
    comes with `sizes`. Where `cells` are given, they are all that is measured, and no preset is asked. `shard` is
    this machine's share of a plan that several measure."""

    preset: str | None = None
    experiments: tuple[str, ...] = tuple(QUESTIONS)
    axes: Mapping[str, Any] = field(default_factory=dict)
    rounds: Rounds = 1
    cells: tuple[Cell, ...] = ()
    shard: Shard | None = None

    def named_preset(self, device: str) -> str | None:
        """Returns the preset that this request starts from on such a device; None for given cells."""
        return None if self.cells else self.preset or preset_for(device)

    @property
    def may_compile(self) -> bool:
        """Whether cells of this request use torch.compile, as far as is known before the machine is."""
        if "backends" in self.axes and not self.cells:
            return any(backend.startswith("compiled") for backend in self.axes["backends"])
        grids = {} if self.cells else PRESETS[self.preset or preset_for("cuda")].grids
        cells = (cell for name in self.experiments if name in grids for grid in grids[name] for cell in grid.cells())
        return any(getattr(cell, "backend", "eager").startswith("compiled") for cell in (*self.cells, *cells))


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One cell of a sweep, to be measured in one round."""

    experiment: str
    cell: Cell
    round: int

    @property
    def measured(self) -> Cell:
        """The cell as this round measures it: what the first round compiled with an empty cache, others find in the
        shared one."""
        return replace(self.cell, compile_cache="shared") if self.round and starts_cold(self.cell) else self.cell


P = TypeVar("P", bound=Planned)


def plan(request: Request, *, device: str, device_memory_bytes: int | None, seed: str = "") -> list[Planned]:
    """Returns every cell of `request` on this device, once a round, in the order of measuring.

    Each round is shuffled by `seed`, so that a machine that warms up or slows down favors no cell (see `shuffle`).
    Rounds after the first are those of timed cells, if there are any: bytes, profiles and sums come out the same.
    Rounds that are `auto` begin with one. Raises UsageError for an axis that no experiment of the request has, and
    where no cell is left."""
    name = request.named_preset(device)
    if name is None:
        cells = [Planned(experiment=experiment_of(type(cell)).name, cell=cell, round=0) for cell in request.cells]
    else:
        cells = _cells_of(PRESETS[name], request, device_memory_bytes)
    if not cells:
        raise UsageError("No cell is left of what was asked for.", do="See it without some of its flags: --dry-run.")
    if request.shard:
        mine = {cell.key for cell in take_shard([item.cell for item in cells], request.shard, device=device)}
        cells = [item for item in cells if item.cell.key in mine]
    order = random.Random(seed)
    count = 1 if request.rounds == "auto" else request.rounds
    timed = [item for item in cells if table_of(item.cell).timed] or cells
    rounds = (shuffle(timed if number else cells, order) for number in range(count))
    return [replace(item, round=number) for number, items in enumerate(rounds) for item in items]


def shuffle(cells: Sequence[P], order: random.Random) -> list[P]:
    """Returns the cells of a round in random order, but those that are compared with each other one after the other:
    those of one kind, size and mode. What slows a machine down for some seconds then slows both sides. Kinds take
    turns, small sizes with several cells first, so that a short budget answers something of each question.

    By how much a step was off its own median correlated with the next step at 0.43, with those two to eight steps later
    at 0.20, so that the variance of a ratio of neighbors was 0.52 to 0.89 of that of others (six recordings on
    CPUs with busy neighbors). Such blocks are R. A. Fisher's (The Design of Experiments, 1935)."""
    blocks: dict[tuple[object, ...], list[P]] = {}
    for item in order.sample(cells, len(cells)):
        key = (type(item.cell), getattr(item.cell, "mode", None), size_of(item.cell))
        blocks.setdefault(key, []).append(item)
    kinds: dict[type[Cell], list[tuple[bool, int, list[P]]]] = {}
    for block in order.sample(list(blocks.values()), len(blocks)):
        scale = prod(number for number in size_of(block[0].cell) if isinstance(number, int) and number)
        kinds.setdefault(type(block[0].cell), []).append((len(block) < 2, scale, block))
    turns = zip_longest(*(sorted(kind, key=lambda one: one[:2]) for kind in kinds.values()))
    return [item for turn in turns for place in turn if place for item in place[2]]


def _cells_of(preset: Preset, request: Request, device_memory_bytes: int | None) -> list[Planned]:
    cells: dict[str, Planned] = {}
    known = {axis for name in request.experiments for grid in preset.grids[name] for axis in grid.settable}
    unknown = sorted(f"--{name.replace('_', '-')}" for name in request.axes if name not in known)
    if unknown:
        raise UsageError(
            f"{', '.join(unknown)} means nothing to {', '.join(request.experiments)}.",
            expected=f"some of {', '.join(sorted(f'--{name}'.replace('_', '-') for name in known))}",
        )
    for name in request.experiments:
        every = preset.grids[name]
        if "model" in request.axes:  # whoever names a model asks about models
            every = tuple(grid for grid in every if issubclass(grid.cell, Model))
        first = {grid.cell: grid for grid in reversed(every)}
        for grid in tuple(grid for grid in first.values() if grid.settable & (request.axes.keys() - LIMITS)) or every:
            for cell in grid.over(request.axes).cells():
                cells.setdefault(cell.key, Planned(experiment=name, cell=cell, round=0))
    named = "sizes" in request.axes or "shape" in request.axes
    if preset.fitting and not named and device_memory_bytes:
        return [item for item in cells.values() if kind_of(item.cell).fits(item.cell, device_memory_bytes)]
    return list(cells.values())


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
    """Returns the keys of the cells that may be measured in further rounds: timed ones, but for those of a warm-up
    ablation, which differ in nothing but their warm-up steps."""
    timed = {cell.key: cell for cell in cells if table_of(cell).timed}
    variants: dict[str, list[str]] = {}
    for key, cell in timed.items():
        same = replace(cell, warmup_steps=0).key if isinstance(cell, StepCell | AttentionCell) else key
        variants.setdefault(same, []).append(key)
    return frozenset(keys[0] for keys in variants.values() if len(keys) == 1)


def starts_cold(cell: Cell) -> TypeGuard[StepCell]:
    """Returns whether the cell is compiled with an empty cache."""
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


def spread(cells: Sequence[P], repeats: Sequence[tuple[float, P]], seconds: Mapping[str, float]) -> list[P]:
    """Returns the cells with the repeats among them, each at its moment: a share of the cells' time, from 0 for before
    them to 1 for after them."""
    total, passed = sum(seconds[item.cell.key] for item in cells), 0.0
    placed = list(repeats)
    for item in cells:
        own = seconds[item.cell.key]
        placed.append(((passed + own / 2) / total, item))
        passed += own
    return [item for _, item in sorted(placed, key=lambda pair: pair[0])]
