"""What a bench found: one figure beside its goal."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Result:
    """`figure` and `goal` as a person reads them; `met` is None for a figure without a goal."""

    name: str
    figure: str
    goal: str = ""
    met: bool | None = None
