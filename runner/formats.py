"""Bytes, times and rates as a person reads them in a terminal.

>>> format_bytes(1.5 * 2**30), format_duration(200), format_quantity(1.24e12, "FLOP")
('1.5 GiB', '3 min', '1.24 TFLOP')

Standard library only.
"""


def format_bytes(number: float) -> str:
    """Bytes with a binary prefix: `1.5 GiB`."""
    for power, prefix in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if number >= 2**power:
            return f"{number / 2**power:.3g} {prefix}"
    return f"{number:.0f} B"


def format_duration(seconds: float) -> str:
    """Seconds in the unit a person would say: `42 s`, `3 min`, `1 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def format_quantity(number: float, unit: str) -> str:
    """A number with an SI prefix: `1.24 TFLOP`."""
    for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if abs(number) >= 10**power:
            return f"{number / 10**power:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}"
