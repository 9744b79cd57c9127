"""What Overview shows of Kernels: what the time of the longest profiled training step consists of."""

from pages.figures.colors import color_of
from pages.figures.small import SmallBar
from pages.kernels.answers import answer, name_traces, passes, rank_trace
from pages.ui.chosen import rows_of
from pages.ui.evidence import of_cells, of_details
from pages.ui.frame import Frame, Headline, Topic
from runner.analysis.kernel_sums import sum_by_class
from runner.formats import format_share
from runner.results import KernelPart, KernelTrace
from runner.results.kernels import CLASS_WORDS
from runner.store.read.kernels import load_parts, load_traces


def _answer(frame: Frame) -> Headline:
    traces = [trace for trace in frame.ask(load_traces, rows_of(frame)) if passes(frame, trace)]
    measured = {name: trace for name, trace in name_traces(traces).items() if trace.status == "ok" and trace.kernel_ms}
    if not measured:
        return Headline(words=f"No profiled step {frame.among} has a result.", missing="" if traces else "kernels")
    name = max(measured, key=lambda name: rank_trace(measured[name]))
    trace = measured[name]
    parts = frame.ask(load_parts).get(trace.cell_id, [])
    return Headline(
        words=answer(name, trace, parts),
        evidence=of_details(frame, "kinds of work by phase", [trace.cell_id]) or of_cells(frame, [trace]),
        bars=_draw_classes(parts),
        doubt=_describe_profile(trace),
    )


def _draw_classes(parts: list[KernelPart]) -> list[SmallBar]:
    classes = sum_by_class(parts)
    whole = sum(classes.values()) or 1.0
    return [
        SmallBar(name=CLASS_WORDS[found], value=ms, words=format_share(ms / whole), color=color_of(found))
        for found, ms in sorted(classes.items(), key=lambda item: -item[1])
        if ms
    ]


def _describe_profile(trace: KernelTrace) -> str:
    """Says of how many profiled steps the shares are, and what profiling cost."""
    steps = trace.profiled_steps
    of = "one profiled step" if steps == 1 else f"the median of {steps} profiled steps"
    parts = [f"Shares are of {of}."] if steps else []
    if trace.overhead_share is not None:
        parts.append(f"The profiler changed this step's time by {trace.overhead_share:+.0%}.")
    return " ".join(parts)


TOPICS = {"kernels": Topic(title="Kernels", address="kernels", ask=_answer)}
