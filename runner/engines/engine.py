"""What a sweep asks of where it measures. An engine is a file of this folder with `open_places`; nothing else knows it.

    with open_engine("ray", on=("H200",)) as places:
        machine = places[0].describe("auto")

A place runs one cell at a time. The engine `local` has one, this machine; `ray` has one a GPU of a cluster.
"""

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol
from uuid import UUID

from runner.errors import StepscopeError, UsageError
from runner.job import CeilingJob, Ceilings, Compiled, CompileJob, Job, Outcome, OwnModelJob
from runner.schema.own import OwnModel

#: Every engine: the file of this folder that has its name. The first is the default.
ENGINES = ("local", "ray")


class Engine(Protocol):
    """A place that measures one job after the other, each in a fresh process."""

    def describe(self, device: str) -> dict[str, Any]: ...
    def describe_model(self, job: OwnModelJob) -> OwnModel: ...
    def ceilings(self, job: CeilingJob) -> Ceilings: ...
    def compile(
        self, jobs: Sequence[CompileJob], *, room_bytes: int, timeout_s: float, beat: Callable[[int], None]
    ) -> Mapping[UUID, Compiled | None]: ...
    def measure(self, job: Job, *, timeout_s: float, beat: Callable[[str], None] = ...) -> Outcome: ...
    def end(self) -> None: ...


class PlaceLost(StepscopeError):
    """The place is gone, such as with its machine; what it was measuring may be measured elsewhere."""


def open_engine(name: str, *, on: Sequence[str], compiles: bool = False) -> AbstractContextManager[Sequence[Engine]]:
    """Returns the places of an engine, as a context that ends them; `on` names the types of device to use, and
    `compiles` says whether cells will be compiled. Raises UsageError for an engine that there is not, or that has no
    such device."""
    if name not in ENGINES:
        raise UsageError(f"--engine got {name!r}.", expected=f"one of {', '.join(ENGINES)}")
    open_places: Callable[..., AbstractContextManager[Sequence[Engine]]]
    open_places = pkgutil.resolve_name(f"runner.engines.{name}:open_places")
    return open_places(on, compiles=compiles)
