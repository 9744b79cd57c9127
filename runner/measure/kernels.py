"""The kernels of one steady step, from a profiled pass apart from the timed one.

The step is timed without the profiler first, then profiled a few times in the same process. The profiled step with the
median duration is broken down into its kernels (on a CPU its operators) by phase and named range. Times and calls are
those of that one step, so that they add up. FLOPs and bytes are an operator's and follow from shapes
(`runner.analysis.costs.operations`): they count for the longest of the kernels that it launched, on a CPU for the
operator, or for those that it calls. Limits: a profiled step takes longer than a real one, and the row says by how
much; kernels of compiled code have a phase, but no range; on a CPU the product at which a checkpoint's second pass
stops counts, although PyTorch does not compute it.

The phase and the named range of work are found by the operator that launched it.

    trace = Trace(events_of(profiler, step=0))
    for work in trace.work(): trace.place(work.caller), work.kernel, work.device_ns

On CUDA, work is a kernel, and it belongs to the operator that launched it (by the profiler's correlation ids), however
late it runs. On a CPU, work is an operator's own time without its callees'. An operator belongs to the ranges that it
is nested in on its thread. Backward's operators run inside a node of the graph, on CUDA in a thread of autograd's own,
outside of any range: their phase is `backward`, and their range is that of the forward operator with the node's
sequence number. What a checkpoint computes again runs inside a node too, and has ranges of its own.

The modules of an own model are ranges too, with a star for each number in a path, so that equal blocks are one range.
The innermost module counts; what a module computes between the calls of its own modules is its own.
"""

import functools
import gc
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from torch.profiler import ProfilerActivity, profile, record_function

from runner.analysis.costs.operations import Arguments, flops, moved_bytes
from runner.analysis.costs.steps import weight_bytes
from runner.analysis.kernels import kernel_class
from runner.errors import Skipped
from runner.job import Job, Measurement
from runner.measure import limits, precision
from runner.measure.compilation import CompilerLog
from runner.measure.device import Device
from runner.measure.device_time import DeviceWork, is_on_host, kineto_events, union_ns
from runner.measure.model_step import ModelStep, is_compiled, require_attention
from runner.measure.observer import around_modules
from runner.measure.timing import StepLimits, measure, time_step
from runner.models.ranges import MODEL_RANGES, MODULE_RANGE, PHASE_RANGES, is_under_nsys, listen_to_ranges, named_range
from runner.schema import PHASES, KernelRow, ProfileCell, TraceRow, step_of
from runner.schema.sizes import title

#: The range around one step.
STEP = "step"
_BACKWARD_SCOPE = 1  # at::RecordScope::BACKWARD_FUNCTION
_NODE = "autograd::engine::evaluate_function: "
#: What CUPTI calls its own work, which it reports among the host's calls (the kinds of CUpti_ActivityOverheadKind, in
#: PyTorch's spelling). Their correlation ids are those of operators that have nothing to do with them.
_OVERHEADS = {
    "Activity Buffer Request", "Buffer Flush", "Command Buffer Full", "Driver Compiler", "Instrumentation",
    "Lazy Function Loading", "Resource", "Runtime Triggered Module Loading", "UVM Activity Init",
}  # fmt: skip
_LAUNCHERS = ("cuda", "cu")  # of CUDA's runtime and driver: cudaLaunchKernel, cuLaunchKernelEx


@dataclass(frozen=True, slots=True)
class ProfilerEvent:
    """One event of the profiler. `thread` is the system's id, `torch_thread` the id by which backward's nodes name
    their forward thread, and `linked` the correlation id of the operator that launched it (0 for none)."""

    kind: Literal["kernel", "range", "node", "call"]
    name: str
    start_ns: int
    end_ns: int
    thread: int
    torch_thread: int = 0
    forward_thread: int = 0
    correlation: int = 0
    linked: int = 0
    sequence: int = -1
    shapes: Sequence[Any] = ()
    dtypes: Sequence[str] = ()
    values: Sequence[Any] = ()

    @property
    def is_launch(self) -> bool:
        """Whether it is a call into CUDA, which operators make."""
        return self.linked != 0 or self.name.startswith(_LAUNCHERS)


@dataclass(frozen=True, slots=True)
class WorkPlace:
    """The phase and range of work; empty where unknown."""

    phase: str = ""
    scope: str = ""


def events_of(profiler: profile, *, step: int) -> list[ProfilerEvent]:
    """Returns the events of one step, counted from 0. Ranges on the device's own timeline are left out, because they
    repeat the host's. The device is synchronized at both ends of a step, so that its kernels lie within."""
    events = kineto_events(profiler)
    ranges = {event.name() for event in events if event.is_user_annotation()}
    steps = sorted((item.start_ns(), item.end_ns()) for item in events if item.name() == STEP and is_on_host(item))
    first_ns, last_ns = steps[step]
    return [
        _event(event)
        for event in events
        if first_ns <= event.start_ns() < last_ns and (is_on_host(event) or event.name() not in ranges)
    ]


