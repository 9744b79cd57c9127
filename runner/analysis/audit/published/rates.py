"""Audits the rates of published rows: rules from FLOPs, data sheets and axes.

    [found for rule in RATE_RULES for found in rule(report)]

A rate is the products of the row's shape over its time. Data sheets state rates at the boost clock, which a card may
exceed by some percent: `CLOCK`. A machine known by its class alone is given the fastest GPU of that class. Each rule's
name is its findings' code.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from runner.analysis.audit.findings import doubt, fault
from runner.analysis.audit.published.findings import Found, touching
from runner.analysis.audit.published.limits import HIGHEST, Limit, find_projected, forward_flops, limit_of
from runner.analysis.audit.published.phases import has_impossible_ratio
from runner.analysis.audit.published.readings import PublishedReport, Reading, name_time
from runner.formats import format_ms, format_quantity
from runner.results.findings import Severity
from runner.results.published import Quantity

#: A card may run this much faster than the clock of its data sheet.
CLOCK = 1.05
#: Whole passes, with their softmax, norms and launches, do not come this close to the peak of products.
NEAR = 0.90
#: A rate this many times the highest of any GPU means that the unit is wrong, and not the precision.
UNIT = 3.0
#: The products of each time, in forward passes. Backward is left out where it is a difference.
_PASSES: tuple[tuple[Quantity, int], ...] = (("forward", 1), ("forward_backward", 3))
_APART: tuple[tuple[Quantity, int], ...] = (("forward", 1), ("backward", 2))


class Rate(NamedTuple):
    """The highest rate of a reading's times, in FLOP/s, and the time that it comes from."""

    flops_per_s: float
    quantity: Quantity
    ms: float
    flops: float


def rate_of(reading: Reading, *, projected: bool) -> Rate | None:
    """Returns the highest rate of a reading; None where its work or its times are not known."""
    flops, times = forward_flops(reading, projected=projected), reading.times
    if not flops:
        return None
    passes = _PASSES if "forward_backward" in times else _APART
    if passes is _APART and has_impossible_ratio(reading):
        return None
    rates = [(many / times[name].mean, name, many) for name, many in passes if name in times and times[name].mean > 0]
    if not rates:
        return None
    per_ms, name, many = max(rates)
    return Rate(flops * per_ms * 1e3, name, times[name].mean, flops * many)


@lru_cache(maxsize=1)
def _list_rates(report: PublishedReport) -> Sequence[tuple[Reading, Rate, bool]]:
    projected, found = find_projected(report), []
    for reading in report.timed:
        with_projections = reading.table.file in projected
        if rate := rate_of(reading, projected=with_projections):
            found.append((reading, rate, with_projections))
    return found


def tf32_as_fp32(report: PublishedReport) -> Found:
    """Finds float32 that is faster than float32 can be, and not faster than TF32."""
    for reading, rate, projected in _list_rates(report):
        if reading.setting.precision != "fp32" or (limit := limit_of(reading)) is None:
            continue
        peak, tf32 = limit.peak("fp32"), limit.peak("tf32")
        if not peak or not tf32 or tf32 <= peak or not NEAR * peak < rate.flops_per_s <= CLOCK * tf32:
            continue
        severity: Severity = "fault" if rate.flops_per_s > CLOCK * peak else "doubt"
        why = "it was TF32" if severity == "fault" else "whole passes do not come so close; it looks like TF32"
        share = f"{rate.flops_per_s / peak:.0%} of the {_name_peak(limit, 'fp32', peak)}"
        sentence = f"{_say_rate(rate, projected)}, {share}: {why}."
        make = fault if severity == "fault" else doubt
        yield touching([reading], make("tf32_as_fp32", sentence, **_make_evidence(rate, peak)))


def above_peak(report: PublishedReport) -> Found:
    for reading, rate, projected in _list_rates(report):
        limit, precision = limit_of(reading), reading.setting.precision or "bf16"
        peak = limit.peak("tf32" if precision == "fp32" else precision) if limit else None
        peak = peak or (limit.peak("bf16") if limit else None) or HIGHEST
        if rate.flops_per_s <= CLOCK * peak or rate.flops_per_s > UNIT * HIGHEST:
            continue
        name = _name_peak(limit, precision, peak) if limit else f"{format_quantity(peak, 'FLOP/s')} of the fastest GPU"
        sentence = (
            f"{_say_rate(rate, projected)}, {rate.flops_per_s / peak:.2f} times the {name}: not all of it was timed."
        )
        yield touching([reading], fault("above_peak", sentence, **_make_evidence(rate, peak)))


def wrong_unit(report: PublishedReport) -> Found:
    """Finds rows whose times were all read in a unit a thousand times too small."""
    for reading, rate, projected in _list_rates(report):
        if rate.flops_per_s > UNIT * HIGHEST:
            sentence = (
                f"{_say_rate(rate, projected)}, {rate.flops_per_s / HIGHEST:,.0f} times what the fastest GPU can do. "
                f"Read as seconds, {rate.ms:,.4g} s are {format_quantity(rate.flops_per_s / 1e3, 'FLOP/s')}: the unit "
                "is wrong."
            )
            yield touching([reading], fault("wrong_unit", sentence, **_make_evidence(rate, HIGHEST)))


def swapped_axes(report: PublishedReport) -> Found:
    """Finds heads wider than their sequences are long, in most rows of a table. Its bytes tell whether the headings
    were swapped, or another grid was run."""
    projected = find_projected(report)
    for readings in report.groups:
        both = [r for r in readings if r.key.width and r.key.length]
        wide = [r for r in both if (r.key.width or 0) > (r.key.length or 0)]
        if readings[0].table.subject != "attention" or len(wide) <= len(both) / 2:
            continue
        widths, lengths = [r.key.width or 0 for r in wide], [r.key.length or 0 for r in wide]
        known = readings[0].table.file in projected
        names = (
            "The bytes before forward are those of 4 d² float32 parameters: the names say what was run, and the grid "
            "itself was turned round"
            if known
            else "As when the two axes change places"
        )
        sentence = (
            f"Heads of {min(widths):,} to {max(widths):,} over {min(lengths):,} to {max(lengths):,} tokens: wider than "
            f"the sequences are long. {names}."
        )
        evidence: dict[str, float | int | str] = {
            "least_width": min(widths),
            "largest_width": max(widths),
            "least_length": min(lengths),
            "largest_length": max(lengths),
            "bytes_agree": "yes" if known else "not known",
        }
        yield touching(wide, doubt("swapped_axes", sentence, **evidence))


def _say_rate(rate: Rate, projected: bool) -> str:
    what = "with its projections" if projected else "of products"
    passes = name_time(rate.quantity).capitalize()
    return (
        f"{passes} is {format_quantity(rate.flops, 'FLOP')} {what} in {format_ms(rate.ms)}: "
        f"{format_quantity(rate.flops_per_s, 'FLOP/s')}"
    )


def _name_peak(limit: Limit, precision: str, peak: float) -> str:
    of = limit.gpu if limit.is_certain else f"{limit.gpu}, the fastest that it can be"
    return f"{format_quantity(peak, 'FLOP/s')} that the data sheet states for {precision} ({of})"


def _make_evidence(rate: Rate, peak: float) -> dict[str, float | int | str]:
    return {"flops": rate.flops, "time_ms": rate.ms, "flops_per_s": rate.flops_per_s, "peak_flops_per_s": peak}


RATE_RULES = (tf32_as_fp32, above_peak, wrong_unit, swapped_axes)
