"""A profiled step as rows: every kernel by phase and named range, and their sums.

    rows, values = break_down(trace, job=job)

FLOPs and bytes are an operator's (`runner.analysis.costs.operations`). They count for the longest of the kernels that
it launched; on a CPU for the operator, or for those that it calls. Limits: on a CPU the product at which a checkpoint's
second pass stops counts, although PyTorch does not compute it.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.analysis.costs.activations import weight_bytes
from runner.analysis.costs.operations import Arguments, flops, moved_bytes
from runner.analysis.kernels import kernel_class
from runner.job import Job
from runner.measure.machine.device_work import DeviceWork, union_ns
from runner.measure.profiling.trace import Trace
from runner.schema import KernelRow, ProfileCell

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


def break_down(trace: Trace, *, job: Job) -> tuple[list[KernelRow], dict[str, Any]]:
    """Returns the rows of a profiled step, and their sums as columns of `profiles`."""
    assert isinstance(job.cell, ProfileCell)
    work = list(trace.work())
    sums = kernel_sums(trace, work, list_bytes=weight_bytes(job.cell))
    kernel_ns = sum(kernel.ns for kernel in sums.values())
    attributed_ns = sum(kernel.ns for (phase, _, _), kernel in sums.items() if phase != UNKNOWN)
    values = {
        "kernel_ms": kernel_ns / 1e6,
        "busy_ms": union_ns(work) / 1e6,
        "attributed_share": attributed_ns / kernel_ns if kernel_ns else None,
        "kernel_calls": len(work),
    }
    return [_row(key, kernel, job=job) for key, kernel in sums.items()], values


def kernel_sums(trace: Trace, work: Sequence[DeviceWork], *, list_bytes: int) -> Mapping[Key, Sum]:
    """Returns the sums of all work by row. `list_bytes` is the size of a number in the optimizer's lists of tensors."""
    sums: dict[Key, Sum] = defaultdict(Sum)
    counted = _counted(trace, work, list_bytes=list_bytes)
    for position, item in enumerate(work):
        place = trace.place(item.caller) if item.caller is not None else None
        key = (place.phase or UNKNOWN, place.scope, item.kernel) if place else (UNKNOWN, "", item.kernel)
        kernel = sums[key]
        kernel.calls += 1
        kernel.ns += item.device_ns
        if position in counted:
            kernel.numbers.append(counted[position])
        operator = next(trace.callers(item.caller), None) if item.caller is not None else None
        if operator is not None:
            kernel.operators[trace.host[operator].name] += item.device_ns
    return sums


def _row(key: Key, sums: Sum, *, job: Job) -> KernelRow:
    phase, scope, kernel = key
    return KernelRow(
        run_id=job.run_id,
        cell_id=job.cell_id,
        phase=phase,
        scope=scope,
        kernel=kernel,
        kernel_class=kernel_class(kernel, phase=phase),
        calls=sums.calls,
        device_ms=sums.ns / 1e6,
        operator=sums.operators.most_common(1)[0][0] if sums.operators else None,
        flops=sums.total(0),
        moved_bytes=sums.total(1),
    )


def _counted(trace: Trace, work: Sequence[DeviceWork], *, list_bytes: int) -> dict[int, Numbers]:
    """Returns the numbers of each piece of work by its position. Work without an entry is part of an operator whose
    numbers count for another piece."""
    known = _Known(trace, list_bytes=list_bytes)
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


def _counted_operators(trace: Trace, known: "_Known") -> dict[int, Numbers]:
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


class _Known:
    """The FLOPs and bytes of a trace's operators, where their arguments give them."""

    def __init__(self, trace: Trace, *, list_bytes: int) -> None:
        self.trace, self.list_bytes = trace, list_bytes
        self._numbers: dict[int, Numbers] = {}

    def __call__(self, position: int) -> Numbers:
        if position not in self._numbers:
            event = self.trace.host[position]
            call = Arguments(
                operator=event.name,
                shapes=event.shapes,
                dtypes=event.dtypes,
                values=event.values,
                list_bytes=self.list_bytes,
            )
            is_operator = event.kind == "call" and bool(event.shapes)
            self._numbers[position] = (flops(call), moved_bytes(call)) if is_operator else NOTHING
        return self._numbers[position]
