"""What Overview shows of Roofline: how far the longest step is from its limit, and which changes would help."""

from pages.figures.colors import color_of
from pages.figures.small import SmallBar
from pages.roofline.answers import describe_limit
from pages.roofline.changes import describe_change, describe_ranking, load_changes
from pages.roofline.limits import DeviceLimits, limits_of
from pages.ui.answers import find_longest
from pages.ui.evidence import of_cells
from pages.ui.frame import Frame, Headline, Topic
from runner.analysis.roofline import least_ms
from runner.formats import format_number, format_share
from runner.results import StepResult
from runner.schema.titles import title


def _answer_limit(frame: Frame) -> Headline:
    done = [cell for cell in frame.measured() if cell.status == "ok" and "step" in cell.times]
    cells = [cell for cell in done if cell.cell.model_key is None]
    longest = find_longest(cells)
    if done and longest is None:
        return Headline(words="The fewest bytes that a step of an own model has to move are not known.")
    if longest is None:
        return Headline(words=f"No step {frame.among} has a result.", missing="benchmark")
    limits = limits_of(frame)
    return Headline(
        words=describe_limit(frame, longest, limits),
        evidence=of_cells(frame, cells),
        bars=_draw_shares(frame, cells, limits),
        mark=1.0,
        graded=[longest],
        doubt=""
        if limits.measured(longest.cell.precision)
        else "The limit is the datasheet's: none was measured here.",
    )


def _draw_shares(frame: Frame, cells: list[StepResult], limits: DeviceLimits) -> list[SmallBar]:
    """Returns the share of its limit that the longest step of each precision reaches."""
    bars = []
    for precision in dict.fromkeys(cell.cell.precision for cell in cells):
        cell, roof = find_longest([c for c in cells if c.cell.precision == precision]), limits.roof(precision)
        if cell and roof:
            share = least_ms(cell.cell, roof, device=limits.device) / cell.times["step"].median_ms
            name = f"{precision}, {frame.size_of(cell.cell).split(' · ')[0]}"
            bars.append(SmallBar(name=name, value=share, words=format_share(share), color=color_of(precision)))
    return bars


def _answer_changes(frame: Frame) -> Headline:
    found = load_changes(frame)
    if found is None:
        return Headline(words=f"No step {frame.among} was measured in more than one way.", missing="counterfactuals")
    base, changes = next(iter(found.bases.values())), found.of_first()
    timed = [(change, change.speedup) for change in changes if change.speedup]
    return Headline(
        words=f"**{title(base.cell)}:** {describe_ranking(changes)}",
        evidence=of_cells(frame, [base, *(change.cell for change in changes)], run=found.run),
        bars=[
            SmallBar(
                name=describe_change(change),
                value=speedup.ratio,
                words=f"{format_number(speedup.ratio)}×",
                color=color_of(change.cell.cell.precision),
                low=speedup.low,
                high=speedup.high,
            )
            for change, speedup in sorted(timed, key=lambda item: -item[1].ratio)
        ],
        mark=1.0,
        graded=[base, *(change.cell for change in changes)],
    )


TOPICS = {
    "roofline": Topic(title="Roofline", address="roofline", ask=_answer_limit),
    "changes": Topic(title="What would help", address="roofline", ask=_answer_changes),
}
