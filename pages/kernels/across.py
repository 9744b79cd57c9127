"""The cards over many traces: the share of matrix products by mode, size and context, and how busy the device was.

draw_shares(frame, traces, parts); draw_busy(frame, traces)
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

import streamlit as st

from pages.figures.frame import WORDS, label_values, title_of
from pages.figures.kernels import ClassBar, class_bars
from pages.kernels.answers import name_trace, noun
from pages.kernels.part_figures import BusyBar, busy_bars
from pages.ui.card import Card, draw
from pages.ui.evidence import of_cells, of_details, say
from pages.ui.frame import Frame
from pages.ui.sections import draw_heading
from runner.analysis.kernel_sums import matmul_share, sum_by_class
from runner.formats import format_tokens, join_parts
from runner.results import KernelPart, KernelTrace
from runner.results.kernels import CLASS_WORDS
from runner.schema.sizes import model_name
from runner.schema.titles import title
from runner.store.read.kernels import KEY

#: More bars than these are not one picture any more.
MAX_BARS = 48
_KEY = tuple(name for name in KEY if name != "mode")
_FIGURES = (
    "unprofiled_step_ms", "profiled_step_ms", "overhead_share", "busy_ms", "busy_share", "host_bound_share",
    "attributed_share", "kernel_calls", "graph_breaks", "recompiles", "status", "message",
)  # fmt: skip


def group_of(trace: KernelTrace) -> str:
    """Returns size, context and precision; imported traces are a group of their own."""
    cell = trace.cell
    return join_parts(model_name(cell), format_tokens(cell.context, "tok"), cell.precision) if cell else "imported"


def place_of(name: str, trace: KernelTrace) -> str:
    """Returns the mode, and what else tells a cell from others of its group; the name of an imported trace."""
    if trace.cell is None:
        return name.replace(" · imported", "", 1)
    cell = trace.cell
    said = {model_name(cell), f"{cell.context}", cell.mode, cell.precision, cell.backend}
    rest = [part for part in title(cell).split(" · ") if part not in said]
    return join_parts(cell.mode, "" if cell.backend == "eager" else cell.backend, *rest)


def _name_without_mode(trace: KernelTrace) -> str:
    return title(trace.cell).replace(f" · {trace.cell.mode}", "", 1) if trace.cell else ""


def draw_shares(frame: Frame, traces: Mapping[str, KernelTrace], parts: Mapping[UUID, Sequence[KernelPart]]) -> None:
    draw_heading(frame, "How does the share of matrix products change?", anchor="matmul-share")
    shares = {name: share for name, trace in traces.items()
              if (share := matmul_share(parts.get(trace.cell_id, ()))) is not None}  # fmt: skip
    if not shares:
        st.caption("No time is listed for any of these traces.")
        return
    words = describe_shares(shares, traces)
    listed = [trace for name, trace in traces.items() if name in shares]
    kinds = of_details(frame, "kinds of work", [trace.cell_id for trace in listed])
    say(frame, words, kinds, of_cells(frame, listed), key="matmul-share")
    shown = list(traces.items())[:MAX_BARS]
    bars = [
        ClassBar(group=group_of(trace), place=place_of(name, trace), cell_id=str(trace.cell_id),
                 parts=sum_by_class(parts.get(trace.cell_id, ())), failure=_describe_failure(trace))
        for name, trace in shown
    ]  # fmt: skip
    cut = f" The first {MAX_BARS} of {len(traces)} are drawn: filter, or see the table."
    card = Card(
        key="matmul-share",
        folded=True,
        title="Kinds of work, cell by cell",
        note=f"Shares of the {noun(listed[0])}' time; the number is that of the matrix products."
        + (cut if len(traces) > MAX_BARS else ""),
        alt=words,
        rows=[_make_row(name, trace, parts.get(trace.cell_id, ())) for name, trace in traces.items()],
        cells=[trace.cell for trace in traces.values() if trace.cell],
    )
    draw(frame, card, lambda: class_bars(bars, view="share", state="matmul-share"))


def _make_row(name: str, trace: KernelTrace, parts: Sequence[KernelPart]) -> dict[str, object]:
    classes = sum_by_class(parts)
    whole = sum(classes.values()) or 1.0
    names = ("context", "mode", "precision", "backend") if trace.cell else ()
    return {
        "Trace": name,
        **label_values("profiles", trace.cell, names),
        title_of("traces", "kernel_ms"): sum(classes.values()),
        **{f"{words} (share)": classes.get(found, 0.0) / whole for found, words in CLASS_WORDS.items()},
        title_of("profiles", "status"): trace.status,
    }


def _describe_failure(trace: KernelTrace) -> str | None:
    return None if trace.status == "ok" else WORDS[trace.status]


def describe_shares(shares: Mapping[str, float], traces: Mapping[str, KernelTrace]) -> str:
    """Says how the share changes from inference to a training step, in the longest step measured in both, and where it
    is largest and smallest."""
    inferred = {_read_key(trace): name for name, trace in traces.items()
                if trace.cell and trace.cell.mode == "inference" and name in shares}  # fmt: skip
    trained = {
        name: trace for name, trace in traces.items() if trace.cell and trace.cell.mode == "train" and name in shares
    }
    pairs = [(inferred[key], name) for name, trace in trained.items() if (key := _read_key(trace)) in inferred]
    words = ""
    if pairs:
        before, after = max(pairs, key=lambda pair: traces[pair[1]].kernel_ms or 0.0)
        words = (
            f"From inference to a whole training step, matrix products go from **{shares[before]:.0%}** to "
            f"**{shares[after]:.0%}** of the time in **{_name_without_mode(traces[after])}**. "
        )
    low, high = min(shares, key=lambda name: shares[name]), max(shares, key=lambda name: shares[name])
    if low == high:
        return words or f"Matrix products take {shares[low]:.0%} of the time in {name_trace(low, traces[low])}."
    return (
        f"{words}Their share is largest in {name_trace(high, traces[high])} ({shares[high]:.0%}) and smallest in "
        f"{name_trace(low, traces[low])} ({shares[low]:.0%})."
    )


def _read_key(trace: KernelTrace) -> tuple[object, ...]:
    return (trace.machine, *(getattr(trace.cell, name) for name in _KEY))


def draw_busy(frame: Frame, traces: Mapping[str, KernelTrace]) -> None:
    """Draws the share of the step in which the device worked, and what profiling cost."""
    known = {name: trace for name, trace in traces.items() if trace.busy_share is not None and trace.cell is not None}
    if not known:
        return
    is_cpu = all(trace.device == "cpu" for trace in known.values())
    draw_heading(frame, "What did profiling cost?" if is_cpu else "Does the GPU wait for the host?", anchor="busy")
    words = describe_busy(known)
    say(frame, words, of_cells(frame, list(known.values())), key="busy")
    bars = [
        BusyBar(group=group_of(trace), place=place_of(name, trace), cell_id=str(trace.cell_id),
                busy=trace.busy_share or 0.0, label=_format_overhead(trace))
        for name, trace in list(known.items())[:MAX_BARS]
    ]  # fmt: skip
    names = ("in operators", "between them") if is_cpu else ("device busy", "waiting for the host")
    rest = "the profiled step" if is_cpu else "the step without the profiler"
    card = Card(
        key="busy",
        folded=True,
        title="In and between operators" if is_cpu else "Busy and waiting",
        note=f"Shares of {rest}. Beside the bar: how much longer the step took with the profiler.",
        alt=words,
        rows=[{"Trace": name, **label_values("profiles", trace, _FIGURES)} for name, trace in known.items()],
        cells=[trace.cell for trace in known.values() if trace.cell],
    )
    draw(frame, card, lambda: busy_bars(bars, names=names))


def _format_overhead(trace: KernelTrace) -> str:
    return "" if trace.overhead_share is None else f"{trace.overhead_share:+.0%}"


def describe_busy(traces: Mapping[str, KernelTrace]) -> str:
    """Says who waits for whom, and what profiling cost."""
    gpu = {name: trace for name, trace in traces.items() if trace.host_bound_share is not None}
    sentences = []
    if gpu:
        least, most = (pick(gpu, key=lambda name: gpu[name].busy_share or 0.0) for pick in (min, max))
        also = f", but only **{gpu[least].busy_share:.0%}** of that of **{least}**" if least != most else ""
        works = f"The GPU works **{gpu[most].busy_share:.0%}** of the step of **{most}**{also}"
        sentences.append(f"{works}; the rest of the time it waits for the host.")
    else:
        shares = [trace.busy_share or 0.0 for trace in traces.values()]
        span = f"**{min(shares):.0%}** to **{max(shares):.0%}** of the profiled steps"
        sentences.append(f"Operators' own times add up to {span}; the rest passes between operators.")
    costs = [trace.overhead_share for trace in traces.values() if trace.overhead_share is not None]
    if costs:
        changed = f"Profiling changed the time of these steps by {min(costs):+.0%} to {max(costs):+.0%}"
        sentences.append(f"{changed}; step times shown here are unprofiled.")
    return " ".join(sentences)
