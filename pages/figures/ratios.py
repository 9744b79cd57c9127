"""A log axis for ratios: as wide as what is drawn, with 1× on it.

    figure.update_xaxes(**ratio_axis(value for row in rows for value in (row.ratio, row.low, row.high)))

It has at most five labels, as many as fit on a phone.
"""

import math
from collections.abc import Iterable
from typing import Any

#: The axis reaches at least this far on both sides of 1×.
_MIN = 1.1
_MAX_TICKS = 5
#: Steps between labels in hundredths, for an axis narrower than 1× to 2×; labels of a decade for wider ones.
_FINE = (1, 2, 5, 10, 20, 50)
_DECADES = ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,))


def ratio_axis(values: Iterable[float | None]) -> dict[str, Any]:
    """Returns the settings of a Plotly axis that holds every value but None and 0."""
    logs = [math.log10(value) for value in values if value]
    least = math.log10(_MIN)
    low, high = min([*logs, -least]), max([*logs, least])
    room = 0.06 * (high - low)
    ticks = _choose_ticks(10**low, 10**high)
    return {
        "type": "log",
        "range": [low - room, high + room],
        "tickvals": ticks,
        "ticktext": [f"{tick:,.0f}×" if tick >= 100 else f"{tick:.3g}×" for tick in ticks],
        "automargin": True,
        "zeroline": False,
        "tickangle": 0,
    }


def left_end(axis: dict[str, Any]) -> float:
    """Returns where a mark without a ratio stands: a hair inside, because rounding may put the very edge outside."""
    low, high = axis["range"]
    return float(10 ** (low + 0.001 * (high - low)))


def _choose_ticks(low: float, high: float) -> list[float]:
    """Returns at most five round ratios from low to high, as dense as that allows, 1 among them."""
    if high / low < 2:
        step = next((step for step in _FINE if (high - low) * 100 / step <= _MAX_TICKS - 1), _FINE[-1])
        return [number * step / 100 for number in range(math.ceil(low * 100 / step), math.floor(high * 100 / step) + 1)]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for decade in _DECADES:
        ticks = [digit * 10.0**power for power in powers for digit in decade]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= _MAX_TICKS:
            return ticks
    every = math.ceil(len(ticks) / _MAX_TICKS)
    return ticks[ticks.index(1.0) % every :: every]