def _event(event: Any) -> ProfilerEvent:
    name = event.name()
    kind: Literal["kernel", "range", "node", "call"] = "call"
    if not is_on_host(event):
        kind = "kernel"
    elif event.is_user_annotation():
        kind = "range"
    elif event.scope() == _BACKWARD_SCOPE or name.startswith(_NODE):
        kind = "node"
    structured = getattr(event, "structured_input_shapes", event.shapes)  # which knows lists of tensors
    return ProfilerEvent(
        kind=kind,
        name=name,
        start_ns=event.start_ns(),
        end_ns=event.end_ns(),
        thread=event.device_resource_id(),
        torch_thread=event.start_thread_id(),
        forward_thread=event.fwd_thread_id(),
        correlation=event.correlation_id(),
        linked=event.linked_correlation_id(),
        sequence=event.sequence_nr(),
        shapes=structured() if kind == "call" else (),
        dtypes=event.dtypes() if kind == "call" else (),
        values=event.concrete_inputs() if kind == "call" else (),
    )


class Trace:
    """The events of a profiled step, those of the host in the order in which they call one another."""

    def __init__(self, events: Iterable[ProfilerEvent]) -> None:
        ordered = sorted(events, key=lambda event: (event.start_ns, -event.end_ns))
        self.kernels = [event for event in ordered if event.kind == "kernel"]
        self.host = [event for event in ordered if event.kind != "kernel" and event.name not in _OVERHEADS]
        parents, own = [-1] * len(self.host), [event.end_ns - event.start_ns for event in self.host]
        open_calls: dict[int, list[int]] = {}
        for position, event in enumerate(self.host):
            calls = open_calls.setdefault(event.thread, [])
            while calls and self.host[calls[-1]].end_ns < event.end_ns:
                calls.pop()
            if calls:
                parents[position] = calls[-1]
                own[calls[-1]] -= event.end_ns - event.start_ns
            calls.append(position)
        self.parents, self.own_ns = parents, own
        self.place = functools.cache(self._find_place)
        self._operators = {event.correlation: at for at, event in enumerate(self.host) if not event.is_launch}
        self._launches = {event.correlation: at for at, event in enumerate(self.host) if event.is_launch}
        # The forward operator of each thread and sequence number. Operators without a backward report the next number
        # too, so that the last one that starts with it counts.
        self._forward = {
            (event.torch_thread, event.sequence): at
            for at, event in enumerate(self.host)
            if event.kind == "call" and event.sequence >= 0 and event.forward_thread == 0 and not event.is_launch
        }

    def work(self) -> Iterator[DeviceWork]:
        """Yields what took the device's time: its kernels, or on a CPU the operators themselves."""
        for event in self.kernels:
            device_ns = event.end_ns - event.start_ns
            # A kernel linked to no operator, such as one of Triton's, belongs to the call into CUDA with its
            # correlation id, which is nested on its thread like any other.
            launch = self._launches.get(event.correlation)
            caller = self._operators.get(event.linked, launch) if event.linked else launch
            yield DeviceWork(event.name, event.start_ns, event.end_ns, device_ns, caller)
        for position, event in enumerate(self.host):
            if event.kind != "range" and not self.kernels:
                yield DeviceWork(event.name, event.start_ns, event.end_ns, self.own_ns[position], position)

    def callers(self, position: int) -> Iterator[int]:
        """Yields the event itself and the operators that called it, innermost first, up to a range or a node."""
        at = position
        while at >= 0 and self.host[at].kind == "call":
            if not self.host[at].is_launch:
                yield at
            at = self.parents[at]

    def _find_place(self, position: int) -> WorkPlace:
        """Returns the phase and the innermost range of a host event."""
        event, parent = self.host[position], self.parents[position]
        outer = self.place(parent) if parent >= 0 else WorkPlace()
        if event.kind == "range" and event.name in PHASE_RANGES:
            outer = WorkPlace(event.name, outer.scope)
        if event.kind == "range" and event.name.startswith(MODULE_RANGE):
            return WorkPlace(outer.phase, event.name.removeprefix(MODULE_RANGE))
        if event.kind == "range" and event.name in MODEL_RANGES:
            return WorkPlace(outer.phase, event.name)
        if event.kind == "node":
            # AccumulateGrad has no sequence number, so that its work belongs to no range.
            forward = self._forward.get((event.forward_thread, event.sequence)) if event.sequence >= 0 else None
            return WorkPlace("backward", "" if forward is None else self.place(forward).scope)
        return outer


