"""Audits pairs of published cells that differ in one option: precision, compiler, profiler, warm-up.

    [found for rule in OPTION_RULES for found in rule(report)]

Partners are of one report and agree in everything else that they state. Each rule's name is its findings' code.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from runner.analysis.audit.findings import doubt, fault, note
from runner.analysis.audit.judge import HALF, SAME_BYTES
from runner.analysis.audit.published.findings import Found, touching
from runner.analysis.audit.published.limits import find_projected, forward_flops, limit_of
from runner.analysis.audit.published.phases import has_impossible_ratio
from runner.analysis.audit.published.readings import MEMORY, PublishedReport, Reading, name_time
from runner.analysis.audit.published.spreads import is_cold, is_uneven
from runner.formats import format_bytes, format_ms
from runner.results.published import Quantity

#: Two times that differ by less than this share are the same, or by less than two standard errors, but never by more.
SAME, SAME_AT_MOST = 0.02, 0.05
#: A compiled cell that gains this much over eager was compiled.
GAIN = 0.10
#: Products that take this share of the time at the machine's fastest rate leave the compiler little.
BOUND = 0.30
_BASELINES = {"precision": (None, "fp32"), "backend": (None, "eager")}
Option = Literal["precision", "backend"]
_PASSES: tuple[Quantity, ...] = ("forward", "backward", "forward_backward", "step")


@lru_cache(maxsize=2)
def option_pairs(report: PublishedReport, option: Option) -> Sequence[tuple[Reading, Reading]]:
    """Returns (baseline, variant) of each pair that differs in this option alone."""
    groups: dict[object, list[Reading]] = defaultdict(list)
    pairs: list[tuple[Reading, Reading]] = []
    cells = report.of("steps", "attention")
    if all(getattr(reading.key, option) in _BASELINES[option] for reading in cells):
        return pairs
    for reading in cells:
        groups[reading.key.without(option)].append(reading)
    for found in groups.values():
        base = next((r for r in found if getattr(r.key, option) in _BASELINES[option]), None)
        pairs += [(base, other) for other in found if base and getattr(other.key, option) not in _BASELINES[option]]
    return pairs


def no_effect(report: PublishedReport) -> Found:
    """Finds half precision with the bytes of float32, or a compiled model with eager's times."""
    yield from _find_ineffective_half(report)
    times: dict[str, list[tuple[Reading, Reading]]] = defaultdict(list)
    for base, other in option_pairs(report, "backend"):
        if _has_same_times(base, other):
            times[other.table.file].append((base, other))
    for pairs in times.values():
        base, other = pairs[0]
        said = ", ".join(
            f"{name} {format_ms(other.times[name].mean)} and {format_ms(base.times[name].mean)}"
            for name in ("forward", "backward")
            if name in other.times and name in base.times
        )
        sentence = (
            f"{other.key.backend} takes as long as eager ({other.words}: {said}): it had no effect, or something else "
            "sets the time."
        )
        yield touching([reading for _, reading in pairs], note("no_effect", sentence, pairs=len(pairs)))


def _find_ineffective_half(report: PublishedReport) -> Found:
    by_file: dict[str, list[tuple[Reading, Reading, str]]] = defaultdict(list)
    for base, other in option_pairs(report, "precision"):
        same = _same_bytes(base, other)
        if other.key.precision in HALF and same:
            by_file[other.table.file].append((base, other, same))
    for found in by_file.values():
        _, last, same = found[-1]
        apart = max(_compute_slowdown(base, other) for base, other, _ in found)
        sentence = (
            f"{last.key.precision} holds the bytes of float32 to the last digit, such as {same} for {last.words}, and "
            "its activations would take half: what was counted was float32"
        )
        sentence += f", although the times differ by up to {apart:.1f} times." if apart > 1 + SAME_AT_MOST else "."
        evidence = {"rows": len(found), "times_differ": apart}
        yield touching([other for _, other, _ in found], fault("no_effect", sentence, **evidence))


def _compute_slowdown(base: Reading, other: Reading) -> float:
    """Returns how many times as long one takes as the other in its forward pass, 1 where that is not known."""
    times = [reading.times["forward"].mean for reading in (base, other) if "forward" in reading.times]
    return max(times) / min(times) if len(times) > 1 and min(times) > 0 else 1.0


def _same_bytes(base: Reading, other: Reading) -> str | None:
    """Returns the greatest bytes that both hold, if they agree in every column that counts more than parameters."""
    names = [name for name in other.memory if name in base.memory and name[0] in MEMORY]
    values = [(base.memory[name].value or 0.0, other.memory[name].value or 0.0) for name in names]
    if not values or any(not first or abs(second / first - 1) > SAME_BYTES for first, second in values):
        return None
    return None if other.key.mode == "train" else format_bytes(int(max(second for _, second in values)))


