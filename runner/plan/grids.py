"""Axes whose product is a set of cells; one class a table. Their names are those of the flags and of `sweep.toml`.

    >>> len(list(StepGrid(sizes=("small",), contexts=(128, 256), precisions=("fp32", "bf16")).cells()))
    4

Standard library only.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, get_args

from runner.errors import UsageError
from runner.schema import (
    AccumulationCell,
    AttentionBackend,
    AttentionCell,
    Cell,
    MemoryCell,
    NumericsCell,
    ProfileCell,
    StepCell,
    SweepCell,
)
from runner.schema.sizes import shape_given, size_named

#: What says how carefully a cell is measured; whatever else a user sets is an axis.
LIMITS = frozenset({"steps", "max_steps", "max_seconds"})


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A product of axes. `AXES` says which axis sets which field of a cell."""

    AXES: ClassVar[Mapping[str, str]]
    CELL: ClassVar[type[SweepCell]]

    @classmethod
    def settable(cls) -> frozenset[str]:
        """The names by which a user sets its axes and limits."""
        return frozenset(item.name for item in fields(cls))

    def cells(self) -> Iterator[SweepCell]:
        """Every cell of the product, in the order of the axes."""
        for shape in self.shapes():
            for values in itertools.product(*(getattr(self, axis) for axis in self.AXES.values())):
                asked: dict[str, Any] = {**shape, **dict(zip(self.AXES, values, strict=True)), **self.limits()}
                yield self.CELL(**asked)

    def over(self, axes: Mapping[str, Any]) -> Self:
        """The same grid with the axes that a user set, as far as it has them."""
        return replace(self, **{name: value for name, value in axes.items() if name in self.settable()})

    def shapes(self) -> list[dict[str, int]]:
        """The numbers of each shape; one empty set for a grid without shapes."""
        return [{}]

    def limits(self) -> dict[str, Any]:
        """What says how carefully a cell is measured."""
        return {}


@dataclass(frozen=True, kw_only=True)
class _Shapes(Grid):
    sizes: tuple[str, ...] = ()
    shape: tuple[str, ...] = ()

    def shapes(self) -> list[dict[str, int]]:
        found = [size_named(name) for name in self.sizes] + [shape_given(text) for text in self.shape]
        return [size.numbers for size in found]


@dataclass(frozen=True, kw_only=True)
class _Limits(Grid):
    steps: int = 10
    max_steps: int = 200  # or `steps`, if that is more
    max_seconds: float = 10.0

    def over(self, axes: Mapping[str, Any]) -> Self:
        """Of the least and the most steps, the one that a user set decides over the other. Raises UsageError where
        both were set and contradict each other."""
        least, most = axes.get("steps"), axes.get("max_steps")
        if least is not None and most is not None and least > most:
            raise UsageError(
                f"At least {least} steps and at most {most} contradict each other.",
                expected="--max-steps of at least --steps",
                do=f"Use --max-steps {least}, or --steps {most}.",
            )
        if most is not None and least is None:
            axes = {**axes, "steps": min(self.steps, most)}
        return super().over(axes)

    def limits(self) -> dict[str, Any]:
        most = max(self.steps, self.max_steps)
        return {"min_steps": self.steps, "max_steps": most, "max_seconds": self.max_seconds}


@dataclass(frozen=True, kw_only=True)
class StepGrid(_Shapes, _Limits):
    """Cells of `steps`."""

    CELL = StepCell
    AXES: ClassVar[Mapping[str, str]] = {
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
        "compile_cache": "compile_cache",
    }
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
    compile_cache: tuple[str, ...] = ("shared",)

    def cells(self) -> Iterator[SweepCell]:
        """A cell that is not compiled has no compiler's cache."""
        for cell in super().cells():
            assert isinstance(cell, StepCell)
            yield cell if cell.backend.startswith("compiled") else replace(cell, compile_cache="shared")


@dataclass(frozen=True, kw_only=True)
class Variants(Grid):
    """Grids of steps that ask one question together, such as a step with one thing changed at a time. Axes go over each
    of them; a cell that makes no sense then is left out."""

    CELL = StepCell
    AXES = StepGrid.AXES
    grids: tuple[StepGrid, ...]

    @classmethod
    def settable(cls) -> frozenset[str]:
        return StepGrid.settable()

    def cells(self) -> Iterator[SweepCell]:
        for cell in itertools.chain.from_iterable(grid.cells() for grid in self.grids):
            assert isinstance(cell, StepCell)
            if cell.weights_dtype == "fp32" or cell.precision == "bf16":
                yield cell

    def over(self, axes: Mapping[str, Any]) -> Self:
        return replace(self, grids=tuple(grid.over(axes) for grid in self.grids))


