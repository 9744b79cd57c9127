"""What does the time of a step consist of? Kernels by kind, phase and range; softmax against matrix products."""

import streamlit as st

from pages.kernels.across import draw_busy, draw_shares
from pages.kernels.answers import answer, name_traces, passes, rank_trace
from pages.kernels.attention import draw_attention
from pages.kernels.difference import draw_difference
from pages.kernels.headline import TOPICS
from pages.kernels.one import draw_phases, draw_top
from pages.ui.chosen import rows_of, select_one
from pages.ui.coverage import draw_grid
from pages.ui.evidence import of_cells, of_details, say
from pages.ui.frame import Frame, Page
from pages.ui.heading import draw_title
from pages.ui.states import draw_unmeasured, no_rows
from runner.results import KernelTrace
from runner.store.read.kernels import load_parts, load_traces


def page(frame: Frame) -> None:
    draw_title(
        frame, "Kernels: the time of a step by kind of work", question="What does the time of a step consist of?"
    )
    loaded = frame.ask(load_traces, rows_of(frame))
    if not loaded:
        draw_unmeasured(
            (f"**No step has been profiled {frame.where}.** This lists the kernels of some, phase by phase:",
             frame.sweep("--experiment kernels")),
            ("Or bring what Nsight Systems recorded, exported or summed up:",
             "nsys export --type sqlite --output report.sqlite report.nsys-rep\npython -m runner import report.sqlite"),
            listed="traces",
        )  # fmt: skip
        return
    named = name_traces([trace for trace in loaded if passes(frame, trace)])
    measured = {name: trace for name, trace in named.items() if trace.status == "ok" and trace.kernel_ms}
    if not measured:
        what = "has a result with" if named else "matches"
        no_rows(f"No profiled step {what} these filters.", "Clear some of them, or measure what is missing.")
        return
    classes = frame.ask(load_parts)
    lead = st.empty()
    name = _choose(measured)
    trace, own = measured[name], classes.get(measured[name].cell_id, [])
    kinds = of_details(frame, "kinds of work by phase", [trace.cell_id])
    say(frame, answer(name, trace, own), kinds, of_cells(frame, [trace]), at=lead)
    draw_phases(frame, name, trace, own)
    draw_top(frame, trace)
    draw_attention(frame, name, trace)
    draw_shares(frame, named, classes)
    draw_busy(frame, measured)
    draw_grid(frame, list(named.values()))
    draw_difference(frame, (name, trace), {other: found for other, found in measured.items() if other != name}, classes)


def _choose(measured: dict[str, KernelTrace]) -> str:
    """Returns the trace of the first cards: at first the longest training step that ran eagerly, whose ranges are
    known."""
    names = list(measured)
    return select_one("trace", "Trace", names, default=max(names, key=lambda name: rank_trace(measured[name])))


PAGE = Page(
    title="Kernels",
    address="kernels",
    icon=":material/data_usage:",
    draw=page,
    topics=TOPICS,
    filters=("machine", "run", "size", "context", "precision", "backend"),
)
