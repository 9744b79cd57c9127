"""The sentences of the page Trust, from rows that the audit has looked at.

words = answer(rows, groups, among="on this machine")
words = say_canary("small · 512 · train", canary)
"""

import math
from collections import Counter
from collections.abc import Sequence

from runner.analysis.audit.drift import Canary
from runner.analysis.audit.findings import Grade
from runner.analysis.audit.report import AuditedRow, FindingGroup
from runner.analysis.statistics import resolvable
from runner.formats import format_duration, format_ms, format_percent
from runner.store.queries.noise import KnownNoise

#: So many of the most frequent findings are named.
_NAMED = 3


def answer(rows: Sequence[AuditedRow], groups: Sequence[FindingGroup], *, among: str) -> str:
    """Says how many rows can be trusted, how many are in doubt or wrong, and why most of these are."""
    counts: Counter[Grade | None] = Counter(row.grade for row in rows)
    graded = sum(number for grade, number in counts.items() if grade)
    rest = f" {_count(counts[None])} no result, and so no grade." if counts[None] else ""
    if not graded:
        return f"No row {among} has a result to grade.{rest}"
    trusted = counts["A"] + counts["B"]
    if trusted == graded:
        start, them = (f"**All {graded:,}** graded rows", "them") if graded > 1 else ("**The only** graded row", "it")
        can = (
            f"the audit has no more than notes on {them}" if counts["B"] else f"the audit found nothing against {them}"
        )
        return f"{start} {among} can be trusted: {can}.{rest}"
    parts = [f"**{trusted:,} of {graded:,}** graded rows {among} can be trusted"]
    parts += [f"**{counts['C']:,}** {_be(counts['C'])} in doubt"] if counts["C"] else []
    wrong = "does not mean what it says" if counts["D"] == 1 else "do not mean what they say"
    parts += [f"**{counts['D']:,}** {wrong}"] if counts["D"] else []
    return f"{_list(parts)}. {_name_reasons(groups)}{rest}"


def name_code(code: str) -> str:
    """Returns a finding's code in words: `wide interval`."""
    return code.replace("_", " ")


def _name_reasons(groups: Sequence[FindingGroup]) -> str:
    """Names the most frequent findings that cost rows their grade."""
    against = sorted((group for group in groups if group.severity != "note"), key=lambda group: -len(group.found))
    named = [f"{name_code(group.code)} ({len(group.found):,})" for group in against[:_NAMED]]
    return f"Most frequent: {_list(named)}." if named else ""


def _list(parts: Sequence[str]) -> str:
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last


def _be(number: int) -> str:
    return "is" if number == 1 else "are"


def _count(number: int) -> str:
    return f"{number:,} more {'row has' if number == 1 else 'rows have'}"


# ------------------------------------------------------------------------------------------------ noise and the canary


def name_kind(item: KnownNoise) -> str:
    """Returns a kind of cells in words: `host-bound steps`."""
    what = "attention" if item.table == "attention" else item.table
    return f"{item.kind.bound}-bound {what}" if item.kind.bound else f"{what} (bound not known)"


def say_resolvable(known: Sequence[KnownNoise], *, machine: str, rounds: int) -> str:
    """Says of each kind of cells on one machine, as waited for, which differences one pair can resolve."""
    parts = [
        f"**{name_kind(item)}** differ by {format_percent(item.noise.std)} from process to process "
        f"({item.noise.cells} repeated {'cell' if item.noise.cells == 1 else 'cells'}): one process each can resolve "
        f"{_format_resolvable(item, rounds=1)}, {rounds} processes each {_format_resolvable(item, rounds=rounds)}"
        for item in known
        if item.kind.clock == "step"
    ]
    if not parts:
        return (
            f"No cell was measured in several processes on {machine}: what varies between them is not known there, and "
            "no difference between cells measured once is significant."
        )
    return f"On {machine}, waited for, {'; '.join(parts)}."


def _format_resolvable(item: KnownNoise, *, rounds: int) -> str:
    least = resolvable(item.noise, rounds=rounds)
    return format_percent(least) if math.isfinite(least) else "no difference"


def say_canary(name: str, canary: Canary) -> str:
    """Says how much the canary's time changed from its first process to the last, and what that says of the machine."""
    rounds, started = canary.cell.rounds, canary.cell.started
    first, last = rounds[0].time.median_ms, rounds[-1].time.median_ms
    seconds = (started[-1] - started[0]).total_seconds()
    answer = (
        f"**{name}** took {format_ms(first)} in the first of {len(rounds)} processes and {format_ms(last)} in the "
        f"last, {format_duration(seconds)} later: **{format_percent(last / first - 1, signed=True)}**."
    )
    if canary.drifts is None:
        return f"{answer} Whether that exceeds the noise is not known."
    if not canary.drifts:
        return f"{answer} No two of its processes differ by more than the noise."
    changes = " and ".join(drift.change for drift in canary.drifts)
    return f"{answer} It went {changes}, by more than the noise: cells measured then have a finding."
