"""The parts of a question's chart.

Chart(title="Phases by size and context", note="Medians.", figure=lambda: phase_bars(bars, view="time"))
"""

from collections.abc import Callable
from dataclasses import dataclass

import plotly.graph_objects as go

#: More lines or bars than these are not one picture any more.
MAX_PLACES = 24


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart with its title, how to read it, and what draws it."""

    title: str
    note: str
    figure: Callable[[], go.Figure]
