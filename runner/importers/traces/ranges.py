"""The phase and the named range that a thread was in at a moment, from the NVTX ranges that it pushed.

    ranges = ThreadRanges([(0, 900, "forward"), (100, 300, "computing softmax")])
    ranges.at(150)         # LaunchPlace(phase="forward", scope="computing softmax")

Names are free: `PHASES` and `STEP` match those of a phase or a whole step; every other name is a range of its own.
Limits: only ranges that were pushed and popped, which nest on their thread; not those that were started and ended by
number, which need not nest. Standard library only.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
_NEVER = 2**64


@dataclass(frozen=True, slots=True)
class LaunchPlace:
    """Where a kernel was launched: phase, innermost named range, operator; empty where unknown."""

    phase: str = ""
    scope: str = ""
    operator: str = ""


NOWHERE = LaunchPlace()


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
    """Returns the place within a range of this name."""
    phase = phase_of(name)
    if phase:
        return LaunchPlace(phase=phase)
    if is_step(name):
        return LaunchPlace(phase=outer.phase, scope=outer.scope)
    operator = _OPERATOR.fullmatch(name)
    if operator:
        return LaunchPlace(phase=outer.phase, scope=outer.scope, operator=operator["name"])
    return LaunchPlace(phase=outer.phase, scope=name)
