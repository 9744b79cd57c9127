"""Formats numbers and words for the tables of a report.

>>> format_spread(12.345, 0.0123), format_estimate(12.05, 11.91, 12.22), format_mib(3 * 2**20)
('12.345 ± 0.012', '12.05 [11.91, 12.22]', '3.00')

Standard library, the schema and the read model only.
"""

import math
import re
from collections.abc import Iterable

from runner.formats import cut_text, format_number
from runner.results import Result
from runner.schema.titles import describe_status, title

#: The text of an unknown or missing value in a table.
NONE = "–"
#: The most lines of a table; a file may hold thousands of cells.
MAX_LINES = 200
#: The most digits behind the point.
_MAX_DECIMALS = 4
#: The letters of a failed cell's message that are shown, as far as whole sentences fit.
_REASON = 80
#: The most titles that a sentence lists.
_NAMED = 3


def _count_decimals(width: float) -> int:
    """Returns the digits behind the point that show two digits of a width."""
    return min(_MAX_DECIMALS, max(0, 1 - math.floor(math.log10(width)))) if width > 0 else _MAX_DECIMALS


def format_spread(mean: float | None, std: float | None) -> str:
    """Returns a mean with its standard deviation, shown to two digits: `12.3 ± 4.5`."""
    if mean is None:
        return NONE
    if std is None:
        return format_number(mean)
    digits = _count_decimals(std)
    written = f"{std:,.{digits}f}"
    return f"{mean:,.{digits}f} ± {written if float(written.replace(',', '')) or not std else format_number(std)}"


def format_estimate(value: float | None, low: float | None, high: float | None) -> str:
    """Returns a value with its interval, so that two digits of half its width are shown: `12.3 [11.9, 12.7]`."""
    if value is None:
        return NONE
    if low is None or high is None:
        return f"{format_number(value)} [unknown]"
    digits = _count_decimals((high - low) / 2)
    return f"{value:,.{digits}f} [{low:,.{digits}f}, {high:,.{digits}f}]"


def format_optional(value: float | None) -> str:
    """Returns a number with three digits, or a dash."""
    return NONE if value is None else format_number(value)


def format_mib(size: float | None) -> str:
    """Returns bytes in MiB: three digits, or one behind the point."""
    if size is None:
        return NONE
    mib = size / 2**20
    return f"{mib:,.1f}" if mib >= 100 else format_number(mib)


def shorten_reason(message: str) -> str:
    """Returns the first sentences of a failed cell's message, as many as fit into _REASON letters. CUDA's goes on with
    the state of the allocator, which differs from cell to cell."""
    kept = ""
    for sentence in re.split(r"(?<=\.)\s+(?=[A-Z])", message.strip()):
        if kept and len(kept) + len(sentence) > _REASON:
            break
        kept = f"{kept} {sentence}".strip()
    return cut_text(kept.rstrip("."), longest=2 * _REASON)


def describe_failures(results: Iterable[Result]) -> str:
    """Says why cells have no result, those with one reason together; empty where all have one."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for result in results:
        if result.status != "ok":
            reason = shorten_reason(result.message or "")
            reasons.setdefault((describe_status(result), reason), []).append(title(result.cell))
    sentences = []
    for (status, message), titles in reasons.items():
        more = f" and {len(titles) - _NAMED} more" if len(titles) > _NAMED else ""
        why = f" ({message})" if message else ""
        sentences.append(f"{status[0].upper()}{status[1:]}{why}: {'; '.join(titles[:_NAMED])}{more}.")
    return " ".join(sentences)
