"""Why does one step take longer than another? The change of each part, largest first; together they add up.

    changes({"matmul": 20.0, "softmax": 4.0}, {"matmul": 9.0, "copy or cast": 2.0}, most=12)
    # matmul -11, softmax -4, copy or cast +2: from 24 to 11

Parts that are not listed are summed under REST.
"""

from collections.abc import Mapping
from dataclasses import dataclass

REST = "all others"


@dataclass(frozen=True, kw_only=True)
class PartChange:
    """One part before and after (ms; 0 where it is absent)."""

    name: str
    before_ms: float
    after_ms: float

    @property
    def difference_ms(self) -> float:
        return self.after_ms - self.before_ms


def changes(before: Mapping[str, float], after: Mapping[str, float], *, most: int) -> list[PartChange]:
    """Returns at most `most` parts, largest change first, and REST for the sum of the others."""
    every = [
        PartChange(name=name, before_ms=before.get(name, 0.0), after_ms=after.get(name, 0.0))
        for name in dict.fromkeys((*before, *after))
    ]
    every.sort(key=lambda change: -abs(change.difference_ms))
    shown, rest = every[:most], every[most:]
    if rest:
        summed = PartChange(
            name=REST, before_ms=sum(item.before_ms for item in rest), after_ms=sum(item.after_ms for item in rest)
        )
        shown.append(summed)
    return shown