@dataclass(frozen=True, kw_only=True)
class AttentionGrid(_Limits):
    """Cells of `attention`. Backends that mean nothing for a single operation are left out."""

    CELL = AttentionCell
    AXES: ClassVar[Mapping[str, str]] = {
        "implementation": "attention",
        "backend": "backends",
        "batch": "batch",
        "seq_len": "seq_lens",
        "d_head": "d_heads",
        "precision": "precisions",
        "causal": "causal",
        "cache": "cache",
        "warmup_steps": "warmup",
    }
    attention: tuple[str, ...] = ("naive",)
    backends: tuple[str, ...] = ("eager",)
    batch: tuple[int, ...] = (8,)
    seq_lens: tuple[int, ...] = (256, 1024, 4096, 8192, 16384)
    d_heads: tuple[int, ...] = (16, 32, 64, 128)
    precisions: tuple[str, ...] = ("fp32",)
    causal: tuple[bool, ...] = (True,)
    cache: tuple[str, ...] = ("hot",)
    warmup: tuple[int, ...] = (5,)
    steps: int = 100
    max_steps: int = 100

    def over(self, axes: Mapping[str, Any]) -> Self:
        known = [name for name in axes.get("backends", ()) if name in get_args(AttentionBackend)]
        return super().over({**axes, "backends": tuple(known)} if "backends" in axes else axes)


@dataclass(frozen=True, kw_only=True)
class MemoryGrid(_Shapes):
    """Cells of `memory`."""

    CELL = MemoryCell
    AXES: ClassVar[Mapping[str, str]] = {
        "context": "contexts",
        "mode": "modes",
        "precision": "precisions",
        "attention": "attention",
        "optimizer": "optimizers",
        "weights_dtype": "weights",
        "checkpoint_blocks": "checkpoint",
        "batch": "batch",
        "timeline": "timeline",
    }
    contexts: tuple[int, ...] = ()
    modes: tuple[str, ...] = ("inference", "forward", "train")
    precisions: tuple[str, ...] = ("fp32",)
    attention: tuple[str, ...] = ("naive",)
    optimizers: tuple[str, ...] = ("foreach",)
    weights: tuple[str, ...] = ("fp32",)
    checkpoint: tuple[int, ...] = (0,)
    batch: tuple[int, ...] = (4,)
    timeline: tuple[bool, ...] = (False,)


@dataclass(frozen=True, kw_only=True)
class ProfileGrid(_Shapes):
    """Cells of `profiles`."""

    CELL = ProfileCell
    AXES: ClassVar[Mapping[str, str]] = {
        "context": "contexts",
        "mode": "modes",
        "precision": "precisions",
        "backend": "backends",
        "attention": "attention",
        "optimizer": "optimizers",
        "weights_dtype": "weights",
        "checkpoint_blocks": "checkpoint",
        "batch": "batch",
    }
    contexts: tuple[int, ...] = ()
    modes: tuple[str, ...] = ("inference", "train")
    precisions: tuple[str, ...] = ("fp32",)
    backends: tuple[str, ...] = ("eager",)
    attention: tuple[str, ...] = ("naive",)
    optimizers: tuple[str, ...] = ("foreach",)
    weights: tuple[str, ...] = ("fp32",)
    checkpoint: tuple[int, ...] = (0,)
    batch: tuple[int, ...] = (4,)


@dataclass(frozen=True, kw_only=True)
class NumericsGrid(_Shapes):
    """Cells of `numerics`."""

    CELL = NumericsCell
    AXES: ClassVar[Mapping[str, str]] = {
        "context": "contexts",
        "precision": "precisions",
        "attention": "attention",
        "weights_dtype": "weights",
        "batch": "batch",
    }
    contexts: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ("fp32", "tf32", "bf16", "fp16")
    attention: tuple[str, ...] = ("naive",)
    weights: tuple[str, ...] = ("fp32",)
    batch: tuple[int, ...] = (4,)


#: The four ways in which people add a thousand hundredths, by the names of `--sums`.
SUMS: Mapping[str, AccumulationCell] = {
    "fp32": AccumulationCell(accumulator="fp32", addend="fp32"),
    "fp16": AccumulationCell(accumulator="fp16", addend="fp16"),
    "fp16-in-fp32": AccumulationCell(accumulator="fp32", addend="fp16"),
    "fp16-upcast-in-fp32": AccumulationCell(accumulator="fp32", addend="fp16", upcast=True),
}


@dataclass(frozen=True, kw_only=True)
class AccumulationGrid(Grid):
    """Cells of `accumulation`, by name."""

    CELL = AccumulationCell
    AXES: ClassVar[Mapping[str, str]] = {}
    sums: tuple[str, ...] = tuple(SUMS)

    def cells(self) -> Iterator[SweepCell]:
        return iter([SUMS[name] for name in self.sums])


#: The grid that makes a kind of cell.
GRIDS: Mapping[type[Cell], type[Grid]] = {
    grid.CELL: grid for grid in (StepGrid, AttentionGrid, MemoryGrid, ProfileGrid, NumericsGrid, AccumulationGrid)
}
