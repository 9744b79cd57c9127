"""Which kernels is a step made of, and which take the most time?"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from runner.answers.answer import Answer, Asked, Draw, Field, Question, Row, View, verbatim
from runner.answers.shared import about, cells_of, name_time, narrow, place_of, sizes_of
from runner.answers.words import CONTEXT, SIZE, STATUS, lacks, plain_cells
from runner.formats import at_tokens, format_calls, format_number, format_share
from runner.results.cells import CLASS_WORDS, Kernel, KernelPart, KernelTrace, StepResult
from runner.results.rows import ImportedTrace, Rows
from runner.schema import TABLES, Model, ProfileCell
from runner.schema.sizes import describe_status

PHASE = Field.of("timings", "phase")
CLASS = Field("kernel_class", "Kind of work")
TIME = Field("device_ms", "GPU time", unit="ms", role="value", doc="Per step.")
SHARE = Field("share", "Share", unit="%", role="note")
CALLS = Field("calls", "Calls", role="note", doc="Per step.")
KERNEL = Field("kernel", "Kernel", doc="Shortened where all of its kind are alike; the last column is whole.")
RANK = Field("rank", "#")
WHOLE = Field("whole_name", "Whole name", role="note", is_long=True)
PASSES = Field("passes", "Phases")
PART = Field("share", "Share", unit="%", role="value")
TOOK = Field("device_ms", "GPU time", unit="ms", role="note", doc="Per step.")
MATCH = Field(
    "ratio",
    "Kernels over clock",
    unit="×",
    role="value",
    doc="Sum of the times of the kernels of the forward pass over its latency without a profiler.",
)
SUM = Field("kernel_ms", "Kernels", unit="ms", role="note", doc="Of the forward pass, under the profiler.")
CLOCK = Field("clock_ms", "Clock", unit="ms", role="note", doc="Latency of the forward pass, unprofiled.")
CLOCK_LOW = Field("clock_low_ms", "Clock, low", unit="ms", role="note")
CLOCK_HIGH = Field("clock_high_ms", "Clock, high", unit="ms", role="note")
OVERHEAD = Field.of("profiles", "overhead_share", "note")
ATTRIBUTED = Field.of("profiles", "attributed_share", "note")
_PHASES = ("forward", "loss", "backward", "optimizer")
TOTAL = "total"
W = TypeVar("W", Kernel, KernelPart)


def answer(rows: Rows, asked: Asked) -> Answer:
    traced = [one for one in rows.traced if one.status == "ok" and one.kernels]
    if not traced:
        return Answer(missing=lacks("no step was profiled", plain_cells(ProfileCell, "inference", "train")))
    shown, choices = narrow(traced, asked, drawn=("size",))
    sizes = sizes_of(traced)
    (one, *_), size_choice = narrow(shown, asked, drawn=())
    size, words = sizes[Model.of(one.cell)], about([one], more=["GPU time"])
    top = draw_top(one, words=words)
    leaders = _draw_leaders(shown, sizes, about(shown, more=["GPU time"]))
    every = [one for one in rows.traced if one.status != "skipped"]
    timed, _ = narrow(every, asked, drawn=("size", "context"))
    clock = _draw_clock(timed, rows.steps, sizes_of(every))
    rested = {cell_id for row in clock.rows for cell_id in row.cells}
    found = Answer(
        sentence=_say(one, size, top),
        more=f"{_say_leaders(leaders, size)} {_say_clock(clock)}".strip(),
        views=(
            draw_phases(one, title=f"{size}: kernels by phase", words=words),
            top,
            _draw_sizes(shown, sizes, about(shown, more=["GPU time"])),
            leaders,
            clock,
        ),
        choices=(*size_choice, *choices),
        cells=cells_of(shown, timed, [one for one in rows.steps if one.cell_id in rested]),
    )
    return name_time(found, traced)


def group_by_phase(work: Iterable[W]) -> dict[str, list[W]]:
    """Returns what took GPU time by phase, in the order of a step."""
    groups: dict[str, list[W]] = {}
    for one in work:
        if one.device_ms:
            groups.setdefault(one.phase, []).append(one)
    return {phase: groups[phase] for phase in sorted(groups, key=lambda name: ([*_PHASES, name].index(name), name))}


def split_time(work: Iterable[Kernel | KernelPart]) -> list[tuple[str, float, float]]:
    """Returns the GPU time (ms) of each kind of work and its share of all, which comes last; nothing without any."""
    sums = defaultdict[str, float](float)
    for one in work:
        sums[one.kernel_class] += one.device_ms
    whole = sum(sums.values())
    kinds = [(words, sums[name]) for name, words in CLASS_WORDS.items() if sums[name]]
    return [(words, took, took / whole) for words, took in (*kinds, (TOTAL, whole)) if whole]


def draw_phases(trace: KernelTrace | ImportedTrace, *, title: str, words: str) -> View:
    """Draws the GPU time of each phase of one trace by kind of work."""
    lines = []
    for phase, mine in group_by_phase(trace.kernels).items():
        for kind, took, share in split_time(mine):
            calls = sum(one.calls for one in mine if kind in (TOTAL, CLASS_WORDS[one.kernel_class]))
            lines.append(Row.of(trace, phase, kind, took, share, _count(calls)))
    return View(
        name="kernels-by-phase",
        title=title,
        about=words,
        fields=(PHASE, CLASS, TIME, SHARE, CALLS),
        rows=tuple(lines),
        draw=Draw("bars", "device_ms", down=("phase",), series="kernel_class", total=TOTAL),
        note="A kernel counts in the phase that launched it, whenever it ran.",
    )


def draw_top(trace: KernelTrace | ImportedTrace, *, words: str) -> View:
    """Draws the table of the kernels of one trace, the longest first."""
    whole, names = sum(one.device_ms for one in trace.kernels), short_names([one.kernel for one in trace.kernels])
    rows = []
    for place, one in enumerate(trace.kernels, 1):
        share = one.device_ms / whole if whole else None
        kind = CLASS_WORDS[one.kernel_class]
        told = (names[one.kernel], one.phase, kind, one.device_ms, share, _count(one.calls), one.kernel)
        rows.append(Row.of(trace, place, *told))
    return View(
        name="kernels-top",
        title="Kernels by time",
        about=words,
        fields=(RANK, KERNEL, PHASE, CLASS, TIME, SHARE, CALLS, WHOLE),
        rows=tuple(rows),
        draw=Draw("table", "device_ms", down=("rank", "kernel", "phase", "kernel_class")),
    )


def _draw_sizes(traced: Sequence[KernelTrace], sizes: dict[Any, str], words: str) -> View:
    of_whole = Field("share", "Share of the GPU time", unit="%", role="value")
    took_field = Field("took_ms", "GPU time", unit="ms", role="note")
    return View(
        name="kernels-by-size",
        title="What each size is made of",
        about=words,
        fields=(SIZE, CLASS, of_whole, took_field),
        rows=tuple(
            Row.of(one, sizes[Model.of(one.cell)], kind, share, took)
            for one in traced
            for kind, took, share in split_time(one.parts)
        ),
        draw=Draw("bars", "share", down=("size",), series="kernel_class", total=TOTAL, beside=("took_ms",)),
    )


def _draw_leaders(traced: Sequence[KernelTrace], sizes: dict[Any, str], words: str) -> View:
    """Draws the kernel with the most time in the forward pass, and in forward and backward together."""
    names = short_names([kernel.kernel for one in traced for kernel in one.kernels])
    lines = []
    for one in traced:
        passes = {"forward": ("forward",), "with backward": ("forward", "loss", "backward")}
        if not any(kernel.phase == "backward" for kernel in one.kernels):
            del passes["with backward"]
        for name, phases in passes.items():
            sums: dict[str, tuple[float, float]] = {}
            for kernel in (kernel for kernel in one.kernels if kernel.phase in phases):
                took, calls = sums.get(kernel.kernel, (0.0, 0.0))
                sums[kernel.kernel] = took + kernel.device_ms, calls + kernel.calls
            if whole := sum(took for took, _ in sums.values()):
                longest = max(sums, key=lambda name: sums[name][0])
                took, calls = sums[longest]
                key = (sizes[Model.of(one.cell)], name, _cut(names[longest]))
                lines.append(Row.of(one, *key, took / whole, _count(calls), took, longest))
    return View(
        name="kernels-leading",
        title="The kernel with the most time",
        about=words,
        fields=(SIZE, PASSES, KERNEL, PART, CALLS, TOOK, WHOLE),
        rows=tuple(lines),
        draw=Draw("table", "share", down=("size", "passes", "kernel")),
        note="Share of the time of all kernels of these phases; calls and times per step.",
    )


def _cut(name: str) -> str:
    """Returns both ends of a name that has more than 36 letters: its tile stands at the end, and is not cut."""
    if len(name) <= 36:
        return name
    tails = (name[place + 1 :] for place, letter in enumerate(name) if letter in "_…")
    tail = next((one for one in tails if len(one) <= 31), name[-21:])
    return f"{name[: 35 - len(tail)].rstrip('_…')}…{tail}"


def _draw_clock(traces: Sequence[KernelTrace], steps: Sequence[StepResult], sizes: dict[Any, str]) -> View:
    """Draws the time of the forward pass in the profiler over what the clock says without one."""
    names = TABLES["profiles"].question
    timed = {
        (one.machine, *(getattr(one.cell, name) for name in names)): one for one in steps if "forward" in one.times
    }
    lines = []
    for trace in traces:
        is_known = trace.status == "ok" and trace.kernels
        took = sum(part.device_ms for part in trace.parts if part.phase == "forward") if is_known else None
        step = timed.get((trace.machine, *(getattr(trace.cell, name) for name in names)))
        clock = step.times["forward"].step if step else None
        ms, low, high = (clock.ms, clock.low_ms, clock.high_ms) if clock else (None, None, None)
        ratio = took / ms if took and ms else None
        status = describe_status(trace.status, trace.failed_phase) or (
            "" if ratio else "forward pass not timed without a profiler"
        )
        shares = (trace.overhead_share, trace.attributed_share)
        sides = (trace, step) if step else (trace,)  # a doubt about the clock is one about the ratio
        lines.append(Row.of(sides, *place_of(trace, sizes), ratio, took, ms, low, high, *shares, status))
    return View(
        name="kernels-clock",
        title="Forward pass: kernels under the profiler over the clock without it",
        about=about(traces, more=["kernels: GPU time", "clock: latency"]),
        fields=(SIZE, CONTEXT, MATCH, SUM, CLOCK, CLOCK_LOW, CLOCK_HIGH, OVERHEAD, ATTRIBUTED, STATUS),
        rows=tuple(lines),
        draw=Draw("matrix", "ratio", down=("size",), across="context", center=1.0),
        note="Below 1× the clock counts time in which no kernel ran. A profiled time is never shown as a time.",
    )


def _count(calls: float) -> float:
    """Returns calls per step, a mean over steps, as a whole number where they are."""
    return int(calls) if float(calls).is_integer() else calls


def _say_leaders(view: View, size: str) -> str:
    mine = {view.get(row, "passes"): row for row in view.rows if row.values[0] == size}
    forward, both = mine.get("forward"), mine.get("with backward")
    if forward is None:
        return ""
    name, calls, share = (view.get(forward, key) for key in ("kernel", "calls", "share"))
    name, calls = verbatim(name), format_calls(calls)
    text = f"In the forward pass {name} takes the most time: {format_share(share)} in {calls} calls"
    if both is None:
        return f"{text}."
    calls, share = format_calls(view.get(both, "calls")), format_share(view.get(both, "share"))
    is_same = view.get(both, "whole_name") == view.get(forward, "whole_name")
    which = "the same kernel" if is_same else verbatim(both.values[2])
    return f"{text}; in forward and backward together it is {which}: {share} in {calls} calls."


def _say_clock(view: View) -> str:
    known = []
    for row in view.rows:
        low, high = view.get(row, "clock_low_ms"), view.get(row, "clock_high_ms")
        # An interval that reaches this far holds almost any time: it says nothing about the kernels.
        known += [row] if view.get(row, "ratio") is not None and (high is None or high <= 2 * low) else []
    if not known:
        return ""
    ratios = [view.get(row, "ratio") for row in known]
    costs = [view.get(row, "overhead_share") for row in view.rows if view.get(row, "overhead_share") is not None]
    inside = [
        view.get(row, "clock_low_ms") <= view.get(row, "kernel_ms") <= view.get(row, "clock_high_ms")
        for row in known
        if view.get(row, "clock_high_ms") is not None
    ]
    ends = f"{format_number(min(ratios))}× to {format_number(max(ratios))}×" if len(ratios) > 1 else f"{ratios[0]:.3g}×"
    text = f"The kernels of the forward pass take {ends} its latency"
    text += f", within the clock's 95% interval in {sum(inside)} of {len(inside)} cells." if inside else "."
    if costs:
        change = f"{min(costs):+.0%} to {max(costs):+.0%}".replace("-", "−")
        text += f" The profiler changed the time of a whole step by {change}."
    return text


def _say(one: KernelTrace, size: str, top: View) -> str:
    kinds = sorted(split_time(one.kernels)[:-1], key=lambda kind: -kind[1]) or [("nothing", 0.0, 0.0)]
    (first, _, most), *others = kinds[:2]
    words = f"**{format_share(most)}** of the GPU time of **{size}**{at_tokens(one.cell.context)} is {first}"
    words += "".join(f", {format_share(share)} {name}" for name, _, share in others)
    longest = top.rows[0]
    share, took = format_share(top.get(longest, "share")), format_number(top.get(longest, "device_ms"))
    return f"{words}; one kernel takes **{share}** ({took} ms)."


_GENERIC = ("Kernel", "Kernel2", "device_kernel")
_PURPOSE = re.compile(r"(\w+?)(?:Functor|Ops|_kernel_cuda|_kernel_impl|_kernel)\b|std::(\w+)<")
_LONGEST = 56


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Returns names that fit a line and stay different: the words that all names of a family share go, and what tells
    them apart (tile, layout, functor), which stands at the end, stays: `sm80_xmma_gemm…tn_n_tilesize128x64x8`."""
    bare = {name: _bare(name) for name in dict.fromkeys(names)}
    families: dict[tuple[str, ...], list[set[str]]] = {}
    for text in {*bare.values()}:
        families.setdefault(_family(text), []).append({*text.split("_")})
    shared = {family: set.intersection(*members) for family, members in families.items() if len(members) > 1}
    short = {name: _without(text, shared.get(_family(text), set())) for name, text in bare.items()}
    seen = Counter[str]()
    for name, text in short.items():
        seen[text] += 1
        short[name] = f"{text} ({seen[text]})" if seen[text] > 1 else text
    return short


