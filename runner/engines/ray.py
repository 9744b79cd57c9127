"""The GPUs of a Ray cluster, each a place that measures one cell after the other.

    python -m runner sweep --engine ray --on H200,A100          # the cluster that RAY_ADDRESS names, or this machine's

Each place is an actor that holds its GPU, and in it the engine `local` runs: a fresh process a cell, from a fork server
that has never touched CUDA, with the threads that a sweep on that machine would have. On two H200s of a host, the GPU
time of a cell was within 0.4% of that alone; six latencies that the host sets, of seven processes each, were 1.09 (1.00
to 1.19) times as long beside the other GPU. A plan of 56 cells took 141 s on both and 228 s on one. On one machine
`--on cuda:0,cuda:1` needs no Ray.
Nothing is retried: Ray restarts neither actors nor tasks here, because a cell that died of memory would die again. Rows
go back to the driver, which alone writes. `--on` names accelerator types of Ray or custom resources. Without it there
is a place for each GPU or, where no node has one, for each node.

Limits: every node needs Stepscope and the same Python, torch and commit; `runner.sweep.start` says what differs.
"""

import contextlib
import fcntl
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from runner.engines.engine import ADJUSTABLE, ENVIRONMENT, PlaceLost
from runner.engines.local import BEAT_SECONDS, CEILINGS_SECONDS, LocalEngine
from runner.errors import StepscopeError, UsageError
from runner.job import CeilingJob, Ceilings, Job, Outcome, OwnModelJob
from runner.schema.own import OwnModel

#: How long a place may take to start, with its GPU free, and beyond the limit of a cell to answer (s).
START_SECONDS, MARGIN_SECONDS = 300.0, 60.0
#: What Ray calls the type of an accelerator among a node's resources.
_TYPE = "accelerator_type:"


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A node by its id and name, and what a place takes of it: a GPU, or one of a custom resource."""

    node: str
    name: str
    resources: Mapping[str, float]


def list_spots(nodes: Sequence[Mapping[str, Any]], on: Sequence[str]) -> list[Spot]:
    """Returns where places can be, from Ray's description of its nodes. Raises UsageError for a type that no node
    has, for which Ray would wait for ever."""
    alive = [node for node in nodes if node["Alive"]]
    spots = []
    for kind in on:
        found = [spot for node in alive for spot in _list_node(node, kind)]
        if not found:
            names = {name for node in alive for name in node["Resources"] if not name.startswith("node:")}
            known = {name.removeprefix(_TYPE) for name in names - {"CPU", "GPU", "memory", "object_store_memory"}}
            raise UsageError(f"No node of the cluster has {kind}.", expected=f"one of {', '.join(sorted(known))}")
        spots += found
    if not on:
        spots = [spot for node in alive for spot in _list_node(node, "GPU")]
        spots = spots or [_spot(node, {}) for node in alive if node["Resources"].get("CPU")]
    if not spots:
        raise UsageError("The Ray cluster has no node that could measure.", expected="a node with a GPU or a CPU")
    return spots


def _list_node(node: Mapping[str, Any], kind: str) -> list[Spot]:
    resource = "GPU" if _TYPE + kind in node["Resources"] else kind
    return [_spot(node, {resource: 1.0})] * int(node["Resources"].get(resource, 0))


def _spot(node: Mapping[str, Any], resources: Mapping[str, float]) -> Spot:
    return Spot(node=node["NodeID"], name=node["NodeManagerHostname"], resources=resources)


class Actor:
    """The actor: it runs in a process of Ray's on a node, and holds the engine of that machine."""

    def __init__(self, environment: Mapping[str, str], *, compiles: bool) -> None:
        # Ray sets OMP_NUM_THREADS for its workers, to 1 in most cases: here it is what a sweep would have.
        for name in ENVIRONMENT:
            os.environ.pop(name, None)
        os.environ.update(environment)
        # A worker would import the main module of Ray's process again.
        sys.modules["__main__"] = ModuleType("__main__")
        self.phase, self.engine = "start", LocalEngine(compiles=compiles, goes_on=True)
        # Places of one machine measure at the same time; a sweep that somebody starts there waits for all of them.
        lock = os.open(Path(tempfile.gettempdir(), f"stepscope-{os.getuid()}.lock"), os.O_CREAT | os.O_WRONLY, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)

    def call(self, method: str, *words: Any, **more: Any) -> Any:
        """Returns what a method of the engine returns, or the error that it raises, which Ray would wrap."""
        if method == "measure":
            more["beat"] = partial(setattr, self, "phase")
        try:
            return getattr(self.engine, method)(*words, **more)
        except StepscopeError as error:
            return error
        finally:
            self.phase = "start"

    def current_phase(self) -> str:
        return self.phase


