"""The sentences of the page Trust, from rows that the audit has looked at.

words = answer(rows, among="on this machine")
"""

from collections import Counter
from collections.abc import Sequence

from runner.analysis.audit.findings import Grade
from runner.analysis.audit.report import AuditedRow, FindingGroup

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
