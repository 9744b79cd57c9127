"""Bounds what a published row's machine could do, and the least work that the row states.

    find_limit("unknown (H100 class)")          # the rates of the fastest of its class: a generous upper bound
    forward_flops(reading)                       # matrix products of one forward pass

FLOPs are those of `costs`: 2 m n k for a product, backward twice forward. A machine that is known by its class alone is
given the data sheet of the fastest GPU that the words can mean, so that what exceeds it exceeds all of them.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from runner.analysis.audit.published.readings import PublishedReport, Reading
from runner.analysis.audit.published.sizes import shape_of, step_cell
from runner.analysis.costs import hardware, steps

#: By words in a machine's name, the GPU whose data sheet bounds it, and whether the words name that GPU alone.
_MACHINES = (
    (r"rtx pro 6000", "RTX PRO 6000 Blackwell Workstation Edition", True),
    (r"\bh200\b", "H200", True),
    (r"\bh100\b|hopper", "H100 80GB HBM3", False),
    (r"\bb200\b", "B200", True),
    (r"\ba100\b", "A100-SXM4-80GB", False),
    (r"\ba10\b", "A10", True),
    (r"\bl40s\b", "L40S", True),
    (r"\bl4\b", "L4", True),
    (r"\bt4\b", "Tesla T4", True),
    (r"\bv100\b", "Tesla V100-SXM2-32GB", False),
    (r"\b5090\b", "GeForce RTX 5090", True),
    (r"\b4090\b|consumer", "GeForce RTX 4090", False),
    (r"\b3090\b", "GeForce RTX 3090", True),
)
#: The rate that no single GPU reaches, in FLOP/s: the highest dense rate of any data sheet here.
HIGHEST = max(sheet.bf16_tflops or 0.0 for sheet in hardware.DATASHEETS.values()) * 1e12


class Limit(NamedTuple):
    """A GPU's data sheet by its name, and whether the machine is certainly this GPU."""

    gpu: str
    is_certain: bool

    def peak(self, precision: str) -> float | None:
        """Returns the rate of dense products in FLOP/s."""
        return hardware.peak_flops(self.gpu, precision)

    @property
    def bandwidth(self) -> float | None:
        return hardware.peak_bandwidth(self.gpu)

    @property
    def memory_bytes(self) -> float | None:
        sheet = hardware.datasheet(self.gpu)
        return sheet.memory_gb * 1e9 if sheet else None


@lru_cache(maxsize=4096)
def find_limit(machine: str | None, device: str | None = None) -> Limit | None:
    """Returns the bound of a machine; None where its words say nothing, or the row did not run on its GPU."""
    if device in ("cpu", "mps"):
        return None
    for words, gpu, is_certain in _MACHINES:
        if re.search(words, (machine or "").lower()):
            return Limit(gpu, is_certain and "unknown" not in (machine or "").lower())
    return None


def limit_of(reading: Reading) -> Limit | None:
    """Returns the bound of the machine that a reading was measured on."""
    return find_limit(reading.table.machine, reading.setting.device)


@lru_cache(maxsize=65536)
def _model_flops(numbers: tuple[int, ...], batch: int, context: int) -> int:
    """Returns the FLOPs of a shape given by width, feed-forward width, layers, heads and vocabulary."""
    return steps.forward_flops(step_cell(shape_of(*numbers), batch=batch, context=context)).total


def forward_flops(reading: Reading, *, projected: bool = False) -> int | None:
    """Returns the matrix products of one forward pass; None where the shape is not known. Attention is 4 B S² d,
    and 8 B S d² more with its four projections."""
    key = reading.key
    if not key.batch or not key.length:
        return None
    if key.width:
        square = 4 * key.batch * key.length**2 * key.width
        return square + (8 * key.batch * key.length * key.width**2 if projected else 0)
    return _model_flops(key.shape, key.batch, key.length) if isinstance(key.shape, tuple) else None


@lru_cache(maxsize=1)
def find_projected(report: PublishedReport) -> frozenset[str]:
    """Returns the files of attention tables whose bytes are those of four projections of d² float32 weights.

    The least memory that the row of the widest head states holds 16 d² bytes, more than its tensors need: queries, keys
    and values are 12 B S d."""
    found = set()
    for readings in report.groups:
        if readings[0].table.subject != "attention":
            continue
        widest = max(readings, key=lambda reading: reading.key.width or 0)
        width, length, batch = widest.key.width or 0, widest.key.length or 0, widest.key.batch or 1
        held = [f.value for (_, part), f in widest.memory.items() if f.value and part.startswith("model")]
        if held and min(held) >= 16 * width**2 > 24 * batch * length * width:
            found.add(readings[0].table.file)
    return frozenset(found)