#: The phase, range and kernel of a row.
Key = tuple[str, str, str]
#: The FLOPs and bytes of one call.
Numbers = tuple[int | None, int | None]
NOTHING: Numbers = (None, None)
UNKNOWN = "unknown"


@dataclass(kw_only=True)
class Sum:
    """The sums of one kernel's calls in one place. A number that one call lacks is unknown for all."""

    calls: int = 0
    ns: int = 0
    numbers: list[Numbers] = field(default_factory=list)
    operators: Counter[str] = field(default_factory=Counter)

    def total(self, place: int) -> int | None:
        known = [numbers[place] for numbers in self.numbers]
        return sum(number or 0 for number in known) if known and None not in known else None


def kernel_sums(trace: Trace, work: Sequence[DeviceWork], *, list_bytes: int) -> Mapping[Key, Sum]:
    """Returns the sums of all work by row. `list_bytes` is the size of a number in the optimizer's lists of tensors."""
    sums: dict[Key, Sum] = defaultdict(Sum)
    counted = _counted(trace, work, list_bytes=list_bytes)
    for position, item in enumerate(work):
        place = WorkPlace() if item.caller is None else trace.place(item.caller)
        kernel = sums[place.phase or UNKNOWN, place.scope, item.kernel]
        kernel.calls += 1
        kernel.ns += item.device_ns
        if position in counted:
            kernel.numbers.append(counted[position])
        operator = next(trace.callers(item.caller), None) if item.caller is not None else None
        if operator is not None:
            kernel.operators[trace.host[operator].name] += item.device_ns
    return sums


def _counted(trace: Trace, work: Sequence[DeviceWork], *, list_bytes: int) -> dict[int, Numbers]:
    """Returns the numbers of each piece of work by its position. Work without an entry is part of an operator whose
    numbers count for another piece."""

    @functools.cache
    def known(position: int) -> Numbers:
        event = trace.host[position]
        if event.kind != "call" or not event.shapes:
            return NOTHING
        given = {"shapes": event.shapes, "dtypes": event.dtypes, "values": event.values}
        call = Arguments(operator=event.name, **given, list_bytes=list_bytes)
        return flops(call), moved_bytes(call)

    if not trace.kernels:
        operators = _counted_operators(trace, known)
        return {place: operators[item.caller] for place, item in enumerate(work) if item.caller in operators}
    longest: dict[int, int] = {}
    counted: dict[int, Numbers] = {}
    for place, item in enumerate(work):
        callers = () if item.caller is None else trace.callers(item.caller)
        owner = next((at for at in callers if known(at) != NOTHING), None)
        if owner is None:
            counted[place] = NOTHING
        elif owner not in longest or item.device_ns > work[longest[owner]].device_ns:
            longest[owner] = place
    return counted | {place: known(owner) for owner, place in longest.items()}


def _counted_operators(trace: Trace, known: Callable[[int], Numbers]) -> dict[int, Numbers]:
    """Returns, on a CPU, the outermost operators whose FLOPs are known, and of others the innermost whose bytes are."""
    counted: dict[int, Numbers] = {}
    callers_of_counted: set[int] = set()
    for position in reversed(range(len(trace.host))):
        outer = list(trace.callers(position))[1:]
        is_part = any(known(caller)[0] is not None for caller in outer)
        is_whole = known(position)[0] is None and position in callers_of_counted
        if not is_part and not is_whole:
            counted[position] = known(position)
            if known(position) != NOTHING:
                callers_of_counted.update(outer)
    return counted


#: The profiled steps after a first one that does not count, of a step that is short and of one that is longer than
#: LONG_MS, whose times differ less; odd, so that one of them is the median.
STEPS, LONG_STEPS, LONG_MS = 5, 3, 200.0
LIMITS = StepLimits(warmup=3, min_steps=10, max_steps=30, seconds=2.0, min_slow_steps=3)


