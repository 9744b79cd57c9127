"""Audits repeated figures: whether a report says the same of a cell everywhere, and rules about ratios.

    [found for rule in REPEAT_RULES for found in rule(report)]

Rows whose means a cold step explains have findings of their own and are left out. Each rule's name is its
findings' code.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

from runner.analysis.audit.findings import doubt, note
from runner.analysis.audit.published.findings import Found, PublishedFinding, touching
from runner.analysis.audit.published.phases import has_impossible_ratio
from runner.analysis.audit.published.readings import CellKey, PublishedReport, Reading, name_time
from runner.analysis.audit.published.spreads import is_uneven
from runner.formats import format_ms
from runner.results.published import PublishedFigure, Quantity

#: Profiled and unprofiled times that are this close say the same.
CLOSE = 0.05
#: Two figures of one cell that differ by more are not of one state of the machine: in one table, and between tables.
REPEATED, AGAIN = 0.05, 0.20
_PASSES: tuple[Quantity, ...] = ("forward", "backward", "forward_backward", "step")


def profiled_beside_unprofiled(report: PublishedReport) -> Found:
    groups: dict[object, list[Reading]] = defaultdict(list)
    cells = report.of("steps", "attention")
    for reading in cells if any(reading.key.is_profiled for reading in cells) else ():
        groups[reading.key.without("is_profiled")].append(reading)
    for found in groups.values():
        for reading in (r for r in found if r.key.is_profiled):
            plain = next((r for r in found if not r.key.is_profiled and r.times.keys() & reading.times.keys()), None)
            if plain is None or plain.table.table_id != reading.table.table_id:
                continue
            name = next(iter(plain.times.keys() & reading.times.keys()))
            first, second = plain.times[name].mean, reading.times[name].mean
            sentence = (
                f"{name_time(name).capitalize()} takes {format_ms(second)} under the profiler and {format_ms(first)} "
                f"without, {second / first:.3f} times, in one table: compare only what was timed alike."
            )
            make = note if abs(second / first - 1) <= CLOSE else doubt
            evidence = {"profiled_ms": second, "unprofiled_ms": first}
            yield touching([reading], make("profiled_beside_unprofiled", sentence, **evidence))


def duplicate_key(report: PublishedReport) -> Found:
    """Finds one cell twice in a table, with different figures."""
    for readings in _find_repeated(report):
        different = _differ(readings, REPEATED)
        if different:
            first, last, name = different
            sentence = (
                f"{first.words} stands in lines {first.row.line} and {last.row.line} with "
                f"{format_ms(first.times[name].mean)} and {format_ms(last.times[name].mean)} {name_time(name)}: "
                "something differed that the table does not say."
            )
            evidence = {"first_ms": first.times[name].mean, "second_ms": last.times[name].mean}
            yield touching([first, last], doubt("duplicate_key", sentence, **evidence))


def _find_repeated(report: PublishedReport) -> Iterator[Sequence[Reading]]:
    """Yields the timed readings of each cell that stands more than once in one table."""
    for readings in report.groups:
        timed = [r for r in readings if r.times] if readings[0].table.subject in ("steps", "attention") else []
        groups: dict[CellKey, list[Reading]] = defaultdict(list)
        for reading in timed if len({r.key for r in timed}) < len(timed) else ():
            groups[reading.key].append(reading)
        yield from (found for found in groups.values() if len(found) > 1)


def not_reproducible(report: PublishedReport) -> Found:
    """Finds the same cell in two tables, or after another warm-up, with another time, although neither is cold."""
    groups: dict[object, list[Reading]] = defaultdict(list)
    for reading in report.readings:
        is_sound = reading.times and not has_impossible_ratio(reading) and reading.key.shape
        if is_sound and not any(is_uneven(reading, name) for name in reading.times):
            groups[reading.key.without("warmup")].append(reading)
    for found in groups.values():
        different = _differ(found, AGAIN)
        if different and different[0].key.length:
            first, last, name = different
            if first.table is not last.table or first.key != last.key:
                yield _find_contradiction(first, last, name)
                yield _find_contradiction(last, first, name)


def _find_contradiction(here: Reading, there: Reading, name: Quantity) -> PublishedFinding:
    a, b = here.times[name].mean, there.times[name].mean
    sentence = (
        f"{here.words} takes {format_ms(a)} {name_time(name)} here and {format_ms(b)} in line {there.row.line} of "
        f"{there.table.file}, {max(a, b) / min(a, b):.2f} times: the settings do not explain it."
    )
    return touching([here], doubt("not_reproducible", sentence, here_ms=a, there_ms=b))


def _differ(found: Sequence[Reading], share: float) -> tuple[Reading, Reading, Quantity] | None:
    """Returns two readings whose times of one quantity differ by more than this share."""
    if len(found) < 2:
        return None
    for name in _PASSES:
        timed = sorted((r for r in found if name in r.times), key=lambda r: r.times[name].mean)
        least, most = (timed[0].times[name].mean, timed[-1].times[name].mean) if timed else (0.0, 0.0)
        if 0 < (1 + share) * least < most:
            first, last = sorted((timed[0], timed[-1]), key=lambda r: (r.table.file, r.row.line))
            return first, last, name
    return None


def ratio_off(report: PublishedReport) -> Found:
    """Finds a stated speedup or ratio that no two times of its row have."""
    for reading in report.readings:
        stated = [f for f in reading.figures if f.quantity in ("speedup", "ratio") and f.value]
        if not stated:
            continue
        times = [f for f in reading.row.figures if f.quantity in _PASSES and f.value and f.statistic != "std"]
        possible = list(permutations([_Printed(abs(f.value or 0.0), _find_last_digit(f), f) for f in times], 2))
        for figure in stated if possible else ():
            ratio, digit = figure.value or 0.0, _find_last_digit(figure)
            if any(_is_ratio(ratio, digit, a, b) for a, b in possible):
                continue
            a, b = min(((a.figure, b.figure) for a, b in possible), key=lambda pair: abs(_divide(*pair) - ratio))
            sentence = (
                f"{figure.heading} is {figure.text}, and no two times of the row have that ratio; the nearest is "
                f"{a.text} / {b.text} = {_divide(a, b):.3f}."
            )
            yield touching([reading], doubt("ratio_off", sentence, stated=ratio))


class _Printed(NamedTuple):
    """A figure's size, and what one unit of its last printed digit is worth."""

    size: float
    digit: float
    figure: PublishedFigure


def _is_ratio(stated: float, digit: float, above: _Printed, below: _Printed) -> bool:
    """Returns whether the two have the stated ratio, all three being rounded or cut at their last digit."""
    if below.size <= below.digit:
        return True  # rounded away: it may be anything
    least = (above.size - above.digit) / (below.size + below.digit)
    most = (above.size + above.digit) / (below.size - below.digit)
    return least - digit <= stated <= most + digit


def _divide(above: PublishedFigure, below: PublishedFigure) -> float:
    return (above.value or 0.0) / (below.value or 1.0)


def _find_last_digit(figure: PublishedFigure) -> float:
    """Returns what one unit of the last printed digit is worth, in the figure's unit; a thousandth where unclear."""
    digits = figure.text.strip().replace(",", "")
    try:
        scale = abs((figure.value or 0.0) / float(digits))
    except (ValueError, ZeroDivisionError):
        return abs(figure.value or 0.0) * 1e-3
    return scale * 10.0 ** -len(digits.partition(".")[2].partition("e")[0])


REPEAT_RULES = (profiled_beside_unprofiled, duplicate_key, not_reproducible, ratio_off)
