"""What a recording holds: what ran on the device, and in which phase and named range of a thread it was launched. The
run of an import.

    ranges = ThreadRanges([(0, 900, "forward"), (100, 300, "computing softmax")])
    ranges.at(150)         # LaunchPlace(phase="forward", scope="computing softmax")

Names are free: `PHASES` and `STEP` match those of a phase or a whole step; every other name is a range of its own.
Limits: only ranges that were pushed and popped, which nest on their thread; not those that were started and ended by
number, which need not nest.
"""

import hashlib
import re
import shlex
import sys
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from runner.errors import UsageError
from runner.schema import RunRow, new_id, utc_now
from runner.store.spool import Spool, to_document
from runner.store.views import check_document

_TAIL = r"([ _-]?(pass|step|phase))?([ _:#-]*\d+)?"
#: The names of ranges that are phases, in lower case.
PHASES: Mapping[str, re.Pattern[str]] = {
    "forward": re.compile(rf"(forward|fwd){_TAIL}"),
    "loss": re.compile(rf"(loss|criterion){_TAIL}"),
    "backward": re.compile(rf"(backward|bwd){_TAIL}"),
    "optimizer": re.compile(rf"(optimizer|optim|opt|adamw?){_TAIL}"),
}
STEP = re.compile(r"((train(ing)?|inference|measured)[ _-]?)?(step|iter(ation)?)([ _:#=/-]*\d+)?")
#: The ranges that PyTorch pushes for its operators (`torch.autograd.profiler.emit_nvtx`), and what it adds to the name.
_OPERATOR = re.compile(r"(?P<name>(aten|autograd)::.*?)(, (seq|op_id|sizes) = .*)?")
_NEVER, NAME_LENGTH = 2**64, 4_000


@dataclass(frozen=True, slots=True)
class LaunchPlace:
    """Where a kernel was launched: phase, innermost named range, operator; empty where unknown."""

    phase: str = ""
    scope: str = ""
    operator: str = ""


NOWHERE = LaunchPlace()


@dataclass
class Launched:
    """The calls of one kernel in one phase and range, their time (ns), the bytes that copies moved, and the operators
    that launched it."""

    calls: int = 0
    duration_ns: int = 0
    moved_bytes: int = 0
    operators: set[str] = field(default_factory=set)

    def add(self, duration_ns: int, *, calls: int = 1, moved_bytes: int | None = None, operator: str = "") -> None:
        self.calls += calls
        self.duration_ns += duration_ns
        self.moved_bytes += moved_bytes or 0
        self.operators.add(operator)


#: What ran, by the phase (empty where unknown), the range and the name of the kernel.
Kernels = dict[tuple[str, str, str], Launched]


@dataclass(frozen=True, kw_only=True)
class TracedProcess:
    """What the process `title` ran on the GPU, whose name and memory (bytes) are `gpu`. `steps` is None where no range
    tells their number. A step takes `step_ms` on the host; of that the device computes for `busy_ms` and waits for
    `gap_ms` between two kernels; `remarks` say what was not read."""

    title: str
    steps: int | None
    kernels: Kernels
    remarks: Sequence[str] = ()
    step_ms: float | None = None
    busy_ms: float | None = None
    gap_ms: float | None = None
    gpu: tuple[str | None, int | None] = (None, None)


def refuse(kind: str, path: Path, got: str, expected: str, *, do: str) -> UsageError:
    return UsageError(f"{path} is no {kind} that can be read: got {got}.", expected=expected, do=do)


def read_gpu(kinds: Collection[tuple[object, object]]) -> tuple[str | None, int | None]:
    """Returns the name and the memory (bytes) of the GPU where a recording names exactly one kind, or Nones."""
    ((name, memory),) = kinds if len(kinds) == 1 else [(None, None)]
    if not isinstance(name, str):
        return None, None
    return clean_name(name)[:200], memory if isinstance(memory, int) and 0 < memory < 2**62 else None


