"""Where the time of a sweep went: most of it should go to measured steps.

spent += Spent.of(row)
print(replace(spent, all_s=wall_s).describe())
# 61% measured steps, 20% warm-up, 10% compiling, 4% building, 5% the rest
"""

from dataclasses import astuple, dataclass
from typing import Self

from runner.formats import format_share
from runner.schema import Row


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Seconds of a sweep by what they went to, of `all_s`. Measured steps are those waited for and those of the loop.
    The rest is what starts a process and ends it, ceilings, and the store."""

    measured_s: float = 0.0
    warmup_s: float = 0.0
    compiling_s: float = 0.0
    building_s: float = 0.0
    all_s: float = 0.0

    @classmethod
    def of(cls, row: Row) -> Self:
        """Returns the seconds of a cell. Compiling happens during the warm-up and is taken out of it; what was compiled
        ahead of its turn is compiled once more, with its cache."""
        measured, unwaited, warmup, first, again, building = (
            getattr(row, f"{name}_seconds", None) or 0.0
            for name in ("measure", "unwaited", "warmup", "compile", "compile_warm", "build")
        )
        if getattr(row, "compiled_at_once", None):
            first, again = again, 0.0
        compiling = min(first, warmup)
        return cls(
            measured_s=measured + unwaited,
            warmup_s=warmup - compiling,
            compiling_s=compiling + again,
            building_s=building,
        )

    def __add__(self, other: Self) -> "Spent":
        names = self.__dataclass_fields__
        return Spent(**dict(zip(names, map(sum, zip(astuple(self), astuple(other), strict=True)), strict=True)))

    def describe(self) -> str:
        """Returns the share of each part, without those that took nothing."""
        parts = {
            "measured steps": self.measured_s,
            "warm-up": self.warmup_s,
            "compiling": self.compiling_s,
            "building": self.building_s,
        }
        parts["the rest"] = max(self.all_s - sum(parts.values()), 0.0)
        return ", ".join(f"{format_share(part_s / self.all_s)} {part}" for part, part_s in parts.items() if part_s)
