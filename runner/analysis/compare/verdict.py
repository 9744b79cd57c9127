"""Is B faster than A, by how much, and how certain is it? Over pairs of cells that differ only in what is compared.

    verdict = judge("steps", pairs, sides=(a, b), phase="step")
    print(verdict.mean, verdict.outcomes, [pair.ratio for pair in select_movers(verdict)])

A ratio is A over B: above 1, B is better, which means faster or, for peaks of memory, smaller. A pair is better or
worse when the interval that decides (`statistics.confidence`) excludes 1 and the ratio is more than 1% away from 1,
else undecided. Peaks have no interval; for them the 1% alone decides. Pairs that cannot be compared are left out with
the reason. Limits: see `statistics` for what an interval does not cover.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal
from uuid import UUID

from runner.analysis.compare.host_bound import HostShare
from runner.analysis.compare.pairs import LeftOut, Pair, describe_effort_difference
from runner.analysis.statistics import MIN_SAMPLES, Outcome, Ratio, ratio
from runner.results import Estimate
from runner.schema import TABLES, AttentionCell, Bound, MemoryCell, StepCell

Kind = Literal["run", "label", "machine", "commit", "precision", "backend"]
Compared = Literal["steps", "attention", "memory"]
ComparedPhase = Literal["step", "forward", "backward"]

_SAME_MACHINE = " on the same machine with the same torch"
_STATUS_WORDS = {"oom": "out of memory", "timeout": "timed out", "error": "failed"}


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two compared sides: its rows and its name; for a run, also when it started."""

    kind: Kind
    value: str
    title: str
    when: str = ""

    @property
    def spec(self) -> str:
        """The side as the command line takes it."""
        return f"{self.kind}:{self.value}"


@dataclass(frozen=True, kw_only=True)
class SideResult:
    """One cell on one side, over its rounds: its `time` in the phase, the number of `samples` (none for peaks), what
    sets that time (`bound`) and the `device` time, where known. `faults` are the sentences for which the audit grades
    it D."""

    cell: StepCell | AttentionCell | MemoryCell
    run_id: UUID
    cell_id: UUID
    status: str
    message: str | None = None
    time: Estimate | None = None
    device: Estimate | None = None
    bound: Bound | None = None
    samples: int = 0
    peak_bytes: int | None = None
    matmul_precision: str | None = None
    faults: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        """The time in ms, or the peak in bytes."""
        return self.time.ms if self.time else float(self.peak_bytes or 0)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """All cells of one table, paired or left out."""

    table: Compared
    sides: tuple[Side, Side]
    phase: ComparedPhase
    pairs: tuple[Pair[SideResult], ...]
    left_out: tuple[LeftOut[SideResult], ...]

    @property
    def outcomes(self) -> Counter[Outcome]:
        return Counter(pair.outcome for pair in self.pairs)

    @property
    def mean(self) -> float | None:
        """The geometric mean of all ratios, the undecided ones included."""
        if not self.pairs:
            return None
        return math.exp(statistics.fmean(math.log(pair.ratio) for pair in self.pairs))


Partners = tuple[SideResult | None, SideResult | None]


def judge(table: Compared, partners: Iterable[Partners], *, sides: tuple[Side, Side], phase: ComparedPhase) -> Verdict:
    """Returns the ratios of the cells that can be compared, and the reasons for the rest. Each of `partners` has at
    least one cell."""
    pairs: list[Pair[SideResult]] = []
    left_out: list[LeftOut[SideResult]] = []
    for a, b in partners:
        if a is None or b is None:
            missing, present = (sides[0], b) if a is None else (sides[1], a)
            assert present is not None
            place = {"commit": " on the same machine", "precision": _SAME_MACHINE, "backend": _SAME_MACHINE}.get(
                missing.kind, ""
            )
            reason, detail = f"not measured in {missing.title}", f"It has no row there{place}."
            left_out.append(LeftOut(named=present, kind="missing", reason=reason, detail=detail, base=a, other=b))
        elif objection := _find_objection(a, b, table=table, sides=sides, phase=phase):
            kind, reason, detail = objection
            left_out.append(LeftOut(named=a, kind=kind, reason=reason, detail=detail, base=a, other=b))
        else:
            pairs.append(Pair(base=a, other=b, **vars(_compute_ratio(a, b))))
    return Verdict(table=table, sides=sides, phase=phase, pairs=tuple(pairs), left_out=tuple(left_out))


