"""Audits the standard deviations of published rows: whether the steps differ too much for their mean.

    [found for rule in SPREAD_RULES for found in rule(report)]

`times` computes what one cold step explains. Each rule's name is its findings' code.
"""

from collections.abc import Sequence

from runner.analysis.audit.findings import doubt
from runner.analysis.audit.published.findings import Found, touching
from runner.analysis.audit.published.readings import PublishedReport, Reading, name_time
from runner.analysis.audit.published.subtraction import is_subtracted
from runner.analysis.audit.published.times import Time
from runner.formats import format_ms
from runner.results.published import Quantity

#: A standard deviation this large a share of the mean leaves a mean that says little.
SPREAD = 0.3
_JUDGED = frozenset({"forward", "backward", "optimizer", "forward_backward", "step"})


def is_cold(reading: Reading, quantity: Quantity) -> bool:
    """Returns whether one cold step explains the spread of a mean and moves it."""
    return quantity in reading.cold


def judged(reading: Reading) -> Sequence[tuple[Quantity, Time]]:
    """Returns the times whose spread is that of steps, and not that of a difference."""
    out = "backward" if is_subtracted(reading) else "duration"
    return [
        (name, time) for name, time in reading.times.items() if name in _JUDGED and name != out and time.std is not None
    ]


def is_uneven(reading: Reading, quantity: Quantity) -> bool:
    """Returns whether a mean says little, because its steps were cold or differ too much."""
    time = reading.times.get(quantity)
    return time is not None and (is_cold(reading, quantity) or (time.std or 0.0) > SPREAD * abs(time.mean))


def cold_step(report: PublishedReport) -> Found:
    for reading in report.timed:
        cold = reading.cold
        parts = [(quantity, cold[quantity]) for quantity, _ in judged(reading) if quantity in cold] if cold else []
        if not parts:
            continue
        kind = "population" if reading.provenance.has_population_std else "sample"
        said = "; ".join(
            f"{name_time(quantity)} {format_ms(f.mean)} ± {format_ms(f.std)}, the others about {format_ms(f.steady)}"
            for quantity, f in parts
        )
        assumed = "" if reading.setting.steps else " that the assignment asks for"
        sentence = f"One cold step among the {reading.steps}{assumed} explains the spread: {said}."
        evidence: dict[str, float | int | str] = {"steps": reading.steps, "std": kind}
        for quantity, f in parts:
            evidence |= {f"{quantity}_mean_ms": f.mean, f"{quantity}_std_ms": f.std, f"{quantity}_steady_ms": f.steady}
        yield touching([reading], doubt("cold_step", sentence, **evidence))


def wide_spread(report: PublishedReport) -> Found:
    """Finds a wide spread that one cold step does not explain."""
    for reading in report.timed:
        wide = [
            (quantity, time)
            for quantity, time in judged(reading)
            if time.std is not None and time.std > SPREAD * abs(time.mean) and not is_cold(reading, quantity)
        ]
        if wide:
            said = "; ".join(
                f"{name_time(quantity)} {format_ms(time.mean)} ± {format_ms(time.std or 0.0)}"
                for quantity, time in wide
            )
            sentence = f"The steps differ too much for a mean: {said}. A median would say what a usual step takes."
            evidence = {f"{quantity}_std_ms": time.std or 0.0 for quantity, time in wide}
            yield touching([reading], doubt("wide_spread", sentence, **evidence))


def rounded_std(report: PublishedReport) -> Found:
    """Finds a standard deviation of 0, which is smaller than the last printed digit, or was never computed."""
    for readings in report.groups:
        zero = [
            reading
            for reading in readings
            if reading.steps > 1 and any(time.std == 0 and time.mean > 0 for _, time in judged(reading))
        ]
        if zero:
            sentence = "A standard deviation of 0 was rounded away or never worked out: it says nothing of the spread."
            yield touching(zero, doubt("rounded_std", sentence, std_ms=0))


SPREAD_RULES = (cold_step, wide_spread, rounded_std)
