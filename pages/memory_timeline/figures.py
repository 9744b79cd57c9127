"""What two peaks are made of, side by side: a pair of bars for each category.

category_bars([("activation", 81.0, 3.0)], names=("train", "inference"))
"""

from collections.abc import Sequence

import plotly.graph_objects as go

from pages.figures.colors import color_of
from pages.figures.frame import layout
from runner.formats import format_number


def category_bars(held: Sequence[tuple[str, float, float]], *, names: tuple[str, str]) -> go.Figure:
    """Draws `held`: category, MiB of the first, MiB of the second; the largest first. The second is hatched."""
    categories = [category for category, _, _ in held]
    colors = [color_of(category) for category in categories]
    figure = go.Figure()
    for side, name in enumerate(names):
        values = [(first, second)[side] for _, first, second in held]
        figure.add_bar(
            y=categories, x=values, name=name, orientation="h", text=[format_number(value) for value in values],
            textposition="outside", cliponaxis=False, hovertemplate="%{y}: %{x:,.2f} MiB<extra></extra>",
            marker={"color": colors, "pattern": {"shape": "/" if side else "", "fillmode": "overlay", "size": 6}},
        )  # fmt: skip
    figure.update_layout(**layout(height=90 + 46 * len(categories), state=" ".join(names)), barmode="group")
    figure.update_xaxes(title="Held at the peak (MiB)", rangemode="tozero")
    figure.update_yaxes(autorange="reversed")
    return figure
