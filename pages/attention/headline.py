"""What Overview shows of Attention: its cost at the longest length of the naive one, and the longest that fits."""

from collections.abc import Sequence

from pages.attention.answers import answer, find_longest_naive
from pages.attention.choose import choose_default
from pages.figures.colors import color_of
from pages.figures.small import SmallBar
from pages.ui.chosen import rows_of
from pages.ui.evidence import of_cells
from pages.ui.frame import Frame, Headline, Topic
from pages.ui.frontier import describe_search, describe_sequences, load_answers
from runner.analysis.compare.speedups import name_attention
from runner.formats import format_ms
from runner.results import AttentionResult
from runner.store.queries.attention import load_attention


def _answer(frame: Frame) -> Headline:
    """Returns the answer for the cells with which the page opens."""
    cells = frame.ask(load_attention, rows_of(frame))
    if not cells:
        return Headline(words=f"No attention cell was measured {frame.where}.", missing="attention")
    shown = choose_default(cells)
    return Headline(words=answer(shown), evidence=of_cells(frame, shown), bars=_draw_times(shown), graded=shown)


def _draw_times(cells: Sequence[AttentionResult]) -> list[SmallBar]:
    """Returns the time of each implementation at the longest length that the naive one has run at."""
    longest = find_longest_naive(cells)
    same = [c for c in cells if longest and c.cell.seq_len == longest.cell.seq_len and "forward_backward" in c.times]
    times = [(name_attention(c.cell), c.cell.implementation, c.times["forward_backward"]) for c in same]
    return [
        SmallBar(name=name, value=time.median_ms, words=format_ms(time.median_ms), color=color_of(implementation),
                 low=time.low_ms, high=time.high_ms)
        for name, implementation, time in sorted(times, key=lambda item: -item[2].median_ms)
    ]  # fmt: skip


def _answer_longest(frame: Frame) -> Headline:
    rows = load_answers(frame, "seq_len")
    if not rows:
        return Headline(words=f"The longest sequence that fits was not searched for {frame.where}.", missing="frontier")
    return Headline(
        words=describe_sequences(rows),
        evidence=of_cells(frame, rows),
        bars=[
            SmallBar(
                name=f"{row.cell.implementation}, d {row.cell.d_head}",
                value=float(row.largest),
                words=f"{row.largest:,} tokens",
                color=color_of(row.cell.implementation),
            )
            for row in sorted(rows, key=lambda row: -(row.largest or 0))
            if row.largest
        ],
        doubt=describe_search(rows),
    )


TOPICS = {
    "attention": Topic(title="Attention", address="attention", ask=_answer),
    "frontier": Topic(title="Longest sequence that fits", address="attention", ask=_answer_longest),
}