def measure_kernels(job: Job, report: Callable[[str], None]) -> Measurement:
    cell, device = job.cell, Device(job.device)
    assert isinstance(cell, ProfileCell)
    if device.type == "mps":
        raise Skipped("PyTorch's profiler sees no kernels on MPS.")
    if device.type == "cuda" and is_under_nsys():
        seen = "nsys itself records those of the other experiments"
        raise Skipped(f"Under nsys PyTorch's profiler sees no kernels; {seen}.")
    require_attention(cell, device)
    precision.apply(cell.precision, device)
    limits.reset_peaks(device)
    patched: AbstractContextManager[object] = nullcontext()
    if device.type == "cpu" and is_compiled(cell.backend):  # kernels that the profiler sees, as on CUDA anyway
        import torch._inductor.config as inductor  # takes a second, which no other cell needs

        patched = inductor.patch({"cpp.enable_kernel_profile": True})
    with patched:
        values, trace = _run_passes(cell, device, report=report)
    if device.type == "cuda" and not trace.kernels:
        raise Skipped("PyTorch's profiler saw no kernel: CUPTI is missing, or the driver does not allow it.")
    work = list(trace.work())
    sums = kernel_sums(trace, work, list_bytes=weight_bytes(cell))
    kernel_ns, busy_ms = sum(kernel.ns for kernel in sums.values()), union_ns(work) / 1e6
    attributed_ns = sum(kernel.ns for (phase, _, _), kernel in sums.items() if phase != UNKNOWN)
    # On CUDA only the host is slower under the profiler; on a CPU the operators are slower too.
    busy_share = busy_ms / values["profiled_step_ms" if device.type == "cpu" else "unprofiled_step_ms"]
    values |= {
        "kernel_ms": kernel_ns / 1e6,
        "busy_ms": busy_ms,
        "busy_share": busy_share,
        "host_bound_share": None if device.type == "cpu" else max(1 - busy_share, 0.0),
        "attributed_share": attributed_ns / kernel_ns if kernel_ns else None,
        "kernel_calls": len(work),
    }
    rows = [
        KernelRow(
            **job.ids,
            phase=phase,
            scope=scope,
            kernel=kernel,
            kernel_class=kernel_class(kernel, phase=phase),
            calls=found.calls,
            device_ms=found.ns / 1e6,
            operator=found.operators.most_common(1)[0][0] if found.operators else None,
            flops=found.total(0),
            moved_bytes=found.total(1),
        )
        for (phase, scope, kernel), found in sums.items()
    ]
    row = TraceRow(
        **job.ids, origin="torch-profiler", title=title(cell), kernels=len(rows), kernel_ms=kernel_ns / 1e6, steps=1
    )
    return Measurement(values=values, details={"traces": [row], "kernels": rows})


def _run_passes(cell: ProfileCell, device: Device, *, report: Callable[[str], None]) -> tuple[dict[str, Any], Trace]:
    """Runs the step without the profiler and with it. Returns columns of the row, and the trace of the profiled step
    with the median time."""
    report("build")
    began = time.perf_counter()
    step = ModelStep(step_of(cell), device)
    device.synchronize()
    built, compiler = time.perf_counter(), CompilerLog()

    def between(number: int) -> None:
        step.between()
        if number in (0, LIMITS.warmup):
            compiler.warmed_up()

    try:
        steps = measure(step, device, phases=PHASES[cell.mode], limits=LIMITS, between=between, report=report)
        report("profile")
        profiled = LONG_STEPS if steps.summary.median > LONG_MS else STEPS
        profiled_ms, trace = _profile(step, device, steps=profiled)
    except BaseException:
        report(step.phase or "profile")
        raise
    unprofiled_ms = steps.summary.median
    compiled = compiler.values(steps) if is_compiled(cell.backend) else {}
    return {
        "steps": profiled,
        "unprofiled_step_ms": unprofiled_ms,
        "profiled_step_ms": profiled_ms,
        "overhead_share": profiled_ms / unprofiled_ms - 1,
        "graph_breaks": compiled.get("graph_breaks"),
        "recompiles": compiled.get("recompiles"),
        "build_seconds": built - began,
        "measure_seconds": time.perf_counter() - built,
    }, trace


def _profile(step: ModelStep, device: Device, *, steps: int) -> tuple[float, Trace]:
    """Returns the median time of the profiled steps (ms) and the trace of the step that took it. The first step, which
    starts the profiler, does not count."""
    # Our model has ranges in its code, and compiled code has none.
    is_watched = step.cell.model_key is not None and not is_compiled(step.cell.backend)
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
    times: list[float] = []
    gc.collect()
    gc.disable()
    try:
        modules = around_modules(step.model, lambda path: named_range(MODULE_RANGE + star_numbers(path)))
        with (
            modules if is_watched else nullcontext(),
            listen_to_ranges(record_function),
            profile(activities=activities, record_shapes=True) as profiler,
        ):
            for _ in range(1 + steps):
                step.between()
                times.append(time_step(step, device, phases=len(PHASES[step.cell.mode])).step_ms)
    finally:
        gc.enable()
    middle = median(times[1:])
    return middle, Trace(events_of(profiler, step=times.index(middle, 1)))


def star_numbers(path: str) -> str:
    """Returns a path with a star for each number: `layers.*.mlp` for `layers.3.mlp`."""
    return re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)", "*", path)
