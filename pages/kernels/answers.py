"""Names of traces, and sentences on what the time of a step goes to.

    answer(name, trace, parts)        # 'In **small · 512 · train · fp32 · eager**, **matrix products** take **71%** …'

Text from a file of somebody else is only ever quoted (`quoted`).
"""

from collections.abc import Iterable, Sequence

from pages.figures.frame import WORDS
from pages.ui.frame import Frame
from pages.ui.markdown import literal, quoted
from runner.analysis.kernel_sums import sum_by_class
from runner.formats import format_number
from runner.results import KernelPart, KernelTrace
from runner.results.kernels import CLASS_WORDS
from runner.schema.titles import title

UNKNOWN = "unknown"
_ORDER = ("forward", "loss", "backward", "optimizer", UNKNOWN)
WHOLE = "whole step"


def name_trace(name: str, trace: KernelTrace) -> str:
    """Returns the name of a trace within a sentence."""
    return quoted(name) if trace.is_imported else f"**{literal(name)}**"


def name_traces(traces: Sequence[KernelTrace]) -> dict[str, KernelTrace]:
    """Returns a different name for each trace: the cell in words, or the file; imported ones say so."""
    found: dict[str, KernelTrace] = {}
    for trace in traces:
        name = title(trace.cell) if trace.cell else f"{trace.title} · imported"
        if name in found:
            name = f"{name} · {str(trace.cell_id)[-6:]}"
        found[name] = trace
    return found


def passes(frame: Frame, trace: KernelTrace) -> bool:
    """Returns whether a trace passes the sidebar's filters; imported ones always do, because nothing is known of
    them."""
    return trace.cell is None or frame.selection.holds(trace.cell.step())


def rank_trace(trace: KernelTrace) -> tuple[bool, bool, float]:
    """Returns a sort key: the trace that tells most, the longest training step that ran eagerly, has the largest."""
    cell = trace.cell
    tells = cell is not None and (cell.mode, cell.backend) == ("train", "eager")
    return tells, cell is not None, trace.kernel_ms or 0.0


def noun(trace: KernelTrace) -> str:
    """Returns what the trace lists: kernels or, on a CPU, operators."""
    return "operators" if trace.device == "cpu" else "kernels"


def per(trace: KernelTrace) -> str:
    """Returns what the times of a trace are times of."""
    return "a profiled step" if trace.steps else "all that was recorded"


def phase_words(phase: str) -> str:
    return "phase unknown" if phase == UNKNOWN else WORDS.get(phase, phase)


def phases_of(found: Iterable[str]) -> list[str]:
    """Returns the phases in the order of a step; those that the schema does not know come last."""
    present = dict.fromkeys(found)
    return [*(phase for phase in _ORDER if phase in present), *(phase for phase in present if phase not in _ORDER)]


def answer(name: str, trace: KernelTrace, parts: Sequence[KernelPart]) -> str:
    """Says what most of the time goes to, and each phase's share of it."""
    classes = sum_by_class(parts)
    whole = sum(classes.values())
    if not whole:
        return f"No time is listed for {name_trace(name, trace)}."
    shares = sorted(((ms / whole, CLASS_WORDS[found]) for found, ms in classes.items()), reverse=True)
    first, *rest = shares
    others = ", ".join(f"{words} {share:.0%}" for share, words in rest[:3] if share >= 0.005)
    spent = {phase: sum(sum_by_class(parts, phase=phase).values()) for phase in phases_of(part.phase for part in parts)}
    split = ", ".join(
        f"{literal(phase_words(phase))} {ms / whole:.0%}" for phase, ms in spent.items() if ms / whole >= 0.005
    )
    together = f"{format_number(whole)} ms that the {noun(trace)} of {per(trace)} take together"
    bare = (
        f" Without the profiler the step takes **{format_number(trace.unprofiled_step_ms)} ms**."
        if trace.unprofiled_step_ms
        else ""
    )
    return (
        f"In {name_trace(name, trace)}, **{first[1]}** take **{first[0]:.0%}** of the {together}"
        + (f"; then come {others}" if others else "")
        + f".{bare} By phase: {split}."
    )
