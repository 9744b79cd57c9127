"""K1 and K2: the time and the kernels of a step under the profiler."""

from collections.abc import Mapping, Sequence

from runner.analysis.kernel_sums import sum_by_kernel
from runner.answers.keys import Keys, make_keys
from runner.formats import cut_text, format_calls, format_ms, format_number, format_share
from runner.report.document import Answer, Line, Question, ReportTable, behind
from runner.report.rows import Rows
from runner.report.text import NONE, format_estimate, format_optional
from runner.report.wanted import wanted_cells
from runner.results import Kernel, KernelTrace, PhaseTime
from runner.results.kernels import CLASS_WORDS
from runner.schema import KernelClass, ProfileCell
from runner.schema.titles import describe_status, title
from runner.store.read.kernels import load_kernels

#: The kernels of a phase that are listed, and the longest name of one.
_TOP, _LONGEST = 5, 100
#: The phases of a step.
ORDER = ("forward", "loss", "backward", "optimizer")
#: The share of a step's kernel time that must belong to a known phase, for the sum of a phase to be its time.
ATTRIBUTED = 0.99
OPEN = "no profiled step has a result"


def done(rows: Rows) -> list[tuple[KernelTrace, ProfileCell]]:
    """Returns the profiled cells that have kernels, each with its cell."""
    return [(trace, trace.cell) for trace in rows.traces if trace.cell and rows.parts.get(trace.cell_id)]


def noun_of(trace: KernelTrace) -> str:
    return "operators" if trace.device == "cpu" else "kernels"


def phases(rows: Rows, trace: KernelTrace) -> list[str]:
    """Returns the phases that the trace has kernels in, in the order of a step."""
    present = dict.fromkeys(part.phase for part in rows.parts.get(trace.cell_id, ()))
    return [*(phase for phase in ORDER if phase in present), *(phase for phase in present if phase not in ORDER)]


def largest(traces: Sequence[tuple[KernelTrace, ProfileCell]], *modes: str) -> tuple[KernelTrace, ProfileCell]:
    """Returns the trace of most kernel time, of one of these modes, in fp32 and eager where there is any."""
    wanted = [item for item in traces if item[1].mode in modes]
    plain = [item for item in wanted or traces if item[1].precision == "fp32" and item[1].backend == "eager"]
    return max(plain or wanted or traces, key=lambda item: item[0].kernel_ms or 0.0)


def _sum_ms(rows: Rows, trace: KernelTrace, *phases: str) -> float:
    return sum(part.device_ms for part in rows.parts.get(trace.cell_id, ()) if not phases or part.phase in phases)


def _make_failed(rows: Rows, keys: Keys, width: int) -> list[Line]:
    """Returns the lines of profiled cells without a result: how each ended."""
    lost = [trace for trace in rows.traces if trace.cell and trace.status not in ("ok", "skipped")]
    rest = (NONE,) * (width - 1)
    return [Line(values=(*keys.values(trace.cell), describe_status(trace), *rest)) for trace in lost if trace.cell]


# ------------------------------------------------------------------------------------------------------------------- K1


def _find_clock(rows: Rows, cell: ProfileCell) -> PhaseTime | None:
    """Returns the timed forward pass of the same step, from processes without a profiler."""
    names = ProfileCell.names()
    same = (step for step in rows.steps if all(getattr(step.cell, name) == getattr(cell, name) for name in names))
    return next((step.times["forward"] for step in same if "forward" in step.times), None)


