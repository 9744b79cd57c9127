"""What all charts share: axis titles from the schema, layout, words for entities, number formats.

figure.update_layout(**layout(height=300, state="phases"))
figure.update_xaxes(title=title_of("timings", "median_ms"))
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from operator import is_
from typing import Any

import plotly.graph_objects as go

from runner.formats import format_number
from runner.results import Clock
from runner.schema import TABLES
from runner.schema.titles import WORDS as WORDS

#: Tags that charts write themselves. Plotly also knows links, and styles that may name an address.
_OURS = re.compile(r"</?(?:b|br|i|sub|sup|extra)>|<span style=\"color:[#\w]+\">|</span>")
#: How a step is timed.
CLOCKS: Mapping[Clock, str] = {"step": "waited for", "loop": "in a loop", "device": "device time"}


def title_of(table: str, column: str) -> str:
    """Returns the label and unit of a column."""
    return TABLES[table].column(column).title


def unit_of(table: str, column: str) -> str:
    return TABLES[table].column(column).unit


def label_of(table: str, column: str) -> str:
    return TABLES[table].column(column).label


def label_values(table: str, row: object, names: Iterable[str]) -> dict[str, Any]:
    """Returns the values of a row's columns under the columns' titles, as tables on pages list them."""
    return {title_of(table, name): getattr(row, name) for name in names}


def escape_text(text: str) -> str:
    """Escapes text of somebody else for Plotly, which then reads neither tags nor fields of a hover template in it."""
    return escape(text, quote=False).replace("%{", "&#37;{")


#: What holds no text.
_NUMBERS = {int, float, bool, type(None)}


def restrict(figure: go.Figure) -> go.Figure:
    """Returns the figure with no tags in its texts but those that charts write themselves: no links."""
    drawn = figure.to_dict()
    restricted = _restrict_value(drawn)
    return figure if restricted is drawn else go.Figure(restricted, skip_invalid=False)


def _restrict_value(value: Any) -> Any:
    """Returns the value itself if it stays as it is: building a figure anew takes as long as drawing it."""
    if isinstance(value, str):
        text = "".join(_restrict_text(value)) if "<" in value else value
        return value if text == value else text
    if isinstance(value, dict):
        inner = {name: _restrict_value(part) for name, part in value.items()}
        return value if all(map(is_, inner.values(), value.values())) else inner
    if isinstance(value, list | tuple):
        parts = value if {*map(type, value)} <= _NUMBERS else [_restrict_value(part) for part in value]
        return value if all(map(is_, parts, value)) else parts
    if getattr(getattr(value, "dtype", None), "hasobject", False):
        return [_restrict_value(part) for part in value.tolist()]
    return value


def _restrict_text(text: str) -> Iterator[str]:
    end = 0
    for found in _OURS.finditer(text):
        yield text[end : found.start()].replace("<", "&lt;")
        yield found[0]
        end = found.end()
    yield text[end:].replace("<", "&lt;")


def layout(*, height: int, state: str, legend: bool = True) -> dict[str, Any]:
    """Returns the layout of every chart. While `state` stays the same, zoom and hidden traces survive new data."""
    return {
        "height": height,
        "uirevision": state,
        "showlegend": legend,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xref": "paper",  # Streamlit's theme says container, for which Plotly widens the margin by the legend
            "xanchor": "left",
            "y": 1.0,
            "yanchor": "bottom",
            "title": "",
            "traceorder": "normal",
            "maxheight": 220,  # pixels: on a phone each entry has a line of its own, which Plotly would cut off
        },
        "margin": {"l": 8, "r": 8, "t": 36 if legend else 12, "b": 8},
        "hoverlabel": {"align": "left"},
        "bargap": 0.28,
        "dragmode": "zoom",
        "clickmode": "event+select",
    }


def format_power_of_ten(exponent: int) -> str:
    """Formats a power of ten in digits as large as other ticks': `10⁻⁸`, `1`."""
    return f"10{format_exponent(str(exponent))}" if exponent else "1"


def format_exponent(number: str) -> str:
    """Formats a number as an exponent: `⁻⁰·⁰²`."""
    return number.translate(str.maketrans("-.0123456789", "⁻·⁰¹²³⁴⁵⁶⁷⁸⁹"))


#: The ticks of a decade by tenths, fifths and halves, for axes over less than a decade.
_FINE_TICKS = [tuple(tenth / 10 for tenth in range(10, 100, every)) for every in (1, 2, 5)]


def log_ticks(low: float, high: float, *, most: int) -> list[float]:
    """Returns at most `most` round numbers from `low` to `high`, as dense as that allows: 1 2 5, or 1 100 10,000."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in (*_FINE_TICKS, (1, 1.5, 2, 3, 4, 5, 7), (1, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
        if len(ticks) <= most:
            break
    return ticks[:: max(1, math.ceil(len(ticks) / most))]


def format_short(value: float) -> str:
    """Formats a count: 98.3k, 3.15M, 1.2B."""
    for factor, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:g}"


def format_interval(low: float | None, high: float | None, *, unit: str = "") -> str:
    """Formats an interval: `1.22–1.27×`, `1.22–1.27 ms`, or words where there is none. Ends that have the same three
    digits are rounded away from each other."""
    if low is None or high is None:
        return "no interval: too few processes or samples"
    gap = " " if unit.isalpha() else ""
    if low < high and format_number(low) == format_number(high):
        last = 10.0 ** (math.floor(math.log10(high)) - 2)
        low, high = math.floor(low / last) * last, math.ceil(high / last) * last
    return f"{format_number(low)}–{format_number(high)}{gap}{unit}"


def format_named_interval(low: float | None, high: float | None, *, unit: str = "") -> str:
    """Formats an interval within a sentence: `95% interval 1.22–1.27 ms`, or words where there is none."""
    known = low is not None and high is not None
    return f"{'95% interval ' if known else ''}{format_interval(low, high, unit=unit)}"


def format_small(value: float) -> str:
    """Formats three digits, with a power of ten below 10⁻⁴: 0.00781, 9.54×10⁻⁷."""
    if value == 0 or value >= 1e-4:
        return format_number(value)
    digits, exponent = f"{value:.2e}".split("e")
    return f"{digits}×{format_power_of_ten(int(exponent))}"


def format_error(error: float | None) -> str:
    """Formats a relative error: `0.470%`, `3.40×10⁻⁷`, `unknown`."""
    if error is None:
        return "unknown"
    return f"{format_number(100 * error)}%" if error >= 1e-5 or error == 0 else format_small(error)
