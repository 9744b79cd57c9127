"""How much faster is mixed precision? The same cells in fp32 and in bf16, fp16 or tf32, by phase and by size."""

import streamlit as st

from pages.figures.speedups import speedup_trend
from pages.mixed_precision.accuracy import draw_accuracy
from pages.mixed_precision.headline import BASELINE, TOPICS
from pages.mixed_precision.prices import price
from pages.ui import marks
from pages.ui.answers import speedup_answer, trend_answer
from pages.ui.card import Card, draw
from pages.ui.chosen import chosen
from pages.ui.comparison import comparison, draw_dots, list_left_out, variants
from pages.ui.evidence import of_pairs, say
from pages.ui.frame import Frame, Page
from pages.ui.heading import draw_title
from pages.ui.markdown import quoted
from pages.ui.samples import draw_samples
from pages.ui.states import no_rows
from pages.ui.trust import draw_trust


def page(frame: Frame) -> None:
    draw_title(
        frame,
        "Mixed precision: speedup over fp32 and accuracy",
        question="How much faster is mixed precision, and what does it cost in accuracy?",
    )
    names = variants(frame, "precision", baseline=BASELINE)
    if not names:
        no_rows(
            "There is only one precision here.", f"Measure another: {quoted(frame.sweep('--precisions fp32,bf16'))}."
        )
        draw_accuracy(frame)
        return
    lead = st.empty()
    variant = chosen("against", "Compared with fp32", names)
    compared = comparison(frame, "precision", baseline=BASELINE, variant=variant)
    answer = speedup_answer(compared, baseline=BASELINE, variant=variant)
    cost, errors = price(frame, variant)
    words = f"{answer} {trend_answer(compared.speedups)} {cost}"
    say(frame, words, of_pairs(frame, compared), errors, at=lead)
    draw_dots(frame, compared, axis="precision", variant=variant, baseline=BASELINE)
    if compared.speedups:
        _draw_trend(frame, variant)
    list_left_out(frame, compared, axis="precision")
    if compared.speedups:
        draw_trust(frame, [side for pair in compared.speedups for side in (pair.base, pair.other)])
    draw_accuracy(frame)
    if compared.speedups:
        draw_samples(frame, frame.measured())


def _draw_trend(frame: Frame, variant: str) -> None:
    compared = comparison(frame, "precision", baseline=BASELINE, variant=variant)
    dots = marks.speedup_dots_of(frame, compared, axis="precision")
    card = Card(
        key="trend",
        title="Trend with size",
        note="Each dot is a pair, over the number of parameters; lines join the geometric means.",
        alt=f"Speedup of {variant} over the number of parameters. {trend_answer(compared.speedups)}",
        rows=marks.speedup_table(frame, compared),
        cells=[side.cell for pair in compared.speedups for side in (pair.base, pair.other)],
    )
    draw(frame, card, lambda: speedup_trend(dots, variant=variant))


PAGE = Page(
    title="Mixed precision", address="mixed-precision", icon=":material/compare_arrows:", draw=page, topics=TOPICS
)
