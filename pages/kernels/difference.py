"""The card about two traces: which kinds of work, or which kernels, make one step longer than the other.

    draw_difference(frame, ("small · 512 · train · bf16 · eager", trace), others, parts)

The bars add up to the difference exactly. Between two cells of a GPU it is that of their unprofiled steps, with a bar
of its own for time outside kernels; otherwise it is that of the time in kernels.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

import streamlit as st

from pages.figures.frame import label_of
from pages.figures.kernels import short_names
from pages.kernels.answers import name_trace, noun, per
from pages.kernels.part_figures import waterfall
from pages.ui.card import Card, draw
from pages.ui.chosen import chosen, select_one
from pages.ui.evidence import of_cells, of_details, say
from pages.ui.frame import Frame
from pages.ui.markdown import quoted, restrict
from pages.ui.sections import draw_heading
from runner.analysis.compare.differences import REST, PartChange, changes
from runner.analysis.kernel_sums import sum_by_class, sum_by_kernel
from runner.formats import cut_text, format_number
from runner.results import KernelPart, KernelTrace
from runner.results.kernels import CLASS_WORDS
from runner.schema.sizes import model_name
from runner.store.queries.selection import Model
from runner.store.read.kernels import KEY, load_kernels

#: The bar for the time of a step in which no kernel ran, less what kernels overlap.
OUTSIDE = "outside kernels"
MAX_SHOWN = 12
Named = tuple[str, KernelTrace]
Parts = Mapping[UUID, Sequence[KernelPart]]


def draw_difference(frame: Frame, one: Named, others: Mapping[str, KernelTrace], parts: Parts) -> None:
    draw_heading(frame, "Why does one step take longer than another?", anchor="difference")
    if not others:
        command = frame.sweep("--experiment kernels --precisions fp32,bf16")
        st.caption(restrict(f"Only one trace here has a result. Measure another: {quoted(command)}."))
        return
    other = _choose(one[1], others)
    by = chosen("difference-by", "Break down by", ["kind of work", noun(one[1]).removesuffix("s")])
    kinds = by == "kind of work"
    sides = (_load_times(frame, other[1], parts, kinds=kinds), _load_times(frame, one[1], parts, kinds=kinds))
    whole = all(_has_step(trace) for _, trace in (other, one))
    differences = compute_changes(other[1], one[1], sides, whole=whole)
    words = describe_difference(other, one, differences)
    pair = (other[1], one[1])
    listed = of_details(frame, "kinds of work" if kinds else "kernels", [trace.cell_id for trace in pair])
    say(frame, words, listed, of_cells(frame, pair), key="difference")
    entities = _load_classes(frame, (other[1], one[1]), kinds=kinds)
    named = _name_parts(differences, kinds=kinds)
    card = Card(
        key="difference",
        folded=True,
        title="From one to the other",
        note=_describe_bars(other[1], one[1], whole=whole),
        alt=words,
        rows=list(map(_make_row, differences)),
        cells=[trace.cell for _, trace in (other, one) if trace.cell],
    )
    bars = [
        (name, entities.get(change.name, ""), change.difference_ms)
        for name, change in zip(named, differences, strict=True)
        if change.difference_ms
    ]
    ends = (
        (f"from: {_distinguish(other, one)}", sum(change.before_ms for change in differences)),
        (f"to: {_distinguish(one, other)}", sum(change.after_ms for change in differences)),
    )
    draw(frame, card, lambda: waterfall(bars, ends=ends, state=f"difference-{by}"))


def _make_row(change: PartChange) -> dict[str, object]:
    return {
        "Part": change.name,
        "From (ms)": change.before_ms,
        "To (ms)": change.after_ms,
        "Difference (ms)": change.difference_ms,
    }


def _choose(one: KernelTrace, others: Mapping[str, KernelTrace]) -> Named:
    """Returns the trace that the chosen one is compared with; at first the one that differs from it least."""
    names = list(others)
    nearest = min(names, key=lambda name: _count_differences(one, others[name]))
    name = select_one("against", "Compared with", names, default=nearest)
    return name, others[name]


def _count_differences(one: KernelTrace, other: KernelTrace) -> int:
    """Returns in how many fields two cells differ; imported traces are the farthest."""
    if one.cell is None or other.cell is None:
        return len(KEY) + (one.cell is not other.cell)
    return sum(getattr(one.cell, name) != getattr(other.cell, name) for name in KEY)


def _has_step(trace: KernelTrace) -> bool:
    return trace.device != "cpu" and trace.unprofiled_step_ms is not None


def _load_times(frame: Frame, trace: KernelTrace, parts: Parts, *, kinds: bool) -> dict[str, float]:
    """Returns milliseconds by class or by kernel."""
    if kinds:
        return {str(name): took for name, took in sum_by_class(parts.get(trace.cell_id, ())).items()}
    return {name: took for name, (took, _) in sum_by_kernel(frame.ask(load_kernels, trace.cell_id)).items()}


def _load_classes(frame: Frame, traces: Sequence[KernelTrace], *, kinds: bool) -> dict[str, str]:
    """Returns the class of each part, which gives it its color."""
    if kinds:
        return {name: name for name in CLASS_WORDS}
    listed = [kernel for trace in traces for kernel in frame.ask(load_kernels, trace.cell_id)]
    return {kernel.kernel: kernel.kernel_class for kernel in sorted(listed, key=lambda kernel: kernel.device_ms)}


def compute_changes(
    other: KernelTrace, one: KernelTrace, sides: tuple[Mapping[str, float], Mapping[str, float]], *, whole: bool
) -> list[PartChange]:
    """Returns the change of every part. With `whole` they add up to the difference of the unprofiled steps, otherwise
    to that of the times in kernels."""
    differences = changes(*sides, most=MAX_SHOWN)
    if whole:
        idle = [(trace.unprofiled_step_ms or 0.0) - sum(side.values())
                for trace, side in zip((other, one), sides, strict=True)]  # fmt: skip
        differences.append(PartChange(name=OUTSIDE, before_ms=idle[0], after_ms=idle[1]))
    return differences


def _name_parts(differences: Sequence[PartChange], *, kinds: bool) -> list[str]:
    if kinds:
        words: Mapping[str, str] = {str(name): text for name, text in CLASS_WORDS.items()}
        return [words.get(change.name, change.name) for change in differences]
    return short_names([change.name for change in differences])


def describe_difference(other: Named, one: Named, differences: Sequence[PartChange]) -> str:
    """Says how much longer one takes, and which part makes most of it."""
    before, after = sum(change.before_ms for change in differences), sum(change.after_ms for change in differences)
    gap = after - before
    if _has_step(other[1]) and _has_step(one[1]):
        subject, verb, second = "A step of", "takes", "one of"
    else:
        subject, verb, second = f"The {noun(one[1])} of", "take", "those of"
    times = f"{format_number(after)} ms, {second} {name_trace(*other)} {format_number(before)} ms"
    start = f"{subject} {name_trace(*one)} {verb} {times}"
    if not gap:
        return f"{start}. They are the same."
    most = max((change for change in differences if change.name != REST), key=lambda change: change.difference_ms / gap)
    kinds = most.name in CLASS_WORDS or most.name == OUTSIDE
    name = _name_parts([most], kinds=kinds)[0]
    part = f"{format_number(abs(most.difference_ms))} ms {'more' if most.difference_ms > 0 else 'less'}"
    longer = f"**{format_number(abs(gap))} ms {'longer' if gap > 0 else 'shorter'}**"
    return f"{start}: {longer}. Most of it: {f'**{name}**' if kinds else quoted(name)}, {part}."


def _distinguish(side: Named, against: Named) -> str:
    """Says in few words what tells a trace from the other."""
    cell, theirs = side[1].cell, against[1].cell
    if cell is None or theirs is None:
        return cut_text(side[0], longest=40)
    shape = [model_name(cell)] if model_name(cell) != model_name(theirs) else []
    words = []
    for name in (name for name in KEY if name not in Model.__dataclass_fields__):
        value = getattr(cell, name)
        if value != getattr(theirs, name):
            words.append(value if isinstance(value, str) else f"{label_of('profiles', name).lower()} {value:,}")
    return " · ".join([*shape, *words]) or side[0]


def _describe_bars(other: KernelTrace, one: KernelTrace, *, whole: bool) -> str:
    if per(other) != per(one):
        return "One is the time of a step, the other the sum of all that was recorded: their difference says little."
    if whole:
        return ("The difference of the unprofiled steps. Outside kernels: the device waited for the host, less what "
                "kernels overlap and what the profiler lengthened.")  # fmt: skip
    return f"The difference of the time in {noun(one)}, of {per(one)}."
