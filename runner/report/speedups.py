"""Tables and sentences of speedups: pairs of cells that differ in one thing, with the ratios of their phases.

    table = speedup_table({"bf16": compared}, baseline="fp32", notes=notes, without=("precision",))
    describe_speedups(compared, baseline="fp32", variant="bf16")

Pairs, ratios and intervals are those of `runner.analysis.compare`. A sentence says faster or slower only of pairs whose
interval for that excludes 1 (`analysis.statistics.confidence`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Generic, TypeVar
from uuid import UUID

from runner.analysis.compare.host_bound import describe_shares
from runner.analysis.compare.pairs import LeftOut, Pair, describe_unusual_pairs
from runner.analysis.compare.speedups import Speedups, host_share
from runner.analysis.compare.verdict_text import DECIDING_INTERVAL, TIMED, with_basis
from runner.answers.keys import Keys, make_keys
from runner.formats import at_tokens, format_count, format_number
from runner.report.document import Line, ReportTable
from runner.report.footnotes import Footnotes
from runner.report.text import NONE, format_estimate, format_optional
from runner.results import StepResult, TimedResult
from runner.schema import Phase
from runner.schema.titles import describe_status

T = TypeVar("T", bound=TimedResult)
_PHASES: Mapping[Phase, str] = {"forward": "Forward (×)", "backward": "Backward (×)", "step": "Whole (×)"}
_NOTE = (
    "Times are medians in ms; a ratio is the baseline's time over the other's, above 1× the other is faster, with "
    "its 95% interval, which holds for the next process on this machine. Verdict: the "
    f"{DECIDING_INTERVAL} excludes 1× and the ratio is more than 1% away from it; everything else is undecided."
)
_DEVICE = " The device ratio is of what the GPU alone needs, where the host sets a time."
_UNKNOWN = " [unknown]: no cell of the kind was repeated, so that it is not known how much processes differ."


@dataclass(frozen=True, kw_only=True)
class _Compared(Generic[T]):
    """The pairs of one baseline cell with one variant, by phase."""

    variant: str
    phases: Mapping[Phase, Pair[T]]

    @property
    def first(self) -> Pair[T]:
        return next(iter(self.phases.values()))


def sides_of(compared: Mapping[str, Speedups[T]]) -> list[T]:
    """Returns every cell that some pair has, once, and those whose pair failed."""
    pairs = [side for each in compared.values() for pair in each.speedups for side in (pair.base, pair.other)]
    lost = [side for each in compared.values() for item in each.left_out for side in (item.base, item.other) if side]
    return list({side.cell_id: side for side in (*pairs, *lost)}.values())


def speedup_table(
    compared: Mapping[str, Speedups[T]], *, baseline: str, notes: Footnotes, without: Sequence[str]
) -> ReportTable:
    """Returns one line a pair and variant, and one for each pair with a failed side. Pairs agree in all fields but
    `without`."""
    gathered = [one for variant, each in compared.items() for one in _gather(variant, each)]
    failed = [(variant, item) for variant, each in compared.items() for item in each.left_out if item.kind == "failed"]
    named = [one.first.named.cell for one in gathered] + [item.named.cell for _, item in failed]
    keys, several = make_keys(named, without=without), len(compared) > 1
    device = any(host_share(one.phases["step"]).sides for one in gathered if "step" in one.phases)
    variant = "variant" if several else next(iter(compared), "variant")
    lines = [_make_line(one, keys, notes, several=several, device=device) for one in gathered]
    lines += [_make_failed(name, item, keys, several=several, device=device) for name, item in failed]
    pairs = [pair for one in gathered for pair in one.phases.values()]
    unknown = any(pair.low is None for pair in pairs)
    return ReportTable(
        caption=f"{'Variants' if several else variant} against {baseline}: {keys.shared}",
        headings=(
            *keys.headings,
            *(["Variant"] if several else []),
            f"{baseline} (ms)",
            f"{variant} (ms)",
            *_PHASES.values(),
            *(["Device (×)"] if device else []),
            "Verdict",
        ),
        lines=tuple(lines),
        note=with_basis(_NOTE, pairs) + (_DEVICE if device else "") + (_UNKNOWN if unknown else ""),
    )


def _gather(variant: str, compared: Speedups[T]) -> list[_Compared[T]]:
    found: dict[tuple[UUID, UUID], dict[Phase, Pair[T]]] = {}
    for pair in compared.speedups:
        found.setdefault((pair.base.cell_id, pair.other.cell_id), {})[pair.phase] = pair
    return [_Compared(variant=variant, phases=phases) for phases in found.values()]


def _make_line(one: _Compared[T], keys: Keys, notes: Footnotes, *, several: bool, device: bool) -> Line:
    pair = one.phases.get("step", one.first)
    share = host_share(pair)
    times = [side.times[pair.phase].median_ms if pair.phase in side.times else None for side in (pair.base, pair.other)]
    ratios = [
        format_estimate(found.ratio, found.low, found.high) if (found := one.phases.get(phase)) else NONE
        for phase in _PHASES
    ]
    verdict = "noise unknown" if pair.low is None else TIMED[pair.outcome]
    return Line(
        values=(
            *keys.values(pair.named.cell),
            *([one.variant] if several else []),
            *map(format_optional, times),
            *ratios,
            *([format_optional(share.device.ratio if share.sides and share.device else None)] if device else []),
            verdict,
        ),
        marks=notes.marks(pair.base.cell_id, pair.other.cell_id),
    )


def _make_failed(variant: str, item: LeftOut[T], keys: Keys, *, several: bool, device: bool) -> Line:
    """Returns the line of a pair without a ratio: each side's time or how it ended."""
    sides = []
    for side in (item.base, item.other):
        time = side.times.get("step") if side else None
        sides.append(format_optional(time.median_ms) if time else describe_status(side) if side else NONE)
    rest = (NONE,) * (len(_PHASES) + device)
    return Line(values=(*keys.values(item.named.cell), *([variant] if several else []), *sides, *rest, "no ratio"))


