"""Can forward and backward of a published row be of one step? Rules about their ratio and about clocks.

    [found for rule in PHASE_RULES for found in rule(report)]

Backward does twice the products of forward, so it takes about twice as long. Each rule's name is its findings' code.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

from runner.analysis.audit.findings import doubt, fault
from runner.analysis.audit.published.findings import Found, touching
from runner.analysis.audit.published.limits import limit_of
from runner.analysis.audit.published.readings import REMEMBERED, CellKey, Reading, Report, Time
from runner.analysis.audit.published.sizes import parameters_of
from runner.analysis.audit.published.spreads import is_cold, steady_of
from runner.analysis.audit.published.subtraction import is_subtracted
from runner.analysis.audit.time_rules import FULL, MAX_RATIO, MIN_RATIO
from runner.formats import format_ms

#: Parameters and their gradients in float32, which backward holds at the least.
HELD_BYTES = 8
_SPILL = "the driver moved memory to the host instead of refusing it"


@lru_cache(maxsize=8)
def _passes(report: Report) -> Sequence[tuple[list[Reading], Time, Time]]:
    """Returns forward and backward of each cell that has both, though they stand on lines of their own."""
    passes = []
    for readings in report.groups:
        apart: dict[CellKey, list[Reading]] = defaultdict(list)
        for reading in readings:
            if "forward" in reading.times and "backward" in reading.times:
                passes.append(([reading], reading.times["forward"], reading.times["backward"]))
            elif reading.times:
                apart[reading.key].append(reading)
        for found in apart.values():
            forward = next((r for r in found if "forward" in r.times), None)
            backward = next((r for r in found if "backward" in r.times), None)
            if forward and backward:
                passes.append(([forward, backward], forward.times["forward"], backward.times["backward"]))
    return passes


def ratio_of(readings: Sequence[Reading], forward: Time, backward: Time) -> float | None:
    """Returns backward over forward, both without the cold step that explains them; None where forward is nothing."""
    if forward.mean <= 0:
        return None
    times = {"forward": forward.mean, "backward": backward.mean}
    if len(readings) == 1 and backward.mean > 0 and not is_subtracted(readings[0]):
        for quantity in ("forward", "backward"):
            steady = steady_of(readings[0], quantity) if is_cold(readings[0], quantity) else None
            times[quantity] = steady.steady if steady else times[quantity]
    return times["backward"] / times["forward"]


@lru_cache(maxsize=REMEMBERED)
def has_impossible_ratio(reading: Reading) -> bool:
    """Whether its forward and backward cannot be of one warm step."""
    if "forward" not in reading.times or "backward" not in reading.times:
        return False
    ratio = ratio_of([reading], reading.times["forward"], reading.times["backward"])
    return ratio is not None and not MIN_RATIO <= ratio < MAX_RATIO


def impossible_ratio(report: Report) -> Found:
    for readings, forward, backward in _passes(report):
        ratio = ratio_of(readings, forward, backward)
        if ratio is None or MIN_RATIO <= ratio < MAX_RATIO or (ratio >= MAX_RATIO and _may_spill(readings[0])):
            continue
        said = f"Backward takes {format_ms(backward.mean)} and forward {format_ms(forward.mean)}"
        if backward.mean < 0:
            sentence = f"{said}: no pass takes less than no time. It is a difference of two loops, the second one cold."
        elif ratio < MIN_RATIO:
            sentence = f"{said}: backward does twice the products of forward, so the two are not of one warm step."
        else:
            sentence = f"{said}, {ratio:,.0f} times as long, and it fits into memory: its first pass was counted."
        evidence = {"forward_ms": forward.mean, "backward_ms": backward.mean, **_left_over(readings[0])}
        yield touching(readings, fault("impossible_ratio", sentence, **evidence))


def _left_over(reading: Reading) -> dict[str, float]:
    """What a difference leaves for backward once the cold step of its forward loop is taken out."""
    steady, both = steady_of(reading, "forward"), reading.times.get("forward_backward")
    if not is_subtracted(reading) or not steady or not both or not is_cold(reading, "forward"):
        return {}
    whole = steady_of(reading, "forward_backward") if is_cold(reading, "forward_backward") else None
    return {"backward_steady_ms": (whole.steady if whole else both.mean) - steady.steady}


def spilled(report: Report) -> Found:
    """A driver that moves memory to the host makes backward tens to hundreds of times slower."""
    for readings, forward, backward in _passes(report):
        ratio = ratio_of(readings, forward, backward)
        if ratio is not None and ratio >= MAX_RATIO and _may_spill(readings[0]):
            sentence = (
                f"Backward takes {format_ms(backward.mean)} and forward {format_ms(forward.mean)}: "
                f"{ratio:,.0f} times as long, where twice is usual. {_SPILL.capitalize()}."
            )
            yield touching(readings, fault("spilled", sentence, forward_ms=forward.mean, backward_ms=backward.mean))


def _may_spill(reading: Reading) -> bool:
    """Whether the cell may fill its machine: what little is known of it does not rule that out."""
    key, limit = reading.key, limit_of(reading)
    room = limit.memory_bytes if limit else None
    if key.width:
        squares = 6 * 4 * (key.batch or 1) * (key.length or 1) ** 2
        return squares > FULL * (room or 4e9)
    if reading.shape and room:
        return HELD_BYTES * parameters_of(reading.shape) > FULL / 2 * room
    return True


def unsynchronized(report: Report) -> Found:
    for readings in report.groups:
        words = readings[0].provenance.unsynchronized
        timed = [reading for reading in readings if "backward" in reading.times]
        if words and timed:
            sentence = (
                f"The device was not waited for between the phases (“{words}”): what one phase left running was "
                "counted in the next."
            )
            yield touching(timed, doubt("unsynchronized", sentence, clock=words))


def range_ended_early(report: Report) -> Found:
    """A range on the host's clock ends when its kernels are launched; they cannot take longer than a range that waited
    for them. The kernels' whole time is that of one of them over its share."""
    kernels = [r for readings in report.groups if readings[0].table.subject == "kernels" for r in readings]
    for readings in report.groups:
        if readings[0].table.subject != "ranges":
            continue
        for reading in readings:
            duration, part = reading.times.get("duration"), (reading.key.part or "").lower()
            on_device = max((_range_ms(kernel, part) for kernel in kernels), default=0.0) if part else 0.0
            if duration and duration.mean < on_device:
                sentence = (
                    f"The range lasts {format_ms(duration.mean)} and its kernels {format_ms(on_device)}: it was closed "
                    "when they were launched, before the device had run them."
                )
                evidence = {"range_ms": duration.mean, "kernels_ms": on_device}
                yield touching([reading], fault("range_ended_early", sentence, **evidence))


def _range_ms(kernel: Reading, part: str) -> float:
    """Returns the time of all kernels of a range that this kernel's row names, in ms; 0 where it names another."""
    if not any(text.lower().startswith(part) for text in kernel.row.stated.values()):
        return 0.0
    total, share = kernel.row.mean("total_duration"), kernel.row.mean("share")
    return total / share if total and share else total or 0.0


PHASE_RULES = (impossible_ratio, spilled, unsynchronized, range_ended_early)
