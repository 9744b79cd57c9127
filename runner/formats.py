"""Numbers, bytes, times and rates as a person reads them, the same in the terminal and on the pages; and untrusted text
made harmless: characters that move a cursor, name a window or reverse a line become visible.

>>> format_bytes(1.5 * 2**30), format_duration(200), format_quantity(1.24e12, "FLOP"), format_number(1234.5)
('1.50 GiB', '3 min', '1.24 TFLOP', '1,230')

Standard library only.
"""

import math
import re
import unicodedata
from collections.abc import Sequence

#: The prefixes of large numbers, the largest first.
SI_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def format_number(value: float, *, digits: int = 3) -> str:
    """Returns so many significant digits, without exponent: 0.0123, 4.56, 78.9, 1,230; under 0.0001 with: 5.71e-07."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.{max(0, digits - 1 - math.floor(math.log10(abs(rounded))))}f}"


def format_measured(value: float, low: float, high: float) -> tuple[str, str]:
    """Returns a number and its interval: `1.25` and `1.22–1.27`. Where three digits do not tell the number from both
    ends, or an end of a ratio from 1, all have four: `1,049` and `1,048–1,051`; ends that are equal even so are rounded
    away from each other."""
    words, least, most = (format_number(number) for number in (value, low, high))
    if low < high and {words, "1.00"} & {least, most}:
        words, least, most = (format_number(number, digits=4) for number in (value, low, high))
        if least == most:
            place = 10.0 ** (math.floor(math.log10(abs(high))) - 3)
            ends = math.floor(low / place) * place, math.ceil(high / place) * place
            least, most = (format_number(end, digits=4) for end in ends)
    return words, f"{least}–{most}"


def format_ms(milliseconds: float) -> str:
    """Returns milliseconds with three digits: `12.3 ms`."""
    return f"{format_number(milliseconds)} ms"


def unit_for(sizes: Sequence[float]) -> tuple[int, str]:
    """Returns the bytes in the unit that suits the largest size, and the unit's name."""
    largest = max(sizes, default=0)
    return next((unit for unit in _UNITS if largest >= unit[0]), (1, "bytes"))


def format_bytes(size: float) -> str:
    """Returns bytes with three digits and a binary prefix: `1.50 GiB`."""
    factor, unit = unit_for([abs(size)])
    return f"{format_number(size / factor)} {unit}" if factor > 1 else f"{size:,.0f} {unit}"


def format_duration(seconds: float) -> str:
    """Returns seconds in the unit a person would say: `42 s`, `3 min`, `1 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def format_quantity(number: float, unit: str) -> str:
    """Returns a number with an SI prefix: `1.24 TFLOP`."""
    factor, prefix = next((step for step in SI_PREFIXES if abs(number) >= step[0]), (1.0, ""))
    return f"{format_number(number / factor)} {prefix}{unit}"


def format_share(share: float) -> str:
    """Returns a share in whole percent: `63%`; more than nothing is never `0%`."""
    return "under 1%" if 0 < share < 0.005 else f"{share:z.0%}"


def format_percent(share: float) -> str:
    """Returns a share in percent with three digits: `1.25%`."""
    return f"{'−' if share < 0 else ''}{format_number(abs(100 * share))}%"


def format_count(number: int, noun: str) -> str:
    """Returns a number with its noun: `1 cell`, `2,000 cells`, `3 processes`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "es" if noun.endswith("s") else "s")


def format_calls(calls: float) -> str:
    """Returns a number of calls, which need not be whole where it is a mean over steps."""
    return f"{calls:,.0f}" if abs(calls - round(calls)) < 0.05 else f"{calls:,.1f}"


def format_list(parts: Sequence[str]) -> str:
    """Returns the parts as a list within a sentence: `a, b and c`."""
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last


def cut_text(text: str, *, longest: int = 80) -> str:
    """Returns the text, or its beginning and an ellipsis where it has more letters than `longest`."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def format_tokens(context: int) -> str:
    """Returns `1,024 tokens`; nothing for a model whose samples have no length."""
    return f"{context:,} tokens" if context else ""


def at_tokens(context: int) -> str:
    """Returns ` at 1,024 tokens`, to follow a model's name; nothing for one whose samples have no length."""
    return f" at {format_tokens(context)}" if context else ""


def join_parts(*parts: str) -> str:
    """Returns the parts that are not empty, with dots between them."""
    return " · ".join(part for part in parts if part)


def within_block(path: str | None) -> str:
    """Returns the path of a module within its repeated block: `attention.query` for `blocks.0.attention.query`."""
    found = re.search(r"(?:^|\.)\d+\.(.*)", path or "")
    return found[1] if found else ""


#: Joiners belong to words and emoji, and do no harm.
_JOINERS = ("\u200c", "\u200d")


def visible(text: str) -> str:
    """Returns the text on one line, with as many characters as before."""
    return text if text.isascii() and text.isprintable() else "".join(map(_replace, text))


def _replace(character: str) -> str:
    if character < " ":
        return chr(0x2400 + ord(character))
    if character == "\x7f":
        return "␡"
    hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _JOINERS
    return "�" if hidden else character
