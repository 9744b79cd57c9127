"""What does torch.compile buy, and when has it paid for itself? Every way beside eager, compile time, break-even."""

import streamlit as st

from pages.parts.answers import speedup_answer
from pages.parts.comparison import choose_variant, comparison, draw_dots, list_left_out, unpaired
from pages.parts.compile.bought import BASELINE, bought, ways
from pages.parts.compile.cards import draw_costs, draw_paid, draw_ways, of_bought
from pages.parts.compile.words import answer
from pages.parts.evidence import of_pairs, say
from pages.parts.frame import Frame
from pages.parts.samples import draw_samples
from pages.parts.states import no_rows
from pages.parts.trust import draw_trust


def page(frame: Frame) -> None:
    st.title("What does torch.compile buy, and when has it paid for itself?", anchor=False)
    names = ways(frame)
    items, left_out = bought(frame, names)
    if not items:
        no_rows(
            unpaired(frame, left_out, axis="backend", baseline=BASELINE),
            "Measure it: `python -m runner sweep --experiment compile --backends eager,compiled`.",
        )
        return
    words = answer(frame, items)
    cells = [side for item in items for side in (item.step.base, item.step.other)]
    say(frame, words, of_bought(frame, items))
    draw_ways(frame, items, left_out, words=words)
    draw_costs(frame, items)
    draw_paid(frame, items)
    _phases(frame, names)
    draw_trust(frame, cells)
    draw_samples(frame, frame.measured())


def _phases(frame: Frame, names: list[str]) -> None:
    """One way, phase by phase."""
    st.header("Which phase becomes faster?", anchor="phases")
    lead = st.empty()
    # Those with pairs first: the first is what is compared unless the reader says otherwise.
    names = sorted(names, key=lambda name: not comparison(frame, "backend", baseline=BASELINE, variant=name).speedups)
    variant = choose_variant(names, key="compiled", label="Compared with eager")
    compared = comparison(frame, "backend", baseline=BASELINE, variant=variant)
    said = [speedup_answer(compared, baseline=BASELINE, variant=variant, phase=p) for p in ("forward", "backward")]
    words = " ".join(dict.fromkeys(text for text in said if text))
    say(frame, words, of_pairs(frame, compared), at=lead, key="phases")
    draw_dots(frame, compared, axis="backend", variant=variant, baseline=BASELINE)
    list_left_out(frame, compared, axis="backend")
