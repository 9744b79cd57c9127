"""Which phase and which named range a thread was in at a moment, from the NVTX ranges that it pushed.

    ranges = ThreadRanges([(0, 900, "forward"), (100, 300, "computing softmax")])
    ranges.at(150)         # Place(phase="forward", scope="computing softmax")

People name ranges as they like: `PHASES` and `STEP` say which names are understood as a phase or a whole step; every
other name is a range of its own. Limits: ranges that were pushed and popped, which nest on their thread; not those
started and ended by number, which need not. Standard library only.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_TAIL = r"([ _-]?(pass|step|phase))?([ _:#-]*\d+)?"
#: A range of such a name is a phase; case does not count.
PHASES: Mapping[str, re.Pattern[str]] = {
    "forward": re.compile(rf"(forward|fwd){_TAIL}"),
    "loss": re.compile(rf"(loss|criterion){_TAIL}"),
    "backward": re.compile(rf"(backward|bwd){_TAIL}"),
    "optimizer": re.compile(rf"(optimizer|optim|opt|adamw?){_TAIL}"),
}
STEP = re.compile(r"((train(ing)?|inference|measured)[ _-]?)?(step|iter(ation)?)([ _:#=/-]*\d+)?")
#: Ranges that PyTorch pushes for its operators (`torch.autograd.profiler.emit_nvtx`), with what it adds to their names.
_OPERATOR = re.compile(r"(?P<name>(aten|autograd)::.*?)(, (seq|op_id|sizes) = .*)?")
_NEVER = 2**64


@dataclass(frozen=True, slots=True)
class LaunchPlace:
    """Where a kernel was launched: phase, innermost named range, operator; empty where nothing says so."""

    phase: str = ""
    scope: str = ""
    operator: str = ""


NOWHERE = LaunchPlace()


class ThreadRanges:
    """The ranges of one thread as (start, end, name), in any order. One whose end was not recorded (None) ends with the
    one around it."""

    def __init__(self, ranges: Iterable[tuple[int, int | None, str]]) -> None:
        self.steps = 0
        #: When each phase was open: name -> (start, end), in order.
        self.phases: dict[str, list[tuple[int, int]]] = {}
        self._times: list[int] = []
        self._places: list[LaunchPlace] = []
        stack: list[tuple[int, LaunchPlace]] = []
        for start, end, name in _nested(ranges):
            self._close(stack, until=start)
            end, outer = (min(end, stack[-1][0]), stack[-1][1]) if stack else (end, NOWHERE)
            inner = _inside(outer, name)
            self._count(name, start, end, is_new_phase=inner.phase != outer.phase)
            stack.append((end, inner))
            self._mark(start, inner)
        self._close(stack, until=_NEVER)

    def at(self, moment: int) -> LaunchPlace:
        """The place at a moment; a range holds its first moment and not its last."""
        found = bisect_right(self._times, moment) - 1
        return self._places[found] if found >= 0 else NOWHERE

    def _count(self, name: str, start: int, end: int, *, is_new_phase: bool) -> None:
        self.steps += bool(STEP.fullmatch(name.lower().strip()))
        if is_new_phase:
            self.phases.setdefault(phase_of(name) or "", []).append((start, end))

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


def _nested(ranges: Iterable[tuple[int, int | None, str]]) -> list[tuple[int, int, str]]:
    """Outer ranges before the inner ones that begin with them."""
    open_ended = ((start, _NEVER if end is None else end, name) for start, end, name in ranges)
    return sorted(open_ended, key=lambda item: (item[0], -item[1]))


def phase_of(name: str) -> str | None:
    """The phase that a range of this name is, if it is one."""
    plain = name.lower().strip()
    return next((phase for phase, pattern in PHASES.items() if pattern.fullmatch(plain)), None)


def _inside(outer: LaunchPlace, name: str) -> LaunchPlace:
    """The place within a range of this name."""
    phase = phase_of(name)
    if phase:
        return LaunchPlace(phase=phase)
    if STEP.fullmatch(name.lower().strip()):
        return LaunchPlace(phase=outer.phase, scope=outer.scope)
    operator = _OPERATOR.fullmatch(name)
    if operator:
        return LaunchPlace(phase=outer.phase, scope=outer.scope, operator=operator["name"])
    return LaunchPlace(phase=outer.phase, scope=name)
