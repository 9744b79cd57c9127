"""The headline of each experiment, on Overview: one card a question, its answer in a sentence, a way to the page."""

from collections.abc import Callable
from typing import Literal

import streamlit as st

from pages.parts.answers import speedup_answer, step_answer
from pages.parts.answers import ways as step_ways
from pages.parts.attention.opening import opening
from pages.parts.attention.words import answer as attention_answer
from pages.parts.chosen import rows_of
from pages.parts.comparison import comparison, unpaired, variants
from pages.parts.compile.bought import BASELINE, bought, ways
from pages.parts.compile.cards import of_bought
from pages.parts.compile.words import answer as compile_answer
from pages.parts.evidence import Found, is_open, of_cells, of_pairs, say
from pages.parts.frame import Frame
from pages.parts.markdown import restrict
from pages.parts.peak.words import answer as memory_answer
from runner.analysis.comparison import LeftOut
from runner.errors import DatabaseDamaged
from runner.store.queries.attention import attention_cells
from runner.store.queries.memory import peaks

#: An answer and what it rests on.
Answer = tuple[str, Found | None]


def headlines(frame: Frame) -> None:
    """A short answer for each question, over what the filters leave."""
    cards = (
        ("Training step", "training-step", _known(_step, frame)),
        ("Eager or compiled", "torch-compile", _known(compiled, frame)),
        ("Mixed precision", "mixed-precision", _known(_precision, frame)),
        ("Attention", "attention", _known(_attention, frame)),
        ("Peak memory", "peak-memory", _known(_memory, frame)),
    )
    for row in (cards[:3], cards[3:]):
        # Rows and a query need more room than a sentence.
        widths = [3 if is_open(address) else 1 for _, address, _ in row]
        height: Literal["stretch", "content"] = "content" if 3 in widths else "stretch"
        for column, (name, address, (words, found)) in zip(st.columns(widths), row, strict=True):
            # The ways on stand in one line, however long the answers are.
            with column.container(border=True, height=height, vertical_alignment="distribute"):
                with st.container():
                    st.markdown(restrict(f"#### {name}"))
                    say(frame, words, found, key=address)
                st.page_link(
                    frame.pages[address], label="Look closer", icon=":material/arrow_forward:", icon_position="right"
                )


def _known(answer: Callable[[Frame], Answer], frame: Frame) -> Answer:
    """The answer, or which table it needs that cannot be read."""
    try:
        return answer(frame)
    except DatabaseDamaged as error:
        return f"Unknown. {error.got}", None


def _step(frame: Frame) -> Answer:
    """The answer for the cells with which the page opens."""
    shown = next(iter(step_ways(frame.measured()).values()), [])
    return step_answer(frame, shown), of_cells(frame, shown)


def compiled(frame: Frame) -> Answer:
    """The answer of the page torch.compile."""
    items, left_out = bought(frame, ways(frame))
    if not items:
        return unpaired(frame, left_out, axis="backend", baseline=BASELINE), None
    return compile_answer(frame, items), of_bought(frame, items)


def _precision(frame: Frame) -> Answer:
    """The answer of the first precision that was measured beside fp32; the page has the others."""
    left_out: list[LeftOut] = []
    for name in variants(frame, "precision", baseline="fp32"):
        compared = comparison(frame, "precision", baseline="fp32", variant=name)
        if compared.speedups:
            return speedup_answer(compared, baseline="fp32", variant=name), of_pairs(frame, compared)
        left_out += compared.left_out
    return unpaired(frame, left_out, axis="precision", baseline="fp32"), None


def _attention(frame: Frame) -> Answer:
    """The answer for the cells with which the page opens."""
    cells = frame.ask(attention_cells, rows_of(frame))
    if not cells:
        return f"Not measured {frame.where}: `python -m runner sweep --experiment attention`.", None
    shown = opening(cells)
    return attention_answer(shown), of_cells(frame, shown)


def _memory(frame: Frame) -> Answer:
    """The answer for training steps, or for what there is."""
    held = [cell for cell in frame.ask(peaks, rows_of(frame)) if not cell.cell.checkpoint_blocks]
    if not held:
        return f"Not measured {frame.where}: `python -m runner sweep --experiment memory`.", None
    shown = [cell for cell in held if cell.cell.mode == "train"] or held
    return memory_answer(shown, frame.sizes), of_cells(frame, shown)
