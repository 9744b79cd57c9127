"""The headline of each experiment, on Overview: one card a question, its answer in a sentence, a way to the page."""

import streamlit as st

from pages.parts.answers import speedup_answer, step_answer
from pages.parts.comparison import comparison, variants
from pages.parts.frame import Frame
from runner.analysis.comparison import Axis


def headlines(frame: Frame) -> None:
    """Three short answers over what the filters leave."""
    cards = (
        ("Training step", "training-step", _step(frame)),
        ("Eager or compiled", "training-step", _against(frame, "backend", baseline="eager")),
        ("Mixed precision", "mixed-precision", _against(frame, "precision", baseline="fp32")),
    )
    for column, (name, address, answer) in zip(st.columns(len(cards)), cards, strict=True):
        with column.container(border=True, height="stretch"):
            st.markdown(f"#### {name}")
            st.markdown(answer)
            st.page_link(
                frame.pages[address], label="Look closer", icon=":material/arrow_forward:", icon_position="right"
            )


def _step(frame: Frame) -> str:
    cells = frame.measured()
    plain = [cell for cell in cells if (cell.cell.precision, cell.cell.backend) == ("fp32", "eager")]
    return step_answer(frame, plain or cells)


def _against(frame: Frame, axis: Axis, *, baseline: str) -> str:
    """The first variant's answer; the page has the others."""
    names = variants(frame, axis, baseline=baseline)
    if not names:
        return f"Only {baseline} was measured here."
    compared = comparison(frame, axis, baseline=baseline, variant=names[0])
    return speedup_answer(compared, baseline=baseline, variant=names[0])
