"""The result of a bench: one figure and its goal."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Result:
    """`figure` and `goal` are formatted for a person; `met` is None for a figure without a goal."""

    name: str
    figure: str
    goal: str = ""
    met: bool | None = None
