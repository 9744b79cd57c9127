"""Audits forward and backward of a published row: rules about their ratio and about clocks.

    [found for rule in PHASE_RULES for found in rule(report)]

Backward does twice the products of forward, so it takes about twice as long. Each rule's name is its findings' code.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from runner.analysis.audit.findings import doubt, fault
from runner.analysis.audit.published.findings import Found, touching
from runner.analysis.audit.published.limits import limit_of
from runner.analysis.audit.published.readings import CellKey, PublishedReport, Reading
from runner.analysis.audit.published.sizes import parameters_of
from runner.analysis.audit.published.subtraction import is_subtracted
from runner.analysis.audit.published.times import Time
from runner.analysis.audit.time_rules import FULL, MAX_RATIO, MIN_RATIO
from runner.formats import format_ms

#: Parameters and their gradients in float32, which backward holds at the least.
HELD_BYTES = 8
_SPILL = "the driver moved memory to the host instead of refusing it"


class Passes(NamedTuple):
    """Forward and backward of one cell, on one line or on two, and how many times as long backward takes."""

    readings: Sequence[Reading]
    forward: Time
    backward: Time
    ratio: float


@lru_cache(maxsize=1)
def _find_impossible_passes(report: PublishedReport) -> Sequence[Passes]:
    """Returns forward and backward of each cell where they cannot be of one warm step, though they may stand on lines
    of their own."""
    found = []
    for readings in report.groups:
        apart: dict[CellKey, list[Reading]] = defaultdict(list)
        for reading in readings:
            if "forward" in reading.times and "backward" in reading.times:
                if reading.ratio is not None and not _is_possible(reading.ratio):
                    first, second = reading.times["forward"], reading.times["backward"]
                    found.append(Passes([reading], first, second, reading.ratio))
            elif reading.times:
                apart[reading.key].append(reading)
        found += [passes for same in apart.values() if (passes := _join(same)) and not _is_possible(passes.ratio)]
    return found


def _join(readings: Sequence[Reading]) -> Passes | None:
    """Returns the passes of a cell whose rows hold one each; None where one is missing, or forward is nothing."""
    forward = next((r for r in readings if "forward" in r.times), None)
    backward = next((r for r in readings if "backward" in r.times), None)
    if not forward or not backward or forward.times["forward"].mean <= 0:
        return None
    first, second = forward.times["forward"], backward.times["backward"]
    return Passes([forward, backward], first, second, second.mean / first.mean)


def _is_possible(ratio: float) -> bool:
    return MIN_RATIO <= ratio < MAX_RATIO


def has_impossible_ratio(reading: Reading) -> bool:
    """Returns whether its forward and backward cannot be of one warm step."""
    return reading.ratio is not None and not _is_possible(reading.ratio)


def impossible_ratio(report: PublishedReport) -> Found:
    for readings, forward, backward, ratio in _find_impossible_passes(report):
        if ratio >= MAX_RATIO and _may_spill(readings[0]):
            continue
        said = f"Backward takes {format_ms(backward.mean)} and forward {format_ms(forward.mean)}"
        if backward.mean < 0:
            sentence = f"{said}: no pass takes less than no time. It is a difference of two loops, the second one cold."
        elif ratio < MIN_RATIO:
            sentence = f"{said}: backward does twice the products of forward, so the two are not of one warm step."
        else:
            sentence = f"{said}, {ratio:,.0f} times as long, and it fits into memory: its first pass was counted."
        evidence = {"forward_ms": forward.mean, "backward_ms": backward.mean, **_compute_left_over(readings[0])}
        yield touching(readings, fault("impossible_ratio", sentence, **evidence))


def _compute_left_over(reading: Reading) -> dict[str, float]:
    """Returns what a difference leaves for backward once the cold step of its forward loop is removed."""
    cold, both = reading.cold, reading.times.get("forward_backward")
    if not both or "forward" not in cold or not is_subtracted(reading):
        return {}
    whole = cold.get("forward_backward")
    return {"backward_steady_ms": (whole.steady if whole else both.mean) - cold["forward"].steady}


def spilled(report: PublishedReport) -> Found:
    """Finds a backward pass that is tens to hundreds of times slower, as where a driver moves memory to the host."""
    for readings, forward, backward, ratio in _find_impossible_passes(report):
        if ratio >= MAX_RATIO and _may_spill(readings[0]):
            sentence = (
                f"Backward takes {format_ms(backward.mean)} and forward {format_ms(forward.mean)}: "
                f"{ratio:,.0f} times as long, where twice is usual. {_SPILL.capitalize()}."
            )
            yield touching(readings, fault("spilled", sentence, forward_ms=forward.mean, backward_ms=backward.mean))


def _may_spill(reading: Reading) -> bool:
    """Returns whether the cell may fill its machine, as far as the little that is known of it allows."""
    key, limit = reading.key, limit_of(reading)
    room = limit.memory_bytes if limit else None
    if key.width:
        squares = 6 * 4 * (key.batch or 1) * (key.length or 1) ** 2
        return squares > FULL * (room or 4e9)
    if reading.shape and room:
        return HELD_BYTES * parameters_of(reading.shape) > FULL / 2 * room
    return True


def unsynchronized(report: PublishedReport) -> Found:
    for readings in report.groups:
        words = readings[0].provenance.unsynchronized
        timed = [reading for reading in readings if "backward" in reading.times]
        if words and timed:
            sentence = (
                f"The device was not waited for between the phases (“{words}”): what one phase left running was "
                "counted in the next."
            )
            yield touching(timed, doubt("unsynchronized", sentence, clock=words))


def range_ended_early(report: PublishedReport) -> Found:
    """Finds a range on the host's clock that ended when its kernels were launched: they cannot take longer than a range
    that waited for them. The kernels' whole time is that of one of them over its share."""
    kernels = report.of("kernels")
    for reading in report.of("ranges"):
        duration, part = reading.times.get("duration"), (reading.key.part or "").lower()
        on_device = max((_compute_range_ms(kernel, part) for kernel in kernels), default=0.0) if part else 0.0
        if duration and duration.mean < on_device:
            sentence = (
                f"The range lasts {format_ms(duration.mean)} and its kernels {format_ms(on_device)}: it was closed "
                "when they were launched, before the device had run them."
            )
            evidence = {"range_ms": duration.mean, "kernels_ms": on_device}
            yield touching([reading], fault("range_ended_early", sentence, **evidence))


def _compute_range_ms(kernel: Reading, part: str) -> float:
    """Returns the time of all kernels of a range that this kernel's row names, in ms; 0 where it names another."""
    if not any(text.lower().startswith(part) for text in kernel.row.stated.values()):
        return 0.0
    total, share = kernel.row.mean("total_duration"), kernel.row.mean("share")
    return total / share if total and share else total or 0.0


PHASE_RULES = (impossible_ratio, spilled, unsynchronized, range_ended_early)