def describe_speedups(compared: Speedups[T], *, baseline: str, variant: str) -> str:
    """Says how the whole step of one variant compares with the baseline, as far as the intervals allow."""
    pairs = [pair for pair in compared.speedups if pair.phase == "step"]
    if not pairs:
        reasons = Counter(item.reason for item in compared.left_out if item.kind in ("failed", "unlike"))
        why = f": {reasons.most_common(1)[0][0]}" if reasons else ""
        return f"{baseline} and {variant} cannot be compared{why}."
    host = describe_shares([host_share(pair) for pair in pairs])
    unusual = describe_unusual_pairs([(pair.base.cell, pair.other.cell) for pair in pairs])
    return " ".join(words for words in (_judge(pairs, baseline=baseline, variant=variant), unusual, host) if words)


def _judge(pairs: Sequence[Pair[T]], *, baseline: str, variant: str) -> str:
    ratios = [pair.ratio for pair in pairs]
    if len(pairs) == 1:
        return _judge_one(pairs[0], baseline=baseline, variant=variant)
    outcomes = Counter(pair.outcome for pair in pairs)
    spread = f"{format_number(min(ratios))}× to {format_number(max(ratios))}×"
    mean = f"{format_number(geometric_mean(ratios))}× in the geometric mean of {len(pairs)} pairs, {spread}"
    if outcomes["better"] == len(pairs):
        return f"{variant} is significantly faster than {baseline} in every pair: {mean}."
    counts = ", ".join(f"{outcomes[outcome]} {words}" for outcome, words in TIMED.items() if outcomes[outcome])
    unknown = sum(pair.low is None for pair in pairs)
    known = f"; {format_count(unknown, 'pair')} without an interval: measured in too few processes" if unknown else ""
    return f"{variant} against {baseline}: {mean}; {counts}{known}."


def _judge_one(pair: Pair[T], *, baseline: str, variant: str) -> str:
    if pair.low is None or pair.high is None:
        known = "how much processes differ is not known, so that it decides nothing"
        return f"{variant} against {baseline}: {format_number(pair.ratio)}× in the only pair; {known}."
    interval = f"95% interval {format_number(pair.low)}–{format_number(pair.high)}×; one pair"
    if pair.outcome == "same":
        undecided = "" if pair.low <= 1 <= pair.high else ": the interval that decides includes 1×"
        verdict = "the same within 1%" if pair.decided else f"undecided{undecided}"
        return f"{variant} against {baseline}: {format_number(pair.ratio)}× ({interval}), {verdict}."
    ratio = pair.ratio if pair.outcome == "better" else 1 / pair.ratio
    return f"{variant} is {format_number(ratio)}× {TIMED[pair.outcome]} than {baseline} (ratio {interval})."


def describe_trend(pairs: Sequence[Pair[StepResult]]) -> str:
    """Says whether the ratio of the whole step changes with the size of the model, from the smallest to the largest
    that share all else; only where their intervals do not overlap."""
    families: dict[tuple[object, ...], list[Pair[StepResult]]] = {}
    for pair in pairs:
        if pair.phase == "step" and pair.base.parameters:
            cell = pair.base.cell
            families.setdefault((cell.context, cell.batch, cell.mode, cell.backend, cell.attention), []).append(pair)
    sized = [sorted(family, key=lambda pair: pair.base.parameters or 0) for family in families.values()]
    sized = [family for family in sized if family[0].base.parameters != family[-1].base.parameters]
    if not sized:
        return ""
    family = max(sized, key=len)
    small, large = family[0], family[-1]
    ends = f"from {format_number(small.ratio)}× to {format_number(large.ratio)}×"
    span = f"{small.base.parameters or 0:,} to {large.base.parameters or 0:,} parameters"
    where = at_tokens(family[0].base.cell.context).strip()
    start = f"{f'{where}, from' if where else 'from'} {span}, the ratio goes {ends}"
    start = start[0].upper() + start[1:]
    if None in (small.low, small.high, large.low, large.high):
        return f"{start}; whether that is more than noise is not known."
    grows = (large.low or 0) > (small.high or 0)
    shrinks = (large.high or 0) < (small.low or 0)
    if grows or shrinks:
        return f"{start}: it {'grows' if grows else 'shrinks'} with the model; the two intervals do not overlap."
    return f"{start}; the intervals of the two overlap, so that no trend is shown."