class RayEngine:
    """The driver's side of a place. An actor that dies while its node lives is started again, without what it did."""

    def __init__(self, spot: Spot, *, compiles: bool) -> None:
        self.start = partial(_start, spot, compiles=compiles)
        self.spot, self.actor, self.phase, self.has_ended = spot, self.start(), "start", False

    def describe(self, device: str) -> dict[str, Any]:
        return cast(dict[str, Any], self._ask("describe", device, within_s=START_SECONDS))

    def describe_model(self, job: OwnModelJob, *, timeout_s: float) -> OwnModel:
        return cast(OwnModel, self._ask("describe_model", job, within_s=timeout_s, timeout_s=timeout_s))

    def ceilings(self, job: CeilingJob) -> Ceilings:
        try:
            return cast(Ceilings, self._ask("ceilings", job, within_s=CEILINGS_SECONDS))
        except _Ended as ended:
            return Ceilings(rows=(), missing={"all": str(ended)})

    def measure(self, job: Job, *, timeout_s: float, beat: Callable[[str], None] = lambda phase: None) -> Outcome:
        """Measures one cell. Raises PlaceLost when the node is gone."""
        try:
            return cast(Outcome, self._ask("measure", job, within_s=timeout_s, beat=beat, timeout_s=timeout_s))
        except _Ended as ended:
            return Outcome(status=ended.status, failed_phase=self.phase, message=str(ended))

    def end(self) -> None:
        """Ends the actor and what it runs, for good; whoever waits for it gets PlaceLost."""
        self.has_ended = True
        self._kill()

    def _kill(self) -> None:
        import ray

        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.kill(self.actor, no_restart=True)

    def _ask(
        self,
        method: str,
        *words: object,
        within_s: float,
        beat: Callable[[str], None] = lambda phase: None,
        **more: object,
    ) -> Any:
        """Returns what the actor answers, and raises what its engine raised. Raises _Ended when its process died or did
        not answer, PlaceLost when its node is gone."""
        import ray

        ends, self.phase = time.monotonic() + within_s + MARGIN_SECONDS, "start"
        try:
            answer = self.actor.call.remote(method, *words, **more)
            while not ray.wait([answer], timeout=BEAT_SECONDS)[0]:
                if time.monotonic() > ends:
                    raise TimeoutError
                with contextlib.suppress(ray.exceptions.GetTimeoutError):
                    self.phase = ray.get(self.actor.current_phase.remote(), timeout=BEAT_SECONDS)
                beat(self.phase)
            found = ray.get(answer)
        except TimeoutError:
            self._restart()
            raise _Ended(f"{self.spot.name} did not answer within {within_s:g} s.", status="timeout") from None
        except ray.exceptions.OutOfMemoryError:
            self._restart()
            raise _Ended("Ray ended the process to save memory.", status="oom") from None
        except ray.exceptions.RayActorError as error:
            self._restart()
            reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason"
            raise _Ended(f"The process that Ray ran ended: {reason}", status="crashed") from None
        if isinstance(found, StepscopeError):
            raise found
        return found

    def _restart(self) -> None:
        """Starts the actor again. On a node that is gone it cannot start: that tells sooner than the list of nodes."""
        import ray

        self._kill()
        if not self.has_ended:
            self.actor = self.start()
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(self.actor.current_phase.remote(), timeout=START_SECONDS)
                return
        raise PlaceLost(f"{self.spot.name} has left the cluster.", do="Its cells are measured on the other nodes.")


class _Ended(Exception):
    def __init__(self, message: str, *, status: Any) -> None:
        super().__init__(message)
        self.status = status


def _start(spot: Spot, *, compiles: bool) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    given = {name: value for name in ADJUSTABLE if (value := os.environ.get(name))}
    if "GPU" not in spot.resources:
        given["CUDA_VISIBLE_DEVICES"] = ""  # a process that holds no GPU would see them all
    actor = ray.remote(Actor).options(
        num_cpus=0,
        num_gpus=spot.resources.get("GPU", 0),
        resources={name: count for name, count in spot.resources.items() if name != "GPU"},
        max_restarts=0,
        max_task_retries=0,
        max_concurrency=2,  # the phase is asked for while a cell is measured
        scheduling_strategy=NodeAffinitySchedulingStrategy(spot.node, soft=False),
    )
    return actor.remote(given, compiles=compiles)


@contextlib.contextmanager
def open_places(on: Sequence[str], *, compiles: bool) -> Iterator[Sequence[RayEngine]]:
    """Yields a place for each GPU of the cluster. Raises UsageError where Ray is not installed, or no node has what
    `on` names."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ModuleNotFoundError:
        raise UsageError("Ray is not installed.", do="Install it on every node: pip install '.[ray]'.") from None
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UsageError(
            f"The Ray cluster cannot be reached: {reason}", do="See RAY_ADDRESS and `ray status`."
        ) from None
    places: list[RayEngine] = []
    try:
        places += [RayEngine(spot, compiles=compiles) for spot in list_spots(ray.nodes(), on)]
        yield places
    finally:
        for place in places:
            place.end()
        ray.shutdown()