class ThreadRanges:
    """The ranges of one thread, from (start, end, name) in any order. A range whose end was not recorded (None) ends
    with the range around it."""

    def __init__(self, ranges: Iterable[tuple[int, int | None, str]]) -> None:
        self.steps = 0
        #: The (start, end) of each phase's ranges, in order.
        self.phases: dict[str, list[tuple[int, int]]] = {}
        self._times: list[int] = []
        self._places: list[LaunchPlace] = []
        stack: list[tuple[int, LaunchPlace]] = []
        closed = ((start, _NEVER if end is None else end, name) for start, end, name in ranges)
        # Outer ranges come before the inner ones that begin with them.
        for start, end, name in sorted(closed, key=lambda item: (item[0], -item[1])):
            self._close(stack, until=start)
            end, outer = (min(end, stack[-1][0]), stack[-1][1]) if stack else (end, NOWHERE)
            inner = _inside(outer, name)
            self.steps += is_step(name)
            if inner.phase != outer.phase:
                self.phases.setdefault(inner.phase, []).append((start, end))
            stack.append((end, inner))
            self._mark(start, inner)
        self._close(stack, until=_NEVER)

    def at(self, moment: int) -> LaunchPlace:
        """Returns the place at a moment. A range includes its first moment and not its last."""
        position = bisect_right(self._times, moment) - 1
        return self._places[position] if position >= 0 else NOWHERE

    def _close(self, stack: list[tuple[int, LaunchPlace]], *, until: int) -> None:
        while stack and stack[-1][0] <= until:
            end, _ = stack.pop()
            self._mark(end, stack[-1][1] if stack else NOWHERE)

    def _mark(self, moment: int, place: LaunchPlace) -> None:
        if self._times and self._times[-1] == moment:
            self._places[-1] = place
            return
        self._times.append(moment)
        self._places.append(place)


def phase_of(name: str) -> str | None:
    """Returns the phase that a range of this name is, if it is one."""
    plain = name.lower().strip()
    return next((phase for phase, pattern in PHASES.items() if pattern.fullmatch(plain)), None)


def is_step(name: str) -> bool:
    """Returns whether a range of this name is a whole step."""
    return STEP.fullmatch(name.lower().strip()) is not None


def _inside(outer: LaunchPlace, name: str) -> LaunchPlace:
    phase = phase_of(name)
    if phase:
        return LaunchPlace(phase=phase)
    if is_step(name):
        return LaunchPlace(phase=outer.phase, scope=outer.scope)
    operator = _OPERATOR.fullmatch(name)
    if operator:
        return LaunchPlace(phase=outer.phase, scope=outer.scope, operator=operator["name"])
    return LaunchPlace(phase=outer.phase, scope=name)


@lru_cache(maxsize=16_384)
def clean_name(name: str) -> str:
    """Returns at most 4,000 characters of a name, with spaces in place of control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in name[:NAME_LENGTH]).strip()


#: The longest that the rows wait for readers of the results file (s); after it they stay in the spool for the next
#: command.
INGEST_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """What was added, one line each. `is_whole` is False where something that was wanted is not stored."""

    lines: tuple[str, ...]
    is_whole: bool = True


def new_run(path: Path, label: str | None) -> RunRow:
    """Returns the row of a run that imports the file `path`; importing a file twice makes two runs."""
    run_id = new_id()
    return RunRow(
        run_id=run_id,
        sweep_key=hashlib.sha256(str(run_id).encode()).hexdigest()[:16],
        source="imported",
        label=label or path.name,
        argv=shlex.join(["python", "-m", "runner", *sys.argv[1:]]),
        started_at=utc_now(),
        device="cuda",
    )


def write_run(rows: Mapping[str, Sequence[object]], *, run: RunRow, db: Path, where: Path) -> None:
    """Writes rows by table to the spool of `db`. Raises RowsRefused, naming the file `where`, for rows that break the
    contract; then nothing was written."""
    document = to_document(rows)
    check_document(document, where=where)
    Spool(db).write_document(document, name=f"import-{run.run_id}")