def _answer_clock(rows: Rows) -> Answer:
    traces = done(rows)
    if not traces:
        return Answer(lacks=OPEN)
    keys, noun = make_keys([trace.cell for trace in rows.traces if trace.cell]), noun_of(traces[0][0])
    headings = (
        f"Forward: {noun} (ms)",
        "Forward: clock (ms)",
        "Ratio",
        f"Step: {noun} (ms)",
        "Step: profiled (ms)",
        "Step: unprofiled (ms)",
        "Profiled / unprofiled",
    )
    lines = []
    for trace, cell in traces:
        forward, clock = _sum_ms(rows, trace, "forward"), _find_clock(rows, cell)
        bare, profiled = trace.unprofiled_step_ms, trace.profiled_step_ms
        timed = format_estimate(clock.median_ms, clock.low_ms, clock.high_ms) if clock else NONE
        least = "" if trace.attributed_share is None or trace.attributed_share >= ATTRIBUTED else "≥ "
        near = least + format_number(forward / clock.median_ms) if clock else NONE
        over = profiled / bare if profiled and bare else None
        rest = map(format_optional, (_sum_ms(rows, trace), profiled, bare, over))
        lines.append(Line(values=(*keys.values(cell), least + format_number(forward), timed, near, *rest)))
    table = ReportTable(
        caption=f"Times in the profiler and by the clock: {keys.shared}",
        headings=(*keys.headings, *headings),
        lines=(*lines, *_make_failed(rows, keys, len(headings))),
        note=f"Sums of the {noun}' own times per step. Clock: median forward pass of the same cell in processes "
        "without a "
        "profiler, with its 95% interval, where it was timed. Profiled and unprofiled steps ran in one process. "
        f"≥: more than {1 - ATTRIBUTED:.0%} of the {noun}' time belongs to no known phase.",
    )
    return Answer(sentence=_describe_clock(rows, traces), tables=(table,), behind=behind(trace for trace, _ in traces))


def _describe_clock(rows: Rows, traces: Sequence[tuple[KernelTrace, ProfileCell]]) -> str:
    timed = [item for item in traces if _find_clock(rows, item[1])]
    trace, cell = largest(timed or traces, "inference", "forward")
    forward, clock, noun = _sum_ms(rows, trace, "forward"), _find_clock(rows, cell), noun_of(trace)
    start = f"In the profiler the forward pass of {title(cell)} is {format_ms(forward)} of {noun}"
    if clock:
        start += f"; the clock says {format_ms(clock.median_ms)} without it: {_match(forward, clock)}"
    costs = [trace.overhead_share for trace, _ in traces if trace.overhead_share is not None]
    if not costs:
        return f"{start}."
    change = f"{min(costs):+.0%} to {max(costs):+.0%}".replace("-", "−")
    return (
        f"{start}. The profiler changed the time of a whole step by {change}: profiled times are never shown as times."
    )


def _match(forward: float, clock: PhaseTime) -> str:
    """Says whether the kernels' time agrees with the clock, as far as the clock's interval allows."""
    ratio = f"ratio {format_number(forward / clock.median_ms)}"
    if clock.low_ms is None or clock.high_ms is None:
        return f"{ratio}, and how much processes differ is not known"
    interval = f"the clock's 95% interval {format_number(clock.low_ms)}–{format_number(clock.high_ms)} ms"
    if clock.low_ms <= forward <= clock.high_ms:
        return f"they match, within {interval} ({ratio})"
    return f"they do not match, outside of {interval} ({ratio})"


# ------------------------------------------------------------------------------------------------------------------- K2


def _answer_kernels(rows: Rows) -> Answer:
    traces = done(rows)
    if not traces:
        return Answer(lacks=OPEN)
    listed = {trace.cell_id: load_kernels(rows.path, trace.cell_id) for trace, _ in traces}
    keys = make_keys([cell for _, cell in traces])
    lines = []
    for trace, cell in traces:
        forward = _summarize_lead(listed[trace.cell_id], ("forward",))
        both = _summarize_lead(listed[trace.cell_id], ("forward", "loss", "backward"))
        has_backward = "backward" in phases(rows, trace)
        same = ("same" if both[0] == forward[0] else both[0]) if has_backward else NONE
        lines.append(Line(values=(*keys.values(cell), *forward, same, *(both[1:] if has_backward else (NONE,) * 3))))
    noun = noun_of(traces[0][0])
    headings = [
        f"{phase}: {what}" for phase in ("Forward", "With backward") for what in ("most time", "calls", "ms", "share")
    ]
    table = ReportTable(
        caption=f"Which of the {noun} takes the most time: {keys.shared}",
        headings=(*keys.headings, *headings),
        lines=tuple(lines),
        note=f"Calls and times per step; shares of the time of all {noun} of these phases.",
    )
    chosen = largest(traces, "train", "backward")
    return Answer(
        sentence=_describe_lead(listed[chosen[0].cell_id], chosen),
        tables=(table, _make_top(rows, listed[chosen[0].cell_id], chosen)),
        behind=behind(trace for trace, _ in traces),
        lacks=""
        if any("backward" in phases(rows, trace) for trace, _ in traces)
        else "no profiled step has a backward",
    )


