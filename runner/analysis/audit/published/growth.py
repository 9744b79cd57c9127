"""Audits how published times and bytes grow with the work: rules about cells that differ in one size alone.

    [found for rule in GROWTH_RULES for found in rule(report)]

Rows whose means a cold step explains are left out: they have findings of their own. Each rule's name is its findings'
code.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from itertools import combinations, pairwise

from runner.analysis.audit.findings import doubt, note
from runner.analysis.audit.judge import FLAT
from runner.analysis.audit.published.carried import carried_rows
from runner.analysis.audit.published.findings import Found, touching
from runner.analysis.audit.published.limits import find_projected, limit_of
from runner.analysis.audit.published.phases import has_impossible_ratio
from runner.analysis.audit.published.readings import PublishedReport, Reading, name_time
from runner.analysis.audit.published.sizes import parameters_of
from runner.analysis.audit.published.spreads import is_cold, is_uneven
from runner.analysis.audit.published.subtraction import is_subtracted
from runner.formats import format_bytes, format_ms
from runner.results.findings import Severity
from runner.results.published import Quantity

#: Times of twice the work may be lower by this share and still be set by launches.
LOWER = 0.5
#: Launching takes no longer than this (ms): both passes of one block of a model, or of one attention.
BLOCK_MS, ATTENTION_MS = 12.0, 3.0
#: Reading the weights once takes this share of the time where their traffic sets it.
TRAFFIC = 0.25
#: Less work that takes this many times as long was disturbed.
SLOWER = 2.0
#: A peak that falls by more than this share is in doubt; by less, something small of another row was counted.
FALLEN = 0.05
_AXES = ("length", "width", "batch")


@lru_cache(maxsize=3)
def _group_by_axis(report: PublishedReport, axis: str) -> list[list[Reading]]:
    """Returns readings of one table that differ in one axis alone, smallest first."""
    families = []
    for readings in report.groups:
        if len({getattr(reading.key, axis) for reading in readings}) < 2:
            continue
        found: dict[object, list[Reading]] = defaultdict(list)
        for reading in readings:
            if getattr(reading.key, axis):
                found[reading.key.without(axis)].append(reading)
        families += [family for family in found.values() if len(family) > 1]
    return [sorted(family, key=lambda reading: getattr(reading.key, axis)) for family in families]


def _list_phases(reading: Reading) -> list[Quantity]:
    """Returns the times that growth is judged by; a backward that is a difference is not among them."""
    backward: Quantity = "forward_backward" if is_subtracted(reading) else "backward"
    return [name for name in ("forward", backward) if name in reading.times]


def launch_bound(report: PublishedReport) -> Found:
    """Finds twice the context with the same time in both passes, while neither products nor weights can set it."""
    projected = find_projected(report)
    for family in _group_by_axis(report, "length"):
        timed = [r for r in family if len(_list_phases(r)) == 2 and _is_short(r, projected=r.table.file in projected)]
        for group in _find_flat_groups(timed):
            first, last = group[0], group[-1]
            times = [
                f"{name_time(name)} {format_ms(first.times[name].mean)} and {format_ms(last.times[name].mean)}"
                for name in _list_phases(first)
            ]
            sentence = (
                f"{first.words} and {last.words}: {', '.join(times)}. Launching the operations sets the time; that "
                "does not make context free."
            )
            sizes = {"small": first.key.length or 0, "large": last.key.length or 0}
            spent = {
                f"{name}_{end}_ms": r.times[name].mean
                for end, r in (("small", first), ("large", last))
                for name in _list_phases(r)
            }
            yield touching(group, note("launch_bound", sentence, **sizes, **spent))


def _find_flat_groups(family: Sequence[Reading]) -> Iterator[list[Reading]]:
    """Yields the rows that are flat against another, in one group for each family. The shortest stands first."""
    flat = {reading for pair in combinations(family, 2) if _is_flat(*pair) for reading in pair}
    if flat:
        yield [reading for reading in family if reading in flat]


def _is_flat(small: Reading, large: Reading) -> bool:
    if (large.key.length or 0) < 2 * (small.key.length or 0):
        return False
    return all(
        name in large.times and LOWER <= large.times[name].mean / small.times[name].mean <= 1 + FLAT
        for name in _list_phases(small)
        if small.times[name].mean > 0
    )


def _is_short(reading: Reading, *, projected: bool) -> bool:
    """Returns whether launching can take so long, and reading the weights cannot."""
    if any(is_cold(reading, name) for name in ("forward", "forward_backward")) or has_impossible_ratio(reading):
        return False
    whole = sum(reading.times[name].mean for name in _list_phases(reading) if name != "forward_backward")
    shape, limit = reading.shape, limit_of(reading)
    most = BLOCK_MS * shape.layers if shape else ATTENTION_MS if reading.key.width else BLOCK_MS * 100
    weights = 4 * parameters_of(shape) if shape else 16 * (reading.key.width or 0) ** 2 if projected else 0
    bandwidth = limit.bandwidth if limit else None
    return whole <= most and (not bandwidth or weights / bandwidth * 1e3 < TRAFFIC * reading.times["forward"].mean)


def time_not_monotonic(report: PublishedReport) -> Found:
    for axis in _AXES:
        for family in _group_by_axis(report, axis):
            quantity: Quantity
            for quantity in ("forward_backward", "step", "forward", "backward"):
                timed = [r for r in family if quantity in r.times and not is_uneven(r, quantity)]
                pairs = [(a, b) for a, b in pairwise(timed) if _is_disturbed(a, b, axis, quantity)]
                for small, large in pairs:
                    sentence = (
                        f"{small.words} takes {format_ms(small.times[quantity].mean)} and {large.words} "
                        f"{format_ms(large.times[quantity].mean)}: less work cannot take longer. One of the two was "
                        "disturbed or cold."
                    )
                    evidence = {"small_ms": small.times[quantity].mean, "large_ms": large.times[quantity].mean}
                    yield touching([small, large], doubt("time_not_monotonic", sentence, **evidence))
                if pairs or any("forward_backward" in r.times for r in family):
                    break


def _is_disturbed(small: Reading, large: Reading, axis: str, quantity: Quantity) -> bool:
    if not small.times[quantity].mean > SLOWER * large.times[quantity].mean > 0:
        return False
    is_larger = getattr(large.key, axis) > getattr(small.key, axis)
    return is_larger and not has_impossible_ratio(small) and not has_impossible_ratio(large)


def bytes_not_monotonic(report: PublishedReport) -> Found:
    """Finds less work with more bytes. Columns of a table with negative bytes are differences, which need not grow."""
    differences = {
        (r.table.table_id, name) for r in report.readings for name, f in r.memory.items() if f.value and f.value < 0
    }
    carried = carried_rows(report)
    for axis in _AXES:
        for family in _group_by_axis(report, axis):
            kept = [r for r in family if r.row.row_id not in carried] if carried else family
            for small, large in pairwise(kept):
                if getattr(small.key, axis) < getattr(large.key, axis):
                    yield from _find_fallen(small, large, differences)


def _find_fallen(small: Reading, large: Reading, differences: Collection[object]) -> Found:
    for name, figure in small.memory.items():
        other = large.memory.get(name)
        if other is None or not other.value or (figure.value or 0) <= other.value:
            continue
        if (small.table.table_id, name) in differences:
            continue
        share = (figure.value or 0) / other.value - 1
        severity: Severity = "doubt" if share > FALLEN else "note"
        sentence = (
            f"{small.words} holds {format_bytes(int(figure.value or 0))} ({figure.heading}) and {large.words} "
            f"{format_bytes(int(other.value))}: what is more belongs to something else, such as the row before."
        )
        evidence = {"small_bytes": figure.value or 0, "large_bytes": other.value, "column": figure.heading}
        make = doubt if severity == "doubt" else note
        yield touching([small], make("bytes_not_monotonic", sentence, **evidence))
        return


GROWTH_RULES = (launch_bound, time_not_monotonic, bytes_not_monotonic)
