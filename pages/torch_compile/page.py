"""How much faster does torch.compile make a step, and when does it pay off? Every backend, compile time, break-even."""

import streamlit as st

from pages.torch_compile.answers import answer
from pages.torch_compile.cards import draw_costs, draw_paid, draw_ways, evidence_of_speedups
from pages.torch_compile.headline import TOPICS
from pages.torch_compile.speedups import BASELINE, load_speedups, ways
from pages.ui.answers import speedup_answer
from pages.ui.chosen import chosen
from pages.ui.comparison import comparison, draw_dots, explain_unpaired, list_left_out
from pages.ui.evidence import of_pairs, say
from pages.ui.frame import Frame, Page
from pages.ui.heading import draw_title
from pages.ui.markdown import quoted
from pages.ui.samples import draw_samples
from pages.ui.sections import draw_heading
from pages.ui.states import no_rows
from pages.ui.trust import draw_trust


def page(frame: Frame) -> None:
    draw_title(
        frame,
        "torch.compile: speedup, compile time, break-even",
        question="How much faster does torch.compile make a step, and when does it pay off?",
    )
    names = ways(frame)
    items, left_out = load_speedups(frame, names)
    if not items:
        no_rows(
            explain_unpaired(frame, left_out, axis="backend", baseline=BASELINE),
            f"Measure it: {quoted(frame.sweep('--experiment compile --backends eager,compiled'))}.",
        )
        return
    words = answer(frame, items)
    cells = [side for item in items for side in (item.step.base, item.step.other)]
    say(frame, words, evidence_of_speedups(frame, items))
    draw_ways(frame, items, left_out, words=words)
    draw_costs(frame, items)
    draw_paid(frame, items)
    _draw_phases(frame, names)
    draw_trust(frame, cells)
    draw_samples(frame, frame.measured())


def _draw_phases(frame: Frame, names: list[str]) -> None:
    """Compares one backend with eager, phase by phase."""
    draw_heading(frame, "Which phase becomes faster?", anchor="phases")
    lead = st.empty()
    # Those with pairs first: the first is what is compared unless the reader says otherwise.
    names = sorted(names, key=lambda name: not comparison(frame, "backend", baseline=BASELINE, variant=name).speedups)
    variant = chosen("compiled", "Compared with eager", names)
    compared = comparison(frame, "backend", baseline=BASELINE, variant=variant)
    sentences = [speedup_answer(compared, baseline=BASELINE, variant=variant, phase=p) for p in ("forward", "backward")]
    words = " ".join(dict.fromkeys(text for text in sentences if text))
    say(frame, words, of_pairs(frame, compared), at=lead, key="phases")
    draw_dots(frame, compared, axis="backend", variant=variant, baseline=BASELINE)
    list_left_out(frame, compared, axis="backend")


PAGE = Page(title="torch.compile", address="torch-compile", icon=":material/bolt:", draw=page, topics=TOPICS)