def _summarize_lead(kernels: Sequence[Kernel], phases: Sequence[str]) -> tuple[str, str, str, str]:
    """Returns name, calls, ms and share of the kernel with the most time in these phases."""
    sums = sum_by_kernel(kernels, phases)
    if not sums:
        return (NONE,) * 4
    name, (took, calls) = next(iter(sums.items()))
    whole = sum(ms for ms, _ in sums.values())
    return (
        cut_text(name, longest=_LONGEST),
        format_calls(calls),
        format_number(took),
        format_share(took / whole) if whole else NONE,
    )


def _describe_lead(kernels: Sequence[Kernel], chosen: tuple[KernelTrace, ProfileCell]) -> str:
    trace, cell = chosen
    name, calls, ms, share = _summarize_lead(kernels, ("forward",))
    one = noun_of(trace).removesuffix("s")
    start = (
        f"In the forward pass of {title(cell)} the {one} {name} takes the most time: {ms} ms in {calls} calls, {share} "
        "of the pass"
    )
    both = _summarize_lead(kernels, ("forward", "loss", "backward"))
    if not any(kernel.phase == "backward" for kernel in kernels):
        return f"{start}."
    if both[0] == name:
        return (
            f"{start}. In forward and backward together it is the same {one}: {both[1]} calls, {both[3]} of the time."
        )
    return (
        f"{start}. In forward and backward together it is another, {both[0]}: {both[1]} calls, {both[3]} of the time."
    )


def _make_top(rows: Rows, kernels: Sequence[Kernel], chosen: tuple[KernelTrace, ProfileCell]) -> ReportTable:
    trace, cell = chosen
    lines = []
    for phase in phases(rows, trace):
        sums = sum_by_kernel(kernels, (phase,))
        whole = sum(ms for ms, _ in sums.values()) or 1.0
        kinds: Mapping[str, KernelClass] = {kernel.kernel: kernel.kernel_class for kernel in reversed(kernels)}
        for name, (took, calls) in list(sums.items())[:_TOP]:
            lines.append(
                Line(
                    values=(
                        phase,
                        cut_text(name, longest=_LONGEST),
                        CLASS_WORDS[kinds[name]],
                        format_calls(calls),
                        format_number(took),
                        format_share(took / whole),
                    )
                )
            )
    return ReportTable(
        caption=f"The {_TOP} {noun_of(trace)} with the most time in each phase: {title(cell)}",
        headings=("Phase", "Name", "Kind", "Calls", "Time (ms)", "Share of the phase"),
        lines=tuple(lines),
        note="Calls and times per step.",
    )


def want_profiles(rows: Rows) -> list[ProfileCell]:
    cells = wanted_cells(rows, "kernels", ProfileCell)
    return [cell for cell in cells if (cell.precision, cell.backend, cell.attention) == ("fp32", "eager", "naive")]


_TEXTS = {
    "K1": ("What is the total forward time in the profiler, and does it match the clock?", _answer_clock),
    "K2": (
        "Which kernel takes the most GPU time forward, how often is it called, and is it the same with backward?",
        _answer_kernels,
    ),
}
QUESTIONS = tuple(
    Question[Rows](id=name, text=text, page="kernels", answer=answer, wanted=want_profiles)
    for name, (text, answer) in _TEXTS.items()
)
