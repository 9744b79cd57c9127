"""Audits rows, alone and together: finds the reasons not to trust them, from which their grades follow.

    findings = judge(row, RowContext(step_ms=[12.9, 12.1, 12.2, ...], telemetry=[...]));  grade(findings)  ->  "B"
    judge_together([(row, seen), (other, other_seen)])  ->  {row.cell_id: [Finding(code="launch_bound", …)]}

Each rule is one function that says one sentence, with the numbers it rests on. A rule without its numbers (a published
table keeps no samples) says nothing: no finding does not mean no fault. Rules about one row are in `time_rules` and
`row_rules`; those here compare rows of one run and round that have the same effort and differ in one axis alone: time
that does not grow with the work, options without effect. Limits: cells of different runs are not compared.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from operator import attrgetter
from uuid import UUID

from runner.analysis.audit.findings import RowContext, Rule, fault, note
from runner.analysis.audit.row_rules import ATTENTION_RULES, BYTE_RULES, LOST_RULES, MEMORY_RULES, STEP_RULES
from runner.analysis.audit.time_rules import TIME_RULES, shared_gpu
from runner.formats import format_ms, format_number
from runner.results.findings import Audited, Finding
from runner.schema import AttentionRow, MemoryRow, Phase, StepRow, TimedRow

#: The rules for rows that are ok.
RULES: Mapping[type[Audited], Sequence[Rule]] = {
    StepRow: (*STEP_RULES, *TIME_RULES, *BYTE_RULES),
    AttentionRow: (*ATTENTION_RULES, *TIME_RULES, *BYTE_RULES),
    MemoryRow: (*MEMORY_RULES, shared_gpu, *BYTE_RULES),
}


def judge(row: Audited, seen: RowContext) -> list[Finding]:
    """Returns the findings of a row."""
    rules = {"ok": RULES[type(row)], "oom": LOST_RULES}.get(row.status, ())
    return [finding for rule in rules for finding in rule(row, seen)]


Known = tuple[Audited, RowContext]
Found = Iterator[tuple[UUID, Finding]]
PairRule = Callable[[Sequence[Known]], Found]

#: Time that grows by less than this share while the work doubles does not depend on the work.
FLAT = 0.10
#: The longest that a CPU takes to start the operations of one block, some hundreds of about 10 µs each (ms).
CPU_BLOCK_MS = 5.0
#: Two ways that differ by less than this share, in forward and in backward, took the same time.
SAME = 0.01
#: Bytes that differ by less than this share are the same but for rounding.
SAME_BYTES = 1e-4
#: Bytes this close to their prediction are as they should be.
EXPECTED = 0.02
#: Fields in which partners may also differ, because an eager cell has no compiler's cache.
_WITH: Mapping[str, tuple[str, ...]] = {"backend": ("compile_cache",)}
HALF = ("bf16", "fp16")
_BOTH: tuple[Phase, ...] = ("forward", "backward")


def judge_together(known: Sequence[Known]) -> dict[UUID, list[Finding]]:
    """Returns the findings by row, for rows that have any."""
    found: dict[UUID, list[Finding]] = defaultdict(list)
    for rule in PAIR_RULES:
        for cell_id, finding in rule(known):
            if finding.code not in {item.code for item in found[cell_id]}:
                found[cell_id].append(finding)
    return dict(found)


def launch_bound(known: Sequence[Known]) -> Found:
    """Finds rows that take the same time for twice the work, so that kernel launches set it, unless the row says that
    the device does. The finding names both ends of the flat stretch."""
    for axis, words in (("context", "context"), ("seq_len", "sequence length"), ("batch", "batch")):
        for family in _group_by_axis(known, axis):
            waiting = [(row, seen) for row, seen in family if not _is_computing(row, seen)]
            timed = [(getattr(row, axis), time, row.cell_id) for row, seen in waiting if (time := _whole_ms(seen))]
            for size, time, cell_id in timed:
                ends = [sorted([(size, time), (other, other_ms)]) for other, other_ms, _ in timed]
                flat = [(low, high) for low, high in ends if high[0] >= 2 * low[0] and high[1] <= low[1] * (1 + FLAT)]
                if flat:
                    low, high = max(flat, key=lambda ends: ends[1][0] - ends[0][0])
                    sentence = (
                        f"With a {words} of {low[0]:,} it takes {format_ms(low[1])} and with {high[0]:,} "
                        f"{format_ms(high[1])}: launch-bound, starting the operations sets the time. That does not "
                        f"make a larger {words} free."
                    )
                    evidence = {"small": low[0], "large": high[0], "small_ms": low[1], "large_ms": high[1]}
                    yield cell_id, note("launch_bound", sentence, **evidence)


def _is_computing(row: Audited, seen: RowContext) -> bool:
    """Returns whether work sets the time: the device is known to, or a step on a CPU takes longer than starting the
    operations of its blocks can, as where AdamW passes over many parameters whatever the length."""
    if isinstance(row, TimedRow) and row.bound == "device":
        return True
    blocks = (row.layers or 1) if isinstance(row, StepRow) else 1
    is_cpu = seen.run is not None and seen.run.device == "cpu"
    return is_cpu and (_whole_ms(seen) or 0.0) > CPU_BLOCK_MS * (blocks + 1)


def no_effect(known: Sequence[Known]) -> Found:
    """Finds options without effect: half precision with float32's bytes, or a variant with the baseline's time."""
    for axis, baseline in (("precision", "fp32"), ("backend", "eager")):
        for family in _group_by_axis(known, axis):
            bases = [item for item in family if getattr(item[0], axis) == baseline][:1]
            for (base, of_base), (row, seen) in product(bases, family):
                variant: str = getattr(row, axis)
                if variant == baseline:
                    continue
                narrow, expected = _activation_bytes(row)
                if same := judge_bytes(variant, narrow, _activation_bytes(base)[0], expected=expected):
                    yield row.cell_id, same
                elif times := _same_time(of_base, seen):
                    sentence = (
                        f"{variant} takes as long as {baseline} ({times}): it had no effect, or something else sets "
                        "the time."
                    )
                    yield row.cell_id, note("no_effect", sentence, variant=variant)


def judge_bytes(
    precision: str, narrow: float | None, wide: float | None, *, expected: float | None = None
) -> Finding | None:
    """Finds half precision that takes the bytes of float32, unless these are expected: sdpa-math computes in float32
    for every input."""
    if precision not in HALF or not wide or not narrow or abs(narrow / wide - 1) > SAME_BYTES:
        return None
    if expected and abs(narrow / expected - 1) <= EXPECTED:
        return None
    sentence = f"{precision} and fp32 both take {narrow:,.0f} bytes: {precision} was never entered."
    return fault("no_effect", sentence, same_bytes=narrow)


def _activation_bytes(row: Audited) -> tuple[int | None, int | None]:
    """Returns measured and predicted bytes: those saved for backward or, where these are unknown or zero, the peak. The
    peak does not count where the optimizer step sets it, whose bytes do not depend on the precision."""
    if isinstance(row, AttentionRow) and row.saved_bytes:
        return row.saved_bytes, row.predicted_saved_bytes
    if isinstance(row, MemoryRow) and row.saved_bytes:
        return row.saved_bytes, None
    of_step = isinstance(row, StepRow) and row.mode == "train"
    if of_step or (isinstance(row, MemoryRow) and row.peak_phase == "optimizer"):
        return None, None
    return row.peak_allocated_bytes, row.predicted_peak_bytes


def _same_time(base: RowContext, other: RowContext) -> str | None:
    """Returns the times if forward and backward both agree, because one of them may agree by chance."""
    said = []
    for phase in _BOTH:
        first, second = base.typical_ms(phase), other.typical_ms(phase)
        if not first or not second or abs(second / first - 1) > SAME:
            return None
        said.append(f"{phase} {format_number(second)} against {format_ms(first)}")
    return ", ".join(said)


def _whole_ms(seen: RowContext) -> float | None:
    """Returns the time of the widest phase that is known."""
    both = (seen.typical_ms("forward"), seen.typical_ms("backward"))
    summed = (both[0] or 0.0) + (both[1] or 0.0)
    return seen.typical_ms("step") or seen.typical_ms("forward_backward") or summed or None


def _group_by_axis(known: Sequence[Known], axis: str) -> Iterator[list[Known]]:
    """Returns groups of rows with results that differ in the axis alone."""
    found: Mapping[tuple[object, ...], list[Known]] = defaultdict(list)
    names = {kind: kind.names() for kind in {type(row) for row, _ in known}}
    rest = {
        kind: attrgetter("run_id", "round", *(name for name in of if name not in (axis, *_WITH.get(axis, ()))))
        for kind, of in names.items()
        if axis in of
    }
    for row, seen in known:
        if row.status == "ok" and type(row) in rest:
            found[(type(row), *rest[type(row)](row))].append((row, seen))
    yield from (family for family in found.values() if len(family) > 1)


PAIR_RULES: tuple[PairRule, ...] = (launch_bound, no_effect)
