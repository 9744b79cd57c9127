"""The experiments' questions, and the presets: named plans, made of grids.

    python -m runner list presets

A grid is a product of axes. A preset holds, for each experiment, one or more of them. Standard library only.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.schema import StepCell
from runner.sizes import shape_given, size_named

#: Which axis of a grid, of the command line and of `sweep.toml` sets which field of a cell.
AXES: Mapping[str, str] = {
    "context": "contexts",
    "mode": "modes",
    "precision": "precisions",
    "backend": "backends",
    "attention": "attention",
    "optimizer": "optimizers",
    "weights_dtype": "weights",
    "checkpoint_blocks": "checkpoint",
    "batch": "batch",
    "warmup_steps": "warmup",
}


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Axes whose product is a set of `steps` cells. Their names are those of the command line and of `sweep.toml`."""

    sizes: tuple[str, ...] = ()
    shape: tuple[str, ...] = ()
    contexts: tuple[int, ...] = ()
    modes: tuple[str, ...] = ("train",)
    precisions: tuple[str, ...] = ("fp32",)
    backends: tuple[str, ...] = ("eager",)
    attention: tuple[str, ...] = ("naive",)
    optimizers: tuple[str, ...] = ("foreach",)
    weights: tuple[str, ...] = ("fp32",)
    checkpoint: tuple[int, ...] = (0,)
    batch: tuple[int, ...] = (4,)
    warmup: tuple[int, ...] = (5,)
    steps: int = 10
    max_steps: int = 200  # or `steps`, if that is more
    max_seconds: float = 10.0

    def cells(self) -> Iterator[StepCell]:
        shapes = [size_named(name) for name in self.sizes] + [shape_given(text) for text in self.shape]
        for shape in shapes:
            for values in itertools.product(*(getattr(self, axis) for axis in AXES.values())):
                asked: dict[str, Any] = {**shape.numbers, **dict(zip(AXES, values, strict=True))}
                asked |= {"min_steps": self.steps, "max_steps": max(self.steps, self.max_steps)}
                yield StepCell(**asked, max_seconds=self.max_seconds)


def _ablation(grid: Grid) -> Grid:
    """The same cells after 0, 1, 2 and 5 warm-up steps, with exactly ten measured ones, to compare."""
    return replace(grid, warmup=(0, 1, 2, 5), steps=10, max_steps=0)


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named plan: for each experiment, its grids. `fitting` leaves out the sizes predicted not to fit the device."""

    name: str
    doc: str
    grids: Mapping[str, tuple[Grid, ...]]
    fitting: bool = False


_TOYS = Grid(sizes=("toy-64", "toy-128", "toy-256"), contexts=(64, 128, 256), max_seconds=0.5)
_TOY = replace(_TOYS, sizes=("toy-256",), contexts=(128,))
_FITTING = Grid(sizes=("small", "medium", "large", "xl@2025", "xl@2026"), contexts=(128, 512, 1024), max_seconds=3.0)
_2025 = Grid(sizes=("small", "medium", "large", "xl@2025", "2.7B"), contexts=(128, 256, 512, 1024), max_steps=0)
_2026 = Grid(sizes=("small", "medium", "large", "xl@2026", "10B"), contexts=(512,), max_steps=0)


def _edition(grid: Grid) -> Mapping[str, tuple[Grid, ...]]:
    """The questions of one edition of the assignment, over its sizes and contexts."""
    small = replace(grid, sizes=("small",), contexts=grid.contexts[:1])
    return {
        "benchmark": (
            replace(grid, modes=("inference", "train")),
            _ablation(small),
            replace(
                grid,
                sizes=grid.sizes[:4],
                contexts=grid.contexts[:1],
                modes=("inference", "train"),
                backends=("eager", "compiled"),
            ),
        ),
        "mixed-precision": (replace(grid, precisions=("fp32", "bf16")),),
    }


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="laptop",
            doc="Three toy shapes, fp32 and bf16, eager; the largest also compiled block by block. About 30 s.",
            grids={
                "benchmark": (
                    _TOYS,
                    replace(_TOYS, contexts=(128,), modes=("inference",)),
                    _ablation(_TOY),
                    replace(_TOY, backends=("eager", "compiled-block")),
                ),
                "mixed-precision": (
                    replace(_TOYS, precisions=("fp32", "bf16")),
                    replace(_TOY, precisions=("fp32", "bf16"), backends=("eager", "compiled-block")),
                ),
            },
        ),
        Preset(
            name="standard",
            doc="Every size that fits the GPU, fp32, tf32 and bf16, eager and compiled. About 15 minutes.",
            fitting=True,
            grids={
                "benchmark": (
                    _FITTING,
                    replace(_FITTING, contexts=(512,), modes=("inference",)),
                    _ablation(replace(_FITTING, sizes=("small",), contexts=(512,))),
                    replace(
                        _FITTING,
                        sizes=("small", "medium"),
                        contexts=(512,),
                        modes=("inference", "train"),
                        precisions=("fp32", "bf16"),
                        backends=("eager", "compiled"),
                    ),
                ),
                "mixed-precision": (
                    replace(_FITTING, precisions=("fp32", "bf16")),
                    replace(_FITTING, contexts=(512,), precisions=("fp32", "tf32", "bf16")),
                ),
            },
        ),
        Preset(
            name="cs336-2025",
            doc="Edition 2025 of the assignment: its sizes at contexts 128, 256, 512 and 1024; "
            "5 warm-up and 10 measured steps.",
            grids=_edition(_2025),
        ),
        Preset(
            name="cs336-2026",
            doc="Edition 2026: its sizes at context 512, the optimizer step timed too.",
            grids=_edition(_2026),
        ),
    )
}
#: The experiments there are and what each asks.
QUESTIONS: Mapping[str, str] = {
    "benchmark": "How long do the forward pass, the backward pass and the optimizer take?",
    "mixed-precision": "What do bf16, fp16 and TF32 buy at each size?",
}


def preset_for(device: str) -> str:
    """The preset of a sweep that names none: `standard` on CUDA, `laptop` elsewhere."""
    return "standard" if device == "cuda" else "laptop"