def _compute_ratio(a: SideResult, b: SideResult) -> Ratio:
    if a.peak_bytes and b.peak_bytes:
        return Ratio(ratio=a.peak_bytes / b.peak_bytes, decided=True)
    assert a.time
    assert b.time
    return ratio(a.time, b.time)


def compared_values(pair: Pair[SideResult]) -> tuple[float, float]:
    """Returns the two values of which the pair is the ratio: times in ms, or peaks in bytes."""
    return pair.undisturbed or (pair.base.value, pair.other.value)


def host_share(pair: Pair[SideResult]) -> HostShare:
    """Returns the bounds of the sides of a pair, and the ratio of their device times."""
    a, b = pair.base, pair.other
    return HostShare(bounds=(a.bound, b.bound), device=ratio(a.device, b.device) if a.device and b.device else None)


def _find_objection(
    a: SideResult, b: SideResult, *, table: Compared, sides: tuple[Side, Side], phase: ComparedPhase
) -> tuple[Literal["unlike", "failed", "doubtful"], str, str] | None:
    """Returns why two cells cannot be compared: the kind of reason, briefly and in full; None where they can."""
    if unlike := describe_effort_difference(a.cell, b.cell):
        return "unlike", "measured in another way", f"With {unlike}, {sides[0].title} against {sides[1].title}."
    both = ((a, sides[0].title), (b, sides[1].title))
    if failed := [(cell, name) for cell, name in both if cell.status != "ok"]:
        where = _name_sides([(_describe_status(cell), name) for cell, name in failed])
        return "failed", where, _join_sentences([cell.message for cell, _ in failed])
    timed = TABLES[table].timed
    if not timed and (silent := [("no peak", name) for cell, name in both if not cell.peak_bytes]):
        return "doubtful", _name_sides(silent), "The row has no peak of allocated bytes."
    if timed and not a.time and not b.time and phase != "step":
        return "unlike", f"no {phase} pass", f"Its mode has no phase {phase}."
    read_back = {a.matmul_precision, b.matmul_precision} - {None}
    if a.cell.precision == b.cell.precision and len(read_back) == 2:
        meant = f"{a.cell.precision} was computed as {a.matmul_precision} and as {b.matmul_precision}."
        return "unlike", "not the same precision", meant
    if faulty := [(cell, name) for cell, name in both if cell.faults]:
        where = _name_sides([("graded D", name) for _, name in faulty])
        return "doubtful", where, _join_sentences(chain(*(cell.faults for cell, _ in faulty)))
    if timed and (few := [("too few samples", name) for cell, name in both if cell.samples < MIN_SAMPLES]):
        detail = f"{a.samples} and {b.samples} samples; an interval needs {MIN_SAMPLES} on each side."
        return "doubtful", _name_sides(few), detail
    return None


def _describe_status(cell: SideResult) -> str:
    return _STATUS_WORDS.get(cell.status, cell.status)


def _name_sides(said: Sequence[tuple[str, str]]) -> str:
    """Returns `out of memory in before, crashed in after`, or `out of memory in both`."""
    if len(said) == 2 and said[0][0] == said[1][0]:
        return f"{said[0][0]} in both"
    return ", ".join(f"{what} in {name}" for what, name in said)


def _join_sentences(sentences: Iterable[str | None]) -> str:
    return " ".join(dict.fromkeys(" ".join(sentence.split()) for sentence in sentences if sentence))


def select_movers(verdict: Verdict) -> list[Pair[SideResult]]:
    """Returns the pairs that are better or worse, largest change first."""
    moved = [pair for pair in verdict.pairs if pair.outcome != "same"]
    return sorted(moved, key=lambda pair: -abs(math.log(pair.ratio)))


def select_regressions(verdict: Verdict, *, threshold: float) -> list[Pair[SideResult]]:
    """Returns the pairs that are worse by more than `threshold` (0.05: B takes over 1.05 times A's), worst first."""
    return [pair for pair in select_movers(verdict) if pair.outcome == "worse" and 1 / pair.ratio > 1 + threshold]


def lost(verdict: Verdict) -> list[LeftOut[SideResult]]:
    """Returns the cells that succeeded in A and failed in B: out of memory, timeout, crash or error."""
    return [
        item
        for item in verdict.left_out
        if item.base and item.other and item.base.status == "ok" and item.other.status not in ("ok", "skipped")
    ]