def _has_same_times(base: Reading, other: Reading) -> bool:
    """Returns whether forward and backward agree within their errors; one alone may agree by chance."""
    if has_impossible_ratio(base) or has_impossible_ratio(other):
        return False
    names = [name for name in _PASSES if name in base.times and name in other.times]
    return len(names) > 1 and all(_is_same(base, other, name) for name in names)


def _is_same(base: Reading, other: Reading, name: Quantity) -> bool:
    first, second = base.times[name], other.times[name]
    if first.mean <= 0 or second.mean <= 0 or is_cold(base, name) or is_cold(other, name):
        return False
    error = math.hypot((first.std or 0.0) / math.sqrt(base.steps), (second.std or 0.0) / math.sqrt(other.steps))
    allowed = min(max(SAME, 2 * error / first.mean), SAME_AT_MOST)
    return abs(second.mean / first.mean - 1) <= allowed


def compiler_fallback(report: PublishedReport) -> Found:
    """Finds cells that gain nothing from the compiler although their products leave room, after others that gain: the
    compiler gave up after too many recompilations."""
    projected = find_projected(report)
    families: dict[object, list[tuple[Reading, Reading]]] = defaultdict(list)
    for base, other in option_pairs(report, "backend"):
        families[other.table.file, other.key.without("shape", "batch", "length", "width")].append((base, other))
    for pairs in families.values():
        gained = [(base, other) for base, other in pairs if _compute_gain(base, other) >= GAIN]
        lost = [
            (b, o) for b, o in pairs if _has_same_times(b, o) and not _is_bound(o, projected=o.table.file in projected)
        ]
        if len(gained) < 2 or not lost:
            continue
        base, other = lost[0]
        sentence = (
            f"{gained[0][1].words} gains {_compute_gain(*gained[0]):.0%} from the compiler, and {other.words} nothing "
            f"({format_ms(_sum_ms(other))} and {format_ms(_sum_ms(base))} eager): after too many recompilations it "
            "falls back to eager."
        )
        yield touching(
            [reading for _, reading in lost], doubt("compiler_fallback", sentence, gained=len(gained), lost=len(lost))
        )


def _sum_ms(reading: Reading) -> float:
    """Returns the time of both passes, by the widest that is known (ms)."""
    both = reading.times.get("step") or reading.times.get("forward_backward")
    if both:
        return both.mean
    return sum(reading.times[name].mean for name in ("forward", "backward") if name in reading.times)


def _compute_gain(base: Reading, other: Reading) -> float:
    return 1 - _sum_ms(other) / _sum_ms(base) if _sum_ms(base) > 0 else 0.0


def _is_bound(reading: Reading, *, projected: bool) -> bool:
    """Returns whether products set the time, as far as is known: at the machine's fastest rate, or by their weights."""
    limit, flops, forward = limit_of(reading), forward_flops(reading, projected=projected), reading.times.get("forward")
    peak = (limit.peak("tf32") or limit.peak("bf16")) if limit else None
    if not limit or not peak or not flops or not forward or forward.mean <= 0:
        return False
    weights = 16 * (reading.key.width or 0) ** 2 / (limit.bandwidth or math.inf) if projected else 0.0
    return max(flops / peak, weights) * 1e3 >= BOUND * forward.mean


def cold_beside_warm(report: PublishedReport) -> Found:
    """Finds a comparison of two options, one of which has the mean of a cold step."""
    options: tuple[Option, ...] = ("backend", "precision")
    said: set[tuple[object, Quantity]] = set()
    for option in options:
        for base, other in option_pairs(report, option):
            for name in ("forward", "forward_backward", "step"):
                cold, warm = (base, other) if is_cold(base, name) else (other, base)
                found = cold.cold.get(name)
                if not found or name not in warm.times or is_uneven(warm, name) or (cold.row.row_id, name) in said:
                    continue
                said.add((cold.row.row_id, name))
                sentence = (
                    f"{name_time(name).capitalize()} of {cold.words} takes {format_ms(found.mean)} beside "
                    f"{format_ms(warm.times[name].mean)} ({getattr(warm.key, option) or 'the baseline'}): a cold mean "
                    f"beside a warm one. Steady it took about {format_ms(found.steady)}."
                )
                evidence = {"cold_ms": found.mean, "warm_ms": warm.times[name].mean, "steady_ms": found.steady}
                yield touching([cold], doubt("cold_beside_warm", sentence, **evidence))


OPTION_RULES = (no_effect, compiler_fallback, cold_beside_warm)
