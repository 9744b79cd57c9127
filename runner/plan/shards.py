"""A plan shared out among machines: every cell on exactly one, each machine with about as much to do.

    python -m runner sweep --shard 2/8          # the second of eight shares
    cells = take_shard(cells, Shard(number=2, of=8), device="cuda")

Every machine computes all shares and takes its own, so that the machines need to agree on the command only. The
shares follow from the cells and their predicted time on a machine of no particular speed, not from what a file or the
machine knows. What is compared stays together: cells of one shape, batch and length are in one share, whatever their
precision, backend or implementation. Limits: where the device's memory decides which cells there are, as in the preset
`standard`, all machines must have the same device. Standard library only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from runner.errors import UsageError
from runner.experiments import kind_of
from runner.experiments.experiment import On
from runner.schema import Cell

#: The columns of a cell's size, if the cell has them.
_SIZE = ("model", "d_model", "d_ff", "layers", "heads", "vocabulary", "batch", "context", "seq_len", "d_head")
#: The machine of no particular speed, by device.
_ON: Mapping[str, On] = {
    on.device: on
    for on in (
        On(device="cuda", flops_per_s=1e14),
        On(device="mps", flops_per_s=5e12),
        On(device="cpu", flops_per_s=1e11),
    )
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
    """Returns the cells of one share, in the order given. Raises UsageError where there are fewer groups than shares,
    and none is left for this one."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(size_of(cell), []).append(cell)
    on = _ON[device]
    # `fsum` gives the same sum in any order, and equal sums must be equal on every machine.
    seconds = {size: fsum(kind_of(cell).predict(cell, on).seconds for cell in found) for size, found in groups.items()}
    loads, mine = [0.0] * shard.of, set[tuple[object, ...]]()
    # The longest first, each to whoever has least to do: no share exceeds the least by more than one group.
    for size in sorted(groups, key=lambda size: (-seconds[size], repr(size))):
        least = loads.index(min(loads))
        loads[least] += seconds[size]
        if least == shard.number - 1:
            mine.add(size)
    if not mine:
        raise UsageError(
            f"--shard {shard}: nothing is left for this share, because the plan has cells of {len(groups)} sizes.",
            expected=f"at most {len(groups)} shares",
            do="Cells of one size stay together, so that they are compared on one machine.",
        )
    return [cell for cell in cells if size_of(cell) in mine]


def size_of(cell: Cell) -> tuple[object, ...]:
    """Returns the cell's shape, batch and length: cells that are equal in these are compared with each other."""
    return tuple(getattr(cell, name, None) for name in _SIZE)