def _family(name: str) -> tuple[str, ...]:
    return tuple(name.split("_")[:3])


def _without(name: str, shared: set[str]) -> str:
    """Returns the family's name and the words that not all of it share; of a name that is still long, both ends."""
    first, rest = name.split("_")[:3], [word for word in name.split("_")[3:] if word not in shared]
    text = f"{'_'.join(first)}…{'_'.join(rest)}" if shared and rest else name
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 3]}…{text[-_LONGEST * 2 // 3 :]}"


def _bare(name: str) -> str:
    """Returns a kernel's name without types and namespaces: `elementwise_kernel · Mul`, `cutlass_80_simt_sgemm_…`."""
    clean = re.sub(r"\(anonymous namespace\)::|\((?:unsigned )?(?:int|bool)\)", "", name).removeprefix("void ")
    head, _, arguments = clean.partition("<")
    base = head.partition("(")[0].strip().split("::")[-1]
    if base in _GENERIC:
        base = re.split("[<>,(]", arguments)[0].strip().split("::")[-1] or base
    made_for = dict.fromkeys(
        one or other for one, other in _PURPOSE.findall(arguments) if (one or other) not in ("array", "gpu")
    )
    return " · ".join([base or name, *list(made_for)[:2]])


QUESTION = Question(answer=answer, needs=("traced", "steps"), course=("K1", "K2"))
