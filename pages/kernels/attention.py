"""The card of ranges inside attention: softmax against the matrix products, in time and in FLOPs.

    draw_attention(frame, name, trace)

`runner.analysis.attention_ranges` recognizes them.
"""

from collections.abc import Sequence

import streamlit as st

from pages.figures.frame import title_of
from pages.kernels.answers import WHOLE, name_trace, phase_words, phases_of
from pages.kernels.part_figures import RangeBar, range_bars
from pages.ui.card import Card, draw
from pages.ui.chosen import chosen
from pages.ui.evidence import of_details, say
from pages.ui.frame import Frame
from pages.ui.markdown import literal, restrict
from pages.ui.sections import draw_heading
from runner.analysis.attention_ranges import MATMULS, AttentionRange, attention_ranges, role_of
from runner.formats import format_number, format_quantity, format_share
from runner.results import KernelTrace
from runner.store.read.kernels import load_ranges

_COUNTED = " FLOPs of softmax by formula: 5 an attention weight forward, 4 backward; the mask's are not counted."
_COLORS = {"softmax": "softmax", "mask": "elementwise"}


def describe_ranges(inside_attention: Sequence[AttentionRange], name: str, trace: KernelTrace) -> str:
    """Compares softmax with the two matrix products, in time and in FLOPs."""
    softmax = next((item for item in inside_attention if item.role == "softmax"), None)
    products = [item for item in inside_attention if item.role in MATMULS]
    if softmax is None or not products:
        return f"In {name_trace(name, trace)} no ranges name both softmax and the matrix products of attention."
    matmul_ms = sum(item.device_ms for item in products)
    ratio = softmax.device_ms / matmul_ms if matmul_ms else 0.0
    words = (
        f"In {name_trace(name, trace)}, softmax takes **{format_number(softmax.device_ms)} ms** and the matrix "
        f"products around it **{format_number(matmul_ms)} ms**: **{format_share(ratio)}** of their time"
    )
    if softmax.flops is None or any(item.flops is None for item in products):
        return f"{words}. FLOPs of this trace are not known."
    flops = sum(item.flops or 0 for item in products)
    share = softmax.flops / flops if flops else 0.0
    counted = " against ".join(format_quantity(number, "FLOP") for number in (softmax.flops, flops))
    return (
        f"{words} for **{format_share(share)}** of their FLOPs ({counted}). "
        f"A FLOP of softmax takes **{format_number(ratio / share)}×** as long as one of a matrix product."
        if share
        else f"{words}."
    )


def draw_attention(frame: Frame, name: str, trace: KernelTrace) -> None:
    draw_heading(frame, "Inside attention: softmax or matrix products?", anchor="attention-ranges")
    parts = frame.ask(load_ranges, trace.cell_id)
    phases = list(dict.fromkeys(part.phase for part in parts if role_of(part.scope)))
    if not phases:
        st.caption(restrict(_explain_missing(trace)))
        return
    options: dict[str, list[str]] = {phase_words(phase): [phase] for phase in phases_of(phases)}
    if len(phases) > 1:
        options[WHOLE] = phases
    picked = chosen("attention-phase", "Phase of attention", list(options)) if len(options) > 1 else next(iter(options))
    inside_attention = attention_ranges(parts, trace, phases=options[picked])
    words = describe_ranges(inside_attention, name, trace)
    say(frame, words, of_details(frame, "ranges", [trace.cell_id]), key="attention-ranges")
    bars = [RangeBar(name=item.role, entity=_COLORS.get(item.role, "matmul"), device_ms=item.device_ms,
                     flops=item.flops) for item in inside_attention]  # fmt: skip
    card = Card(
        key="attention-ranges",
        title=f"Ranges inside attention: {literal(picked)}",
        note="Everything that was launched in a range counts, scaling and casts too."
        + (_COUNTED if trace.cell else ""),
        alt=words,
        rows=[
            {
                title_of("kernels", "scope"): item.role,
                title_of("kernels", "device_ms"): item.device_ms,
                title_of("kernels", "calls"): item.calls,
                title_of("kernels", "flops"): item.flops,
            }
            for item in inside_attention
        ],
        cells=[trace.cell] if trace.cell else [],
    )
    draw(frame, card, lambda: range_bars(bars))


def _explain_missing(trace: KernelTrace) -> str:
    if trace.cell is None:
        return "No range of this trace names a part of attention, such as “attention scores” or “attention softmax”."
    if trace.cell.backend != "eager":
        return "Ranges inside attention cannot be told apart here: the compiler fuses across them."
    if trace.cell.attention != "naive":
        return f"Attention is one fused kernel here ({trace.cell.attention}): no softmax of its own, and no scores."
    return "No range inside attention was recorded for this cell."
