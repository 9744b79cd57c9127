"""What Overview shows of Training step: the longest step and where its time goes."""

from pages.figures.colors import color_of
from pages.figures.frame import WORDS
from pages.figures.small import SmallBar
from pages.ui.answers import find_longest, step_answer, ways
from pages.ui.evidence import of_cells
from pages.ui.frame import Frame, Headline, Topic
from runner.formats import format_ms
from runner.results import StepResult


def _answer(frame: Frame) -> Headline:
    """Returns the answer for the cells with which the page opens."""
    shown = next(iter(ways(frame.measured()).values()), [])
    longest = find_longest(shown)
    return Headline(
        words=step_answer(frame, shown),
        evidence=of_cells(frame, shown),
        bars=_draw_phases(longest) if longest else (),
        graded=[longest] if longest else (),
        missing="" if shown else "benchmark",
    )


def _draw_phases(cell: StepResult) -> list[SmallBar]:
    return [
        SmallBar(
            name=WORDS[phase],
            value=time.median_ms,
            words=format_ms(time.median_ms),
            color=color_of(phase),
            low=time.low_ms,
            high=time.high_ms,
        )
        for phase, time in cell.times.items()
        if phase not in ("step", "forward_backward")
    ]


TOPICS = {"training-step": Topic(title="Training step", address="training-step", ask=_answer)}
