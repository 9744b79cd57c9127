"""Finds backward passes that are the difference of two loops instead of measured.

    is_subtracted(reading)      # backward = forward_backward - forward to the digit, and its std their root of squares

`times` computes how far a row is from such a difference.
"""

from runner.analysis.audit.findings import doubt
from runner.analysis.audit.published.findings import Found, touching
from runner.analysis.audit.published.readings import PublishedReport, Reading
from runner.analysis.audit.published.times import EXACT
from runner.formats import format_ms

#: Three printed digits leave the difference and the root of squares this exact.
ROUNDED = 5e-3
#: A match no better than `ROUNDED` decides only where so many rows have it.
MANY = 3


def is_subtracted(reading: Reading) -> bool:
    """Returns whether the spread of backward is that of a difference, to six digits."""
    return reading.misfit <= EXACT


def subtraction(report: PublishedReport) -> Found:
    for readings in report.groups:
        close = [reading for reading in readings if reading.misfit <= ROUNDED]
        found = close if len(close) >= MANY and len(close) == len(readings) else [r for r in close if is_subtracted(r)]
        if not found:
            continue
        one = found[0]
        forward, backward, both = (one.times[name] for name in ("forward", "backward", "forward_backward"))
        sentence = (
            f"Backward is the difference of two loops: {format_ms(both.mean)} − {format_ms(forward.mean)} = "
            f"{format_ms(backward.mean)} for {one.words}, with the spread of a difference, "
            f"√({forward.std:.3g}² + {both.std:.3g}²) = {backward.std:.3g} ms. A cold step of "
            "either loop is in it."
        )
        evidence = {"forward_ms": forward.mean, "forward_backward_ms": both.mean, "backward_ms": backward.mean}
        yield touching(found, doubt("subtraction", sentence, **evidence, rows=len(found)))
