"""Do the steps of a published row differ too much for its mean? Rules about standard deviations.

    [found for rule in SPREAD_RULES for found in rule(report)]

One step that exceeds the n - 1 others by e adds e / n to the mean; the standard deviation is e √(n - 1) / n of the
population and e / √n of the sample. So the others took mean - std / √(n - 1), or mean - std / √n: with ten steps a
third of the standard deviation, or 1 / 3.16, less than the mean. Each rule's name is its findings' code.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from runner.analysis.audit.findings import doubt
from runner.analysis.audit.published.findings import Found, touching
from runner.analysis.audit.published.readings import REMEMBERED, Reading, Report, Time, name_time
from runner.analysis.audit.published.subtraction import is_subtracted
from runner.formats import format_ms
from runner.results.published import Quantity

#: A mean that one cold step would have raised by this share of it, and by this where no warm-up ran before.
RAISED, RAISED_UNWARMED = 0.10, 0.03
#: A standard deviation this large a share of the mean leaves a mean that says little.
SPREAD = 0.3
#: Beyond so many steps, one cold step no longer explains a small excess.
FEW_STEPS = 20
_JUDGED = frozenset({"forward", "backward", "optimizer", "forward_backward", "step"})


class Steady(NamedTuple):
    """A mean, and what the other steps took if one of them was cold. `share` is the part of the mean it made."""

    mean: float
    std: float
    steady: float
    share: float


@lru_cache(maxsize=REMEMBERED)
def steady_of(reading: Reading, quantity: Quantity) -> Steady | None:
    """Returns what a mean would have been without one cold step; None without a spread."""
    time = reading.times.get(quantity)
    if time is None or time.std is None or time.mean <= 0 or time.std <= 0 or reading.steps < 2:
        return None
    raised = time.std / math.sqrt(reading.steps - (1 if reading.provenance.has_population_std else 0))
    return Steady(time.mean, time.std, time.mean - raised, raised / time.mean)


@lru_cache(maxsize=REMEMBERED)
def judged(reading: Reading) -> Sequence[tuple[Quantity, Time]]:
    """Returns the times whose spread is that of steps: not that of a difference."""
    out = "backward" if is_subtracted(reading) else "duration"
    return [
        (name, time) for name, time in reading.times.items() if name in _JUDGED and name != out and time.std is not None
    ]


@lru_cache(maxsize=REMEMBERED)
def is_cold(reading: Reading, quantity: Quantity) -> bool:
    """Whether one cold step explains the spread of a mean and moves it."""
    found = steady_of(reading, quantity)
    if found is None or found.steady <= 0:
        return False
    unwarmed = reading.key.warmup == 0 or (reading.provenance.warms_forward_only and quantity != "forward")
    is_small = reading.steps <= FEW_STEPS and unwarmed
    return found.share >= (RAISED_UNWARMED if is_small else RAISED)


def is_uneven(reading: Reading, quantity: Quantity) -> bool:
    """Whether a mean says little: its steps were cold, or differ too much."""
    time = reading.times.get(quantity)
    return time is not None and (is_cold(reading, quantity) or (time.std or 0.0) > SPREAD * abs(time.mean))


def cold_step(report: Report) -> Found:
    for reading in report.timed:
        cold = [
            (quantity, steady_of(reading, quantity)) for quantity, _ in judged(reading) if is_cold(reading, quantity)
        ]
        parts = [(quantity, found) for quantity, found in cold if found]
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


def wide_spread(report: Report) -> Found:
    """Where one cold step does not explain it."""
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


def rounded_std(report: Report) -> Found:
    """A standard deviation of 0: it is smaller than the last digit that was printed, or was never worked out."""
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
