"""The headline of each experiment, on Overview: one card a question, its answer in a sentence, a way to the page."""

import streamlit as st

from pages.parts.answers import speedup_answer, step_answer
from pages.parts.attention.words import answer as attention_answer
from pages.parts.chosen import most_common, rows_of
from pages.parts.comparison import comparison, variants
from pages.parts.frame import Frame
from pages.parts.peak.words import answer as memory_answer
from runner.analysis.comparison import Axis
from runner.store.queries.attention import attention_cells
from runner.store.queries.memory import peaks


def headlines(frame: Frame) -> None:
    """A short answer for each question, over what the filters leave."""
    cards = (
        ("Training step", "training-step", _step(frame)),
        ("Eager or compiled", "torch-compile", _against(frame, "backend", baseline="eager")),
        ("Mixed precision", "mixed-precision", _against(frame, "precision", baseline="fp32")),
        ("Attention", "attention", _attention(frame)),
        ("Peak memory", "peak-memory", _memory(frame)),
    )
    for row in (cards[:3], cards[3:]):
        for column, (name, address, answer) in zip(st.columns(len(row)), row, strict=True):
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
        return f"Only {baseline} was measured here." if frame.measured() else "Not measured here."
    compared = comparison(frame, axis, baseline=baseline, variant=names[0])
    return speedup_answer(compared, baseline=baseline, variant=names[0])


def _attention(frame: Frame) -> str:
    """The answer for the precision, mask and head width that most cells have."""
    cells = frame.ask(attention_cells, rows_of(frame))
    if not cells:
        return "Not measured here: `python -m runner sweep --experiment attention`."
    usual = most_common((cell.cell.precision, cell.cell.causal, cell.cell.d_head) for cell in cells)
    return attention_answer([c for c in cells if (c.cell.precision, c.cell.causal, c.cell.d_head) == usual])


def _memory(frame: Frame) -> str:
    """The answer for training steps, or for what there is."""
    held = [cell for cell in frame.ask(peaks, rows_of(frame)) if not cell.cell.checkpoint_blocks]
    if not held:
        return "Not measured here: `python -m runner sweep --experiment memory`."
    trained = [cell for cell in held if cell.cell.mode == "train"]
    return memory_answer(trained or held, frame.sizes)
