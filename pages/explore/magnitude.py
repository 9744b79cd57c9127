"""Numbers of any kind in a unit that fits their magnitude.

fitting_unit([4.2e13, 9.9e13], "FLOP/s")      # (1e12, 'TFLOP/s')
format_in_unit(0.042, "ms")                  # '42.0 µs'
"""

from collections.abc import Sequence

from runner.formats import SI_PREFIXES, format_number, unit_for

#: The unit of shares, which the schema stores as plain numbers.
SHARE = "share"
_PREFIXED = {"FLOP": "FLOP", "FLOP/s": "FLOP/s", "bytes/s": "B/s", "tokens/s": " tokens/s", "": ""}
_MIN_PREFIXED = 1e4


def fitting_unit(values: Sequence[float], unit: str) -> tuple[float, str]:
    """Returns the unit that suits the largest value, and the factor by which values are divided for it."""
    largest = max((abs(value) for value in values), default=0.0)
    if unit == SHARE:
        return 0.01, "%"
    if unit == "bytes":
        size, name = unit_for([largest])
        return float(size), name
    if unit == "ms":
        return (1e-3, "µs") if 0 < largest < 0.1 else (1e3, "s") if largest >= 10_000 else (1.0, "ms")
    if unit in _PREFIXED and largest >= _MIN_PREFIXED:
        factor, prefix = next(step for step in SI_PREFIXES if largest >= step[0])
        return factor, f"{prefix}{_PREFIXED[unit]}"
    return 1.0, unit


def format_in_unit(value: float, unit: str) -> str:
    """Formats one number with three digits and its unit."""
    factor, name = fitting_unit([value], unit)
    number = f"{value / factor:.2e}" if 0 < abs(value / factor) < 1e-3 else format_number(value / factor)
    return f"{number}{'' if name in ('%', '') else ' '}{name}"
