"""What Overview shows of Peak memory: the largest peak and its parts, and how much of a whole model fits."""

from collections.abc import Sequence

from pages.figures.colors import color_of
from pages.figures.parts import ALLOCATOR, CATEGORY_WORDS
from pages.figures.small import SmallBar
from pages.peak_memory.answers import answer, find_largest
from pages.ui.chosen import rows_of
from pages.ui.evidence import of_cells
from pages.ui.frame import Frame, Headline, Topic
from pages.ui.frontier import Model, describe_models, describe_search, load_answers, name_way
from runner.formats import format_bytes
from runner.results import Frontier, Peak
from runner.store.queries.memory import load_peaks

_UNITS: dict[Model, str] = {"context": "tokens", "batch": "sequences"}


def _answer(frame: Frame) -> Headline:
    """Returns the answer for training steps, or for what there is."""
    measured = [cell for cell in frame.ask(load_peaks, rows_of(frame)) if not cell.cell.checkpoint_blocks]
    if not measured:
        return Headline(words=f"No memory cell was measured {frame.where}.", missing="memory")
    shown = [cell for cell in measured if cell.cell.mode == "train"] or measured
    largest = find_largest(shown)
    return Headline(
        words=answer(shown, frame.sizes),
        evidence=of_cells(frame, shown),
        bars=_draw_parts(largest) if largest else (),
        graded=[largest] if largest else (),
    )


def _draw_parts(cell: Peak) -> list[SmallBar]:
    parts = sorted(((size, name) for name, size in cell.parts.items() if size and name not in ALLOCATOR), reverse=True)
    return [
        SmallBar(name=CATEGORY_WORDS[name], value=float(size), words=format_bytes(size), color=color_of(name))
        for size, name in parts
    ]


def _answer_largest(frame: Frame) -> Headline:
    found = {grows: rows for grows in _UNITS if (rows := load_answers(frame, grows))}
    if not found:
        words = f"The largest context and batch that fit were not searched for {frame.where}."
        # The search knows Stepscope's own Transformer alone: of other models nothing is missing.
        return Headline(words="") if frame.own_models else Headline(words=words, missing="frontier")
    return Headline(
        words=" ".join(describe_models(rows, grows) for grows, rows in found.items()),
        evidence=of_cells(frame, [row for rows in found.values() for row in rows]),
        bars=[bar for grows, rows in found.items() for bar in _draw_answers(rows, _UNITS[grows])][:4],
        doubt=describe_search([row for rows in found.values() for row in rows]),
    )


def _draw_answers(rows: Sequence[Frontier], unit: str) -> list[SmallBar]:
    known = [row for row in rows if row.largest]
    whole = max((row.largest or 0 for row in known), default=1)
    return [
        SmallBar(
            name=name_way(row.cell),
            value=(row.largest or 0) / whole,
            words=f"{row.largest or 0:,} {unit}",
            color=color_of(row.cell.precision),
        )
        for row in sorted(known, key=lambda row: -(row.largest or 0))[:2]
    ]


TOPICS = {
    "peak-memory": Topic(title="Peak memory", address="peak-memory", ask=_answer),
    "model-frontier": Topic(title="Largest step that fits", address="peak-memory", ask=_answer_largest),
}
