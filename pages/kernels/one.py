"""The cards about one trace: what each phase is made of, and which kernels take the most time.

draw_phases(frame, name, trace, parts); draw_top(frame, trace)
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

import streamlit as st

from pages.figures.frame import label_values
from pages.figures.kernels import ClassBar, NamedKernel, View, class_bars, kernel_bars, short_name
from pages.kernels.answers import WHOLE, answer, noun, per, phase_words, phases_of
from pages.ui.card import Card, draw
from pages.ui.chosen import chosen
from pages.ui.evidence import of_cells, of_details, say
from pages.ui.frame import Frame
from pages.ui.markdown import literal, quoted
from pages.ui.sections import draw_heading
from runner.analysis.kernel_sums import sum_by_class, sum_by_kernel
from runner.formats import format_calls
from runner.results import Kernel, KernelPart, KernelTrace
from runner.store.read.kernels import load_kernels

#: More kernels than these are not one picture any more; the table has them all.
MAX_KERNELS = 15
_PART = ("phase", "kernel_class", "calls", "device_ms", "flops")


def draw_phases(frame: Frame, name: str, trace: KernelTrace, parts: Sequence[KernelPart]) -> None:
    view = cast(View, chosen("phases-in", "Show as", list(get_args(View)), default="time"))
    bars = [
        ClassBar(place=phase_words(phase), cell_id=str(trace.cell_id), parts=sum_by_class(parts, phase=phase))
        for phase in phases_of(part.phase for part in parts)
    ]
    if len(bars) > 1:
        bars.append(ClassBar(place=_name_total(trace), cell_id=str(trace.cell_id), parts=sum_by_class(parts)))
    rows = [label_values("kernels", part, _PART) for part in parts]
    traced = (
        ""
        if trace.attributed_share is None
        else f"**{trace.attributed_share:.0%}** of the time is assigned to a phase."
    )
    own = "Operators' own times, without the operators that they call." if noun(trace) == "operators" else (
        "A kernel counts where it was launched, whenever it ran.")  # fmt: skip
    card = Card(
        key="kernel-classes",
        title="Each phase by kind of work",
        answer=traced,
        evidence=[of_cells(frame, [trace])],
        note=f"Times of {per(trace)}. {own}",
        alt=answer(name, trace, parts),
        rows=rows,
        cells=[trace.cell] if trace.cell else [],
    )
    draw(frame, card, lambda: class_bars(bars, view=view, state="kernel-classes"))


def _name_total(trace: KernelTrace) -> str:
    return WHOLE if trace.steps else "together"


def draw_top(frame: Frame, trace: KernelTrace) -> None:
    """Draws the kernels with the most time in a phase of the reader's choice."""
    listed = frame.ask(load_kernels, trace.cell_id)
    one = noun(trace)
    draw_heading(frame, f"Which {one} take the most time?", anchor="top-kernels")
    if not listed:
        st.caption("This trace lists no kernels.")
        return
    words = describe_top(listed, trace)
    say(frame, words, of_details(frame, "kernels", [trace.cell_id]), key="kernels")
    options = {phase_words(phase): phase for phase in phases_of(kernel.phase for kernel in listed)}
    phase = chosen("kernel-phase", "Phase", [*([_name_total(trace)] if len(options) > 1 else []), *options])
    inside = [kernel for kernel in listed if options.get(phase, kernel.phase) == kernel.phase]
    ranked = list(sum_by_kernel(inside).items())
    whole = sum(took for _, (took, _) in ranked) or 1.0
    kinds = {kernel.kernel: kernel.kernel_class for kernel in reversed(inside)}
    bars = [
        NamedKernel(name=name, kernel_class=kinds[name], device_ms=took, calls=count, share=took / whole)
        for name, (took, count) in ranked[:MAX_KERNELS]
    ]
    cut = f" The first {MAX_KERNELS} of {len(ranked)} are drawn; the table has all."
    card = Card(
        key="kernels",
        title=f"Top {one}: {literal(phase)}",
        note=f"Share of the phase, and calls in {per(trace)}." + (cut if len(ranked) > MAX_KERNELS else ""),
        alt=words,
        rows=[_make_row(kernel, whole) for kernel in inside],
        cells=[trace.cell] if trace.cell else [],
    )
    draw(frame, card, lambda: kernel_bars(bars))


def _make_row(kernel: Kernel, whole: float) -> dict[str, Any]:
    names = ("phase", "kernel", "kernel_class", "calls", "device_ms", "operator", "scope", "flops", "moved_bytes")
    return {**label_values("kernels", kernel, names), "Share": kernel.device_ms / whole}


def describe_top(listed: Sequence[Kernel], trace: KernelTrace) -> str:
    """Says which kernel takes the most time forward, how often it is called, and whether it leads with backward,
    too."""
    one = noun(trace).removesuffix("s")
    forward = sum_by_kernel(listed, ("forward",))
    if not forward:
        name, calls, share = _find_longest(sum_by_kernel(listed))
        return f"The {one} that takes the most time is {_quote_name(name)}: {share} of the time in {calls} calls."
    name, calls, share = _find_longest(forward)
    words = f"In the forward pass {_quote_name(name)} takes the most time: **{share}** in **{calls} calls**."
    if not any(kernel.phase == "backward" for kernel in listed):
        return words
    leader, calls, share = _find_longest(sum_by_kernel(listed, ("forward", "loss", "backward")))
    rest = f"{share} in {calls} calls"
    if leader == name:
        return f"{words} In forward and backward together it is the **same** {one}: {rest}."
    return f"{words} In forward and backward together it is **another**, {_quote_name(leader)}: {rest}."


def _find_longest(sums: Mapping[str, tuple[float, float]]) -> tuple[str, str, str]:
    """Returns the kernel with the most time, its calls and its share of all time, as text."""
    (name, (took, count)), *_ = sums.items()
    return name, format_calls(count), f"{took / (sum(ms for ms, _ in sums.values()) or 1.0):.0%}"


def _quote_name(kernel: str) -> str:
    return quoted(short_name(kernel))
