"""What fills memory during a step, and where in the code does it come from? Every allocation, until it is freed."""

import streamlit as st

from pages.memory_timeline.answers import answer, describe_difference, difference_rows
from pages.memory_timeline.figures import category_bars
from pages.memory_timeline.pane import Look, pane
from pages.ui.card import Card, draw
from pages.ui.chosen import chosen, mark_chosen, report_missing, select_one
from pages.ui.evidence import of_details, say
from pages.ui.frame import Frame, Page
from pages.ui.heading import draw_title
from pages.ui.states import draw_unmeasured
from runner.results import Timeline
from runner.store.queries.timelines import load_columns, load_parts_at, load_timelines

#: Sizes below which blocks are folded into one, in words and bytes.
FOLDS = {"nothing": 0, **{f"{size} KiB": size * 2**10 for size in (1, 4, 16, 64, 256)},
         **{f"{size} MiB": size * 2**20 for size in (1, 4, 16, 64)}}  # fmt: skip
ALONE = "nothing"
FOLDED = "folded"


def page(frame: Frame) -> None:
    draw_title(
        frame,
        "Memory timeline: every allocation of a step",
        question="What fills memory during a step, and where in the code does it come from?",
    )
    by_label = {item.label: item for item in frame.ask(load_timelines, frame.selection.run, frame.selection.machine)}
    if not by_label:
        draw_unmeasured(
            (f"**No timeline is recorded {frame.where}.** This records steps, every allocation with its stack:",
             frame.sweep("--experiment memory --modes train,inference --timeline")),
            ("Or bring a snapshot that `torch.cuda.memory._dump_snapshot` wrote:",
             "python -m runner import snapshot.pickle"),
            listed="timelines",
        )  # fmt: skip
        return
    lead = st.empty()
    shown, look = _choose(by_label)
    for side, place, item in zip(("left", "right"), st.columns(len(shown)), shown, strict=False):
        with place:
            pane(frame, item, side=side, look=look)
    parts = [frame.ask(load_parts_at, item.cell_id, item.peak_at_us) for item in shown]
    sentence = answer(shown[0], frame.ask(load_columns, shown[0].cell_id), parts[0])
    evidence = of_details(frame, "timelines", [item.cell_id for item in shown])
    if len(shown) == 1:
        say(frame, sentence, evidence, at=lead)
        return
    compared = describe_difference(shown[0], shown[1], (parts[0], parts[1]))
    say(frame, f"{sentence} {compared}", evidence, at=lead)
    rows = difference_rows(shown[0], shown[1], (parts[0], parts[1]))
    card = Card(
        key="difference",
        title="What the two peaks are made of",
        rows=rows,
        alt=compared,
        note="Each at its own peak. The curves above share one scale.",
    )
    draw(
        frame,
        card,
        lambda: category_bars([tuple(row.values())[:3] for row in rows], names=(shown[0].label, shown[1].label)),
    )


def _choose(by_label: dict[str, Timeline]) -> tuple[list[Timeline], Look]:
    """Returns the timelines to draw, one or two, and what is folded in them."""
    labels = list(by_label)
    trained = next((label for label in labels if (cell := by_label[label].cell) and cell.mode == "train"), labels[0])
    left, middle, right = st.columns(3)
    with left:
        first = select_one("timeline", "Timeline", labels, default=trained)
    with middle:
        second = select_one("beside", "Beside it", [ALONE, *labels])
    with right:
        report_missing("fold", "Fold", FOLDS)
        fold = st.select_slider("Fold blocks smaller than", list(FOLDS), value="4 KiB", key="fold",
                                bind="query-params", on_change=mark_chosen, args=("fold",))  # fmt: skip
    shown = [by_label[first]]
    if second != ALONE and second != first:
        shown.append(by_label[second])
    folds_held = True
    if any(item.origin == "imported" for item in shown):
        folds_held = chosen("held", "Held before the recording", [FOLDED, "drawn"]) == FOLDED
    scale = max(item.peak_bytes for item in shown)
    return shown, Look(fold_bytes=FOLDS[fold], scale_bytes=scale, folds_held=folds_held)


PAGE = Page(
    title="Memory timeline",
    address="memory-timeline",
    icon=":material/view_timeline:",
    draw=page,
    filters=("machine", "run"),
)
